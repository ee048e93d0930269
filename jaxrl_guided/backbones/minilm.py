"""MiniLM-L6 sentence vectors: a BERT encoder, mean pooling and unit length, in JAX.

They are the text features of the small policies (Sentence-BERT, Reimers and Gurevych 2019).
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath
from safetensors import SafetensorError
from safetensors.numpy import load_file

from jaxrl_guided.backbones.config import BackboneError, read_number, read_size
from jaxrl_guided.backbones.files import read_json
from jaxrl_guided.backbones.tokenizer import Tokenizer, read_tokenizer

Params = dict[str, Any]

_BATCH = 128
_LENGTH_STEP = 8  # lengths are padded to a multiple, which bounds compilation
_MAX_TOKENS = 256  # what the sentence vectors were trained with

_DENSE = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "o": "attention.output.dense",
    "up": "intermediate.dense",
    "down": "output.dense",
}
_NORMS = {"attn_norm": "attention.output.LayerNorm", "mlp_norm": "output.LayerNorm"}


@dataclasses.dataclass(frozen=True)
class BertConfig:
    """Sizes of a BERT encoder."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    max_positions: int
    norm_eps: float


@dataclasses.dataclass(frozen=True)
class MiniLM:
    """A sentence encoder with its tokenizer."""

    config: BertConfig
    params: Params
    tokenizer: Tokenizer


def load_minilm(folder: Path) -> MiniLM:
    """Reads `config.json`, `model.safetensors` and `tokenizer.json` of a BERT encoder.

    Raises:
      BackboneError: names the file that is missing, truncated or does not fit the configuration.
    """
    config = _read_config(folder / "config.json")
    path = folder / "model.safetensors"
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        raise BackboneError(f"{path}: missing or truncated ({error})") from error
    params = _params(path, config, tensors)
    limit = min(_MAX_TOKENS, config.max_positions)
    tokenizer = read_tokenizer(epath.Path(folder) / "tokenizer.json", max_length=limit)
    if tokenizer.vocab_size > config.vocab_size:
        raise BackboneError(
            f"{folder}: tokenizer has {tokenizer.vocab_size} ids, the model {config.vocab_size}"
        )
    return MiniLM(config, params, tokenizer)


def sentence_vectors(model: MiniLM, texts: Sequence[str]) -> np.ndarray:
    """Unit vectors `f32[I, D]` of I texts, cut to 256 tokens each."""
    ids, length = model.tokenizer.encode(texts)
    vectors = np.empty((len(texts), model.config.hidden_size), np.float32)
    order = np.argsort(length, kind="stable")
    for start in range(0, len(order), _BATCH):
        rows = order[start : start + _BATCH]
        # Repeating a row fills up the batch to a power of two: few shapes are compiled.
        padded = np.pad(rows, (0, (1 << (len(rows) - 1).bit_length()) - len(rows)), mode="edge")
        width = -(-int(length[rows].max()) // _LENGTH_STEP) * _LENGTH_STEP
        width = min(width, model.config.max_positions)
        batch = np.zeros((len(padded), width), np.int32)
        columns = min(width, ids.shape[1])
        batch[:, :columns] = ids[padded, :columns]
        out = embed(model.params, jnp.asarray(batch), jnp.asarray(length[padded]), model.config)
        vectors[rows] = np.asarray(out)[: len(rows)]
    return vectors


@functools.partial(jax.jit, static_argnames="config")
def embed(params: Params, ids: jax.Array, length: jax.Array, config: BertConfig) -> jax.Array:
    """Mean of the last hidden states over the real tokens, at unit length.

    Args:
      ids: `i32[B, P]`, right padded with anything.
      length: `i32[B]`, at least 1.

    Returns:
      `f32[B, D]`.
    """
    mask = jnp.arange(ids.shape[1]) < length[:, None]
    with jax.default_matmul_precision("highest"):  # float32 on every device
        hidden = _encode(params, ids, mask, config)
    mean = jnp.sum(hidden * mask[..., None], axis=1) / length[:, None]
    return mean / jnp.linalg.norm(mean, axis=-1, keepdims=True)


def _encode(params: Params, ids: jax.Array, mask: jax.Array, config: BertConfig) -> jax.Array:
    x = params["word"][ids] + params["position"][: ids.shape[1]] + params["segment"]
    x = _layer_norm(params["norm"], x, config.norm_eps)
    layer = functools.partial(_layer, mask=mask, config=config)
    return jax.lax.scan(lambda x, weights: (layer(x, weights), None), x, params["layers"])[0]


def _layer(x: jax.Array, weights: Params, mask: jax.Array, config: BertConfig) -> jax.Array:
    def heads(name: str) -> jax.Array:
        return _dense(weights[name], x).reshape(*x.shape[:2], config.num_heads, -1)

    attended = jax.nn.dot_product_attention(
        heads("q"), heads("k"), heads("v"), mask=mask[:, None, None, :]
    )
    attended = _dense(weights["o"], attended.reshape(x.shape))
    x = _layer_norm(weights["attn_norm"], x + attended, config.norm_eps)
    inner = jax.nn.gelu(_dense(weights["up"], x), approximate=False)
    return _layer_norm(weights["mlp_norm"], x + _dense(weights["down"], inner), config.norm_eps)


def _dense(weights: Params, x: jax.Array) -> jax.Array:
    return x @ weights["kernel"] + weights["bias"]


def _layer_norm(weights: Params, x: jax.Array, eps: float) -> jax.Array:
    centred = x - jnp.mean(x, axis=-1, keepdims=True)
    variance = jnp.mean(jnp.square(centred), axis=-1, keepdims=True)
    return centred * jax.lax.rsqrt(variance + eps) * weights["scale"] + weights["bias"]


def _read_config(path: Path) -> BertConfig:
    raw = read_json(epath.Path(path))
    try:
        config = BertConfig(
            vocab_size=read_size(raw, "vocab_size"),
            hidden_size=read_size(raw, "hidden_size"),
            intermediate_size=read_size(raw, "intermediate_size"),
            num_layers=read_size(raw, "num_hidden_layers"),
            num_heads=read_size(raw, "num_attention_heads"),
            max_positions=read_size(raw, "max_position_embeddings"),
            norm_eps=read_number(raw, "layer_norm_eps"),
        )
    except (BackboneError, KeyError) as error:
        raise BackboneError(f"{path}: not the configuration of a BERT model ({error})") from error
    if raw.get("model_type") != "bert" or raw.get("hidden_act") != "gelu":
        raise BackboneError(f"{path}: needs model_type 'bert' with hidden_act 'gelu'")
    if config.hidden_size % config.num_heads:
        raise BackboneError(
            f"{path}: num_attention_heads = {config.num_heads} must divide hidden_size = "
            f"{config.hidden_size}"
        )
    return config


def _params(path: Path, config: BertConfig, tensors: Mapping[str, np.ndarray]) -> Params:
    hidden, inner = config.hidden_size, config.intermediate_size

    def take(name: str, *shape: int) -> np.ndarray:
        if name not in tensors or tensors[name].shape != shape:
            found = tensors[name].shape if name in tensors else "missing"
            raise BackboneError(f"{path}: tensor {name} is {found}, expected {shape}")
        if not np.isfinite(tensors[name]).all():
            raise BackboneError(f"{path}: tensor {name} is not finite")
        return tensors[name].astype(np.float32)

    def norm(name: str) -> Params:
        return {"scale": take(f"{name}.weight", hidden), "bias": take(f"{name}.bias", hidden)}

    def dense(name: str, rows: int, columns: int) -> Params:
        kernel = take(f"{name}.weight", columns, rows).T
        return {"kernel": kernel, "bias": take(f"{name}.bias", columns)}

    sizes = {"up": (hidden, inner), "down": (inner, hidden)}

    def layer(index: int) -> Params:
        prefix = f"encoder.layer.{index}."
        return {ours: norm(prefix + name) for ours, name in _NORMS.items()} | {
            ours: dense(prefix + name, *sizes.get(ours, (hidden, hidden)))
            for ours, name in _DENSE.items()
        }

    table = "embeddings.{}.weight".format
    params = {
        "word": take(table("word_embeddings"), config.vocab_size, hidden),
        "position": take(table("position_embeddings"), config.max_positions, hidden),
        # One text at a time: every token is of the first segment.
        "segment": take(table("token_type_embeddings"), 2, hidden)[0],
        "norm": norm("embeddings.LayerNorm"),
        "layers": jax.tree.map(
            lambda *leaves: np.stack(leaves), *(layer(i) for i in range(config.num_layers))
        ),
    }
    return jax.tree.map(jnp.asarray, params)

"""GGUF files (quantised Llama, Qwen2 and Qwen3 checkpoints) as parameters of our decoder."""

import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
from gguf import GGUFReader, ReaderTensor, quants
from numpy.typing import DTypeLike

from jaxrl_guided.backbones.config import BackboneConfig, BackboneError
from jaxrl_guided.backbones.params import Params, linear_shapes

# Llama checkpoints store the rows of q and k with each rotary pair side by side; the others, like
# our decoder, keep the two halves of a head apart.
_PAIRED_ROTARY = {"llama": True, "qwen2": False, "qwen3": False}
_PROJECTIONS = {
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "o": "attn_output",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
}
_NORMS = {"attn_norm": "attn_norm", "mlp_norm": "ffn_norm"}
_HEAD_NORMS = {"q_norm": "attn_q_norm", "k_norm": "attn_k_norm"}


class _Reader(GGUFReader):
    """Reads past the end of the file are errors (the base class returns short arrays)."""

    def _get(
        self, offset: int, dtype: DTypeLike, count: int = 1, override_order: Any = None
    ) -> np.ndarray:
        if isinstance(self.data, np.memmap):  # a plain view of it is sliced several times faster
            plain: Any = self.data.view(np.ndarray)
            self.data = plain
        end = int(offset) + np.dtype(dtype).itemsize * int(count)
        if end > len(self.data):
            raise ValueError(f"the file has {len(self.data):,} bytes, {end:,} are needed")
        return super()._get(offset, dtype, count, override_order)


def load_gguf(
    path: Path, num_layers: int | None = None, dtype: DTypeLike = np.float32
) -> tuple[BackboneConfig, Params, dict[str, Any]]:
    """Reads and dequantises a checkpoint; SmolLM2-135M takes about 3 s.

    Args:
      num_layers: keep only the first layers (and the final norm); all if None.
      dtype: of the parameters.

    Returns:
      Configuration, parameters of `decoder.py`, and the file's metadata.

    Raises:
      BackboneError: names the file and what is wrong: truncated, corrupt, an architecture or
        rotary scaling that is not supported, a tensor missing, unknown, or of another shape.
    """
    metadata, tensors = _open(path)
    config = _config(path, metadata, tensors, num_layers)
    shapes = _expected_shapes(config)
    _check_names(path, config, set(tensors), set(shapes))

    arrays: dict[str, np.ndarray] = {}
    for name, shape in shapes.items():
        tensor = tensors[name]
        try:
            array = quants.dequantize(tensor.data, tensor.tensor_type)
        except (NotImplementedError, ValueError) as error:
            raise BackboneError(f"{path}: cannot dequantise tensor {name} ({error})") from error
        if array.shape != shape:
            raise BackboneError(f"{path}: tensor {name} is {array.shape}, expected {shape}")
        if not np.isfinite(array).all():
            raise BackboneError(f"{path}: tensor {name} is not finite")
        arrays[name] = np.array(array, dtype)
    paired = _PAIRED_ROTARY[metadata["general.architecture"]]
    return config, _params(config, arrays, paired), metadata


def _open(path: Path) -> tuple[dict[str, Any], dict[str, ReaderTensor]]:
    try:
        reader = _Reader(path)
        fields = [field for field in reader.fields.values() if not field.name.startswith("GGUF.")]
        metadata = {field.name: field.contents() for field in fields}
    except Exception as error:  # a corrupt file raises nearly anything inside the reader
        raise BackboneError(f"{path}: truncated or corrupt GGUF file ({error})") from error
    return metadata, {tensor.name: tensor for tensor in reader.tensors}


def _config(
    path: Path,
    metadata: Mapping[str, Any],
    tensors: Mapping[str, ReaderTensor],
    num_layers: int | None,
) -> BackboneConfig:
    architecture = metadata.get("general.architecture")
    if architecture not in tuple(_PAIRED_ROTARY):  # it may be a list
        known = ", ".join(_PAIRED_ROTARY)
        raise BackboneError(f"{path}: architecture {architecture!r} is not one of {known}")

    def number(key: str, default: float | None = None) -> Any:
        value = metadata.get(f"{architecture}.{key}", default)
        if not isinstance(value, int | float) or not 0 < value < math.inf:
            raise BackboneError(f"{path}: metadata {architecture}.{key} is {value!r}, not a size")
        return value

    heads = number("attention.head_count")
    head_dim = number("attention.key_length", number("embedding_length") // heads)
    scaling = metadata.get(f"{architecture}.rope.scaling.type", "none")
    rotated = number("rope.dimension_count", head_dim)
    if scaling != "none" or rotated != head_dim or "rope_freqs.weight" in tensors:
        raise BackboneError(
            f"{path}: scaled or partial rotary embeddings are read from Hugging Face directories "
            "only, not from GGUF"
        )
    vocab_size = _vocab_size(path, tensors)
    layers = _num_layers(path, number("block_count"), tensors, num_layers)
    try:
        return BackboneConfig(
            vocab_size=vocab_size,
            hidden_size=number("embedding_length"),
            intermediate_size=number("feed_forward_length"),
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=number("attention.head_count_kv", heads),
            head_dim=head_dim,
            rope_theta=number("rope.freq_base", 1e4),
            # Stored in float32: 1e-5 comes back as 9.99999975e-06.
            norm_eps=float(f"{number('attention.layer_norm_rms_epsilon'):.6g}"),
            tie_embeddings="output.weight" not in tensors,
            qkv_bias="blk.0.attn_q.bias" in tensors,
            o_bias="blk.0.attn_output.bias" in tensors,
            qk_norm="blk.0.attn_q_norm.weight" in tensors,
            max_positions=number("context_length"),
        )
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from None


def _vocab_size(path: Path, tensors: Mapping[str, ReaderTensor]) -> int:
    if "token_embd.weight" not in tensors:
        raise BackboneError(f"{path}: tensor token_embd.weight is missing")
    return int(tensors["token_embd.weight"].shape[-1])


def _num_layers(path: Path, total: int, names: Collection[str], wanted: int | None) -> int:
    found = {name.split(".")[1] for name in names if name.startswith("blk.")}
    if found != {str(i) for i in range(len(found))} or total != len(found):
        raise BackboneError(
            f"{path}: metadata says {total} layers, the tensors make up {len(found)}"
        )
    if wanted is not None and not 1 <= wanted <= total:
        raise BackboneError(f"{path}: num_layers must be within 1 … {total}, got {wanted}")
    return total if wanted is None else wanted


def _expected_shapes(config: BackboneConfig) -> dict[str, tuple[int, ...]]:
    """Name → shape of every tensor that this configuration reads; matrices are [out, in]."""
    hidden = config.hidden_size
    matrices = {name: shape[::-1] for name, shape in linear_shapes(config).items()}
    layer: dict[str, tuple[int, ...]] = {f"{name}.weight": (hidden,) for name in _NORMS.values()}
    layer |= {f"{_PROJECTIONS[name]}.weight": shape for name, shape in matrices.items()}
    layer |= {f"{_PROJECTIONS[name]}.bias": matrices[name][:1] for name in _biased(config)}
    if config.qk_norm:
        layer |= {f"{name}.weight": (config.head_dim,) for name in _HEAD_NORMS.values()}
    shapes: dict[str, tuple[int, ...]] = {
        f"blk.{i}.{name}": shape for i in range(config.num_layers) for name, shape in layer.items()
    }
    shapes["token_embd.weight"] = (config.vocab_size, hidden)
    shapes["output_norm.weight"] = (hidden,)
    if not config.tie_embeddings:
        shapes["output.weight"] = (config.vocab_size, hidden)
    return shapes


def _biased(config: BackboneConfig) -> tuple[str, ...]:
    return ("q", "k", "v") * config.qkv_bias + ("o",) * config.o_bias


def _check_names(path: Path, config: BackboneConfig, found: set[str], expected: set[str]) -> None:
    """A tensor that we would not use changes the model: refuse it (dropped layers apart)."""
    if missing := sorted(expected - found):
        raise BackboneError(f"{path}: {len(missing)} tensors are missing, e.g. {missing[0]}")

    def dropped(name: str) -> bool:
        parts = name.split(".")
        return parts[0] == "blk" and int(parts[1]) >= config.num_layers

    if unknown := sorted(name for name in found - expected if not dropped(name)):
        raise BackboneError(f"{path}: {len(unknown)} unknown tensors, e.g. {unknown[0]}")


def _halves(array: np.ndarray, num_heads: int) -> np.ndarray:
    """Rows (2i, 2i + 1) of each head → rows (i, i + head_dim / 2)."""
    pairs = array.reshape(num_heads, -1, 2, *array.shape[1:])
    return pairs.swapaxes(1, 2).reshape(array.shape)


def _params(config: BackboneConfig, arrays: Mapping[str, np.ndarray], paired: bool) -> Params:
    rotary_heads = {"q": config.num_heads, "k": config.num_kv_heads} if paired else {}

    def stack(name: str, ours: str) -> np.ndarray:
        rows = [arrays[f"blk.{i}.{name}"] for i in range(config.num_layers)]
        if ours in rotary_heads:
            rows = [_halves(row, rotary_heads[ours]) for row in rows]
        return np.stack(rows)

    norms = _NORMS | (_HEAD_NORMS if config.qk_norm else {})
    layers: Params = {
        ours: jnp.asarray(stack(f"{name}.weight", ours)) for ours, name in norms.items()
    }
    for ours, name in _PROJECTIONS.items():
        layers[ours] = {"kernel": jnp.asarray(stack(f"{name}.weight", ours).swapaxes(1, 2))}
    for ours in _biased(config):
        layers[ours]["bias"] = jnp.asarray(stack(f"{_PROJECTIONS[ours]}.bias", ours))
    params: Params = {
        "embed": jnp.asarray(arrays["token_embd.weight"]),
        "layers": layers,
        "final_norm": jnp.asarray(arrays["output_norm.weight"]),
    }
    if not config.tie_embeddings:
        params["lm_head"] = {"kernel": jnp.asarray(arrays["output.weight"].T)}
    return params

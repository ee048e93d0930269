"""The one entry for backbones: a known name, a Hugging Face directory, or a GGUF file."""

import dataclasses
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from etils import epath

from jaxrl_guided.backbones import gguf, hf, weights
from jaxrl_guided.backbones.chat import NANO_TEMPLATE, ChatTemplate, read_template
from jaxrl_guided.backbones.config import BackboneConfig, BackboneError
from jaxrl_guided.backbones.params import Params, check_layers, init_params, truncate
from jaxrl_guided.backbones.presets import PRESETS
from jaxrl_guided.backbones.tokenizer import (
    NANO_SPECIALS,
    Tokenizer,
    nano_tokenizer,
    read_tokenizer,
    tokenizer_from_gguf,
)

NAMES = ("nano", "smollm2-135m-instruct")
NANO = BackboneConfig(
    vocab_size=256 + len(NANO_SPECIALS),
    hidden_size=64,
    intermediate_size=128,
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    tie_embeddings=True,
    max_positions=512,
)


@dataclasses.dataclass(frozen=True)
class Backbone:
    """A decoder's configuration, its parameters, its tokenizer, and its chat template if any."""

    config: BackboneConfig
    params: Params
    tokenizer: Tokenizer
    template: ChatTemplate | None = None


def load_backbone(
    spec: str, num_layers: int | None = None, dtype: jax.typing.DTypeLike = jnp.float32
) -> Backbone:
    """Loads a backbone.

    Args:
      spec: one of `NAMES` (`nano` has small random weights, always the same), a Hugging
        Face directory (`config.json`; also `gs://…`), or a local GGUF file or the directory of one.
      num_layers: keep only the first layers; all if None.
      dtype: of the parameters in memory.

    Raises:
      BackboneError: nothing usable there, or a file is truncated, corrupt, or does not fit.
    """
    backbone = _load(spec, num_layers, dtype)
    ids, rows = backbone.tokenizer.vocab_size, backbone.config.vocab_size
    if ids > rows:
        raise BackboneError(f"{spec}: the tokenizer has {ids} ids, the embedding only {rows} rows")
    return backbone


def random_backbone(
    name: str, num_layers: int | None, seed: int, dtype: jax.typing.DTypeLike
) -> Backbone:
    """Random weights in the shape of a published decoder, one of `PRESETS`; texts are bytes.

    Raises:
      BackboneError: it has fewer layers.
    """
    config = PRESETS[name]
    if num_layers is not None:
        check_layers(config, num_layers)
        config = dataclasses.replace(config, num_layers=num_layers)
    return Backbone(config, init_params(config, seed, dtype=dtype), nano_tokenizer(), NANO_TEMPLATE)


def _load(spec: str, num_layers: int | None, dtype: jax.typing.DTypeLike) -> Backbone:
    if spec == "nano":
        params = init_params(NANO, seed=0, dtype=dtype)
        return _first_layers(Backbone(NANO, params, nano_tokenizer(), NANO_TEMPLATE), num_layers)
    path = epath.Path(weights.find(spec) if spec in NAMES else spec)
    if not path.exists() and spec in PRESETS:
        raise BackboneError(
            f"backbone {spec!r} is a shape without weights: name a directory that has them, or "
            "give it random_weights"
        )
    if not path.exists():
        raise BackboneError(f"backbone {spec!r} is neither a path nor {' or '.join(NAMES)}")
    if path.is_dir() and (path / "config.json").is_file():
        config, params = hf.load_hf(path, dtype)
        tokenizer = read_tokenizer(path / "tokenizer.json")
        return _first_layers(Backbone(config, params, tokenizer, read_template(path)), num_layers)
    file = Path(os.fspath(_gguf_file(path)))
    config, params, metadata = gguf.load_gguf(file, num_layers, dtype)
    tokenizer = tokenizer_from_gguf(metadata, str(file))
    return Backbone(config, params, tokenizer, _template_from_gguf(metadata, str(file)))


def _template_from_gguf(metadata: Mapping[str, Any], source: str) -> ChatTemplate | None:
    template = metadata.get("tokenizer.chat_template")
    if template is None:
        return None
    if not isinstance(template, str):
        raise BackboneError(f"{source}: metadata tokenizer.chat_template is no text")
    tokens = metadata["tokenizer.ggml.tokens"]

    def text(key: str) -> str:
        index = metadata.get(key)
        if index is not None and (type(index) is not int or not 0 <= index < len(tokens)):
            raise BackboneError(f"{source}: metadata {key} is {index!r}, no id of a token")
        return "" if index is None else tokens[index]

    bos, eos = (text(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos"))
    return ChatTemplate(template, bos, eos)


def _first_layers(backbone: Backbone, num_layers: int | None) -> Backbone:
    if num_layers is None:
        return backbone
    config, params = truncate(backbone.config, backbone.params, num_layers)
    return dataclasses.replace(backbone, config=config, params=params)


def _gguf_file(path: epath.Path) -> epath.Path:
    if path.is_file():
        return path
    files = sorted(path.glob("*.gguf"))
    if not files:
        raise BackboneError(f"{path}: has neither config.json nor a .gguf file")
    if len(files) > 1:
        raise BackboneError(f"{path}: has {len(files)} .gguf files; name one of them")
    return files[0]

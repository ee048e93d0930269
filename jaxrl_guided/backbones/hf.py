"""Hugging Face directories (config.json and safetensors, local or gs://) to parameters and back."""

import contextlib
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from etils import epath
from safetensors import SafetensorError, safe_open

from jaxrl_guided.backbones.config import BackboneConfig, BackboneError
from jaxrl_guided.backbones.files import read_json
from jaxrl_guided.backbones.params import Params, param_shapes

MODULES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
}
"""Our name of a layer's module → its name in Hugging Face checkpoints."""

_DTYPES = ("F32", "F16", "BF16")


class _Slot(NamedTuple):
    """Where a checkpoint's tensor stands in our parameters."""

    path: tuple[str, ...]
    layer: int | None
    transpose: bool


def load_hf(
    directory: os.PathLike[str] | str, dtype: jax.typing.DTypeLike = jnp.float32
) -> tuple[BackboneConfig, Params]:
    """Reads a Llama, Qwen2 or Qwen3 checkpoint.

    Args:
      directory: folder with `config.json` and `*.safetensors` (one, or shards with their index);
        a `gs://` path works too.
      dtype: type of the parameters in memory.

    Raises:
      BackboneError: names the file or tensor: no or unreadable `config.json`, an unsupported
        architecture, no weights, a truncated file, tensors missing, unknown, not finite, of another
        shape or of an unsupported type, a vocabulary that is not the configuration's.
    """
    root = epath.Path(directory)
    config = read_config(root)
    slots, params = _slots(config), _room(root, config, dtype)
    missing, unknown, tied_head = set(slots), [], None
    for shard in _shards(root):
        for raw_name, tensor in read_tensors(shard):
            name = _full_name(raw_name)
            if name in slots:
                _place(shard, name, tensor, slots[name], params)
                missing.discard(name)
            elif name == "lm_head.weight":
                tied_head = tensor
            elif not name.endswith("rotary_emb.inv_freq"):
                unknown.append(name)
    if missing:
        raise BackboneError(f"{root}: {_some(missing)} missing")
    if unknown:
        raise BackboneError(f"{root}: {_some(unknown)} unknown for {config.family}")
    if tied_head is not None and not np.array_equal(tied_head.astype(dtype), params["embed"]):
        raise BackboneError(
            f"{root}: lm_head.weight differs from the embedding, but config.json ties them"
        )
    return config, jax.tree.map(jnp.asarray, params)


def read_config(root: epath.Path) -> BackboneConfig:
    """Reads `config.json` of a directory; raises BackboneError that names the file."""
    path = root / "config.json"
    if not path.exists():
        raise BackboneError(f"{root}: no config.json there; a Hugging Face directory has one")
    raw = read_json(path)
    try:
        return BackboneConfig.from_hf(raw)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from None


def export_hf(config: BackboneConfig, params: Params, directory: os.PathLike[str] | str) -> None:
    """Writes `config.json` and `model.safetensors` that transformers loads; types are kept.

    Raises:
      BackboneError: the directory has a `config.json` or `model.safetensors` already.
    """
    root = epath.Path(directory)
    for name in ("config.json", "model.safetensors"):
        if (root / name).exists():
            raise BackboneError(f"{root / name} exists; export into an empty directory")
    raw = config.to_hf()
    tensors = {}
    for name, slot in _slots(config).items():
        value = np.asarray(_leaf(params, slot.path))
        value = value if slot.layer is None else value[slot.layer]
        tensors[name] = np.ascontiguousarray(value.T if slot.transpose else value)
    raw["torch_dtype"] = str(params["embed"].dtype)
    root.mkdir(parents=True, exist_ok=True)
    data = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    (root / "model.safetensors").write_bytes(data)
    (root / "config.json").write_text(json.dumps(raw, indent=2) + "\n")


def _room(root: epath.Path, config: BackboneConfig, dtype: jax.typing.DTypeLike) -> Params:
    """Arrays for all parameters, which hold nothing yet."""
    shapes = param_shapes(config)
    try:
        return jax.tree.map(
            lambda shape: np.empty(shape, dtype), shapes, is_leaf=lambda x: isinstance(x, tuple)
        )
    except (MemoryError, ValueError) as error:
        raise BackboneError(
            f"{root / 'config.json'}: there is no memory for weights of these sizes ({error})"
        ) from None


def _slots(config: BackboneConfig) -> dict[str, _Slot]:
    """Every tensor of a checkpoint by name."""
    slots = {
        "model.embed_tokens.weight": _Slot(("embed",), None, False),
        "model.norm.weight": _Slot(("final_norm",), None, False),
    }
    shapes = param_shapes(config)
    if "lm_head" in shapes:
        slots["lm_head.weight"] = _Slot(("lm_head", "kernel"), None, True)
    for ours, entry in shapes["layers"].items():
        for layer in range(config.num_layers):
            stem = f"model.layers.{layer}.{MODULES[ours]}"
            if not isinstance(entry, dict):
                slots[f"{stem}.weight"] = _Slot(("layers", ours), layer, False)
                continue
            slots[f"{stem}.weight"] = _Slot(("layers", ours, "kernel"), layer, True)
            if "bias" in entry:
                slots[f"{stem}.bias"] = _Slot(("layers", ours, "bias"), layer, False)
    return slots


def _leaf(params: Params, path: tuple[str, ...]) -> Any:
    leaf: Any = params
    for key in path:
        leaf = leaf[key]
    return leaf


def _place(shard: epath.Path, name: str, tensor: np.ndarray, slot: _Slot, params: Params) -> None:
    target = _leaf(params, slot.path)
    target = target if slot.layer is None else target[slot.layer]
    expected = target.shape[::-1] if slot.transpose else target.shape
    if tensor.shape != expected:
        vocabulary = slot.path[0] in ("embed", "lm_head") and tensor.shape[1:] == expected[1:]
        hint = " (vocab_size)" if vocabulary else ""
        raise BackboneError(
            f"{shard}: tensor {name} has shape {tensor.shape}, config.json says {expected}{hint}"
        )
    target[...] = tensor.T if slot.transpose else tensor


def _shards(root: epath.Path) -> list[epath.Path]:
    """The weight files: those that the index names, or the single file."""
    index = root / "model.safetensors.index.json"
    if index.exists():
        files = read_json(index).get("weight_map")
        if not isinstance(files, dict) or not all(isinstance(x, str) for x in files.values()):
            raise BackboneError(f"{index}: not a safetensors index with a weight_map")
        names = sorted(set(files.values()))
    else:
        names = sorted(path.name for path in root.glob("*.safetensors"))
        if not names:
            raise BackboneError(f"{root}: no *.safetensors there")
    for name in names:
        if not (root / name).is_file():
            raise BackboneError(f"{root / name}: the index names it, but there is no such file")
    return [root / name for name in names]


def read_tensors(shard: epath.Path) -> Iterator[tuple[str, np.ndarray]]:
    """Name and value of every tensor of a safetensors file, one at a time.

    Raises:
      BackboneError: the file is truncated or corrupt, or a tensor is not f32, f16 or bf16, or has
        a number that is not finite.
    """
    try:
        with _local(shard) as path, safe_open(path, "numpy") as file:
            names = file.keys()
            for name in names:
                kind = file.get_slice(name).get_dtype()
                if kind not in _DTYPES:
                    raise BackboneError(
                        f"{shard}: tensor {name} has type {kind}; supported: {', '.join(_DTYPES)}"
                    )
                tensor = file.get_tensor(name)
                if not np.isfinite(tensor).all():
                    raise BackboneError(f"{shard}: tensor {name} is not finite")
                yield name, tensor
    except (SafetensorError, OSError) as error:
        raise BackboneError(f"{shard}: truncated or corrupt safetensors file ({error})") from None


def _full_name(name: str) -> str:
    """Checkpoints of a bare model (embedders) leave out the leading `model.`."""
    return name if name.startswith(("model.", "lm_head.")) else f"model.{name}"


@contextlib.contextmanager
def _local(path: epath.Path) -> Iterator[Path]:
    """The file itself, or a temporary copy of a remote one."""
    if "://" not in os.fspath(path):
        yield Path(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / path.name
        path.copy(copy)
        yield copy


def _some(names: Any) -> str:
    """`2 tensors, e.g. NAME, are` for messages."""
    names = sorted(names)
    return (
        f"tensor {names[0]} is" if len(names) == 1 else f"{len(names)} tensors ({names[0]}, …) are"
    )

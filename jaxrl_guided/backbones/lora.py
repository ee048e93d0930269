"""LoRA adapters: y = xW + (α / r)(xA)B in a pytree of its own that mirrors the decoder's layers.

Import and export use the names and files of the PEFT library.
"""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy
from etils import epath

from jaxrl_guided.backbones import hf
from jaxrl_guided.backbones.config import BackboneConfig, BackboneError, read_number, read_size
from jaxrl_guided.backbones.files import read_json
from jaxrl_guided.backbones.params import Params, linear_shapes
from jaxrl_guided.runtime.ranges import COUNT, POSITIVE, check

ATTENTION = ("q", "k", "v", "o")
ALL_LINEAR = (*ATTENTION, "gate", "up", "down")


@dataclasses.dataclass(frozen=True)
class LoraConfig:
    """Which linear layers are adapted, and how.

    Attributes:
      rank: r.
      alpha: α; the update is scaled by α / r.
      targets: names out of `ALL_LINEAR`.

    Raises:
      ValueError: a number is out of range, or a target is unknown, repeated or absent.
    """

    rank: int = 16
    alpha: float = 32.0
    targets: tuple[str, ...] = ALL_LINEAR

    def __post_init__(self) -> None:
        check(self, COUNT, "rank", part="lora.")
        check(self, POSITIVE, "alpha", part="lora.")
        known = len(set(self.targets) & set(ALL_LINEAR))
        if not self.targets or known != len(self.targets):
            raise ValueError(
                f"lora targets must be distinct names out of {', '.join(ALL_LINEAR)}, "
                f"got {self.targets}"
            )

    @property
    def scale(self) -> float:
        """α / r."""
        return self.alpha / self.rank


def lora_shapes(config: BackboneConfig, lora: LoraConfig) -> dict[str, dict[str, tuple[int, ...]]]:
    """Shapes of `{name: {"a": [L, in, r], "b": [L, r, out]}}`."""
    linear, count = linear_shapes(config), config.num_layers
    return {
        name: {"a": (count, linear[name][0], lora.rank), "b": (count, lora.rank, linear[name][1])}
        for name in lora.targets
    }


def init_lora(config: BackboneConfig, lora: LoraConfig, key: jax.Array) -> Params:
    """A uniform in ±1/√in (PEFT's start), B zero: the adapted decoder starts as the base."""
    keys = jax.random.split(key, len(lora.targets))
    adapters = {}
    for (name, shapes), name_key in zip(lora_shapes(config, lora).items(), keys, strict=True):
        limit = shapes["a"][1] ** -0.5
        a = jax.random.uniform(name_key, shapes["a"], jnp.float32, -limit, limit)
        adapters[name] = {"a": a, "b": jnp.zeros(shapes["b"], jnp.float32)}
    return adapters


def merge_lora(params: Params, adapters: Params, scale: float) -> Params:
    """The base with (α / r) A B added to its kernels; computed in float32, types are kept."""
    layers = dict(params["layers"])
    for name, pair in adapters.items():
        kernel = layers[name]["kernel"]
        update = jnp.matmul(pair["a"], pair["b"], precision=jax.lax.Precision.HIGHEST)
        merged = kernel.astype(jnp.float32) + scale * update.astype(jnp.float32)
        layers[name] = {**layers[name], "kernel": merged.astype(kernel.dtype)}
    return {**params, "layers": layers}


def export_peft(
    lora: LoraConfig,
    adapters: Params,
    directory: os.PathLike[str] | str,
    base: str | None = None,
) -> None:
    """Writes `adapter_config.json` and `adapter_model.safetensors` in PEFT's form.

    Args:
      base: name or directory of the model that they adapt, by which PEFT finds it.

    Raises:
      BackboneError: the directory has an adapter already.
    """
    root = epath.Path(directory)
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        if (root / name).exists():
            raise BackboneError(f"{root / name} exists; export into an empty directory")
    tensors = {
        _peft_name(layer, name, part): np.ascontiguousarray(np.asarray(stack[layer]).T)
        for name, pair in adapters.items()
        for part, stack in pair.items()
        for layer in range(stack.shape[0])
    }
    raw = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": base,
        "r": lora.rank,
        "lora_alpha": lora.alpha,
        "lora_dropout": 0.0,
        "bias": "none",
        "fan_in_fan_out": False,
        "target_modules": [hf.MODULES[name].split(".")[-1] for name in lora.targets],
    }
    root.mkdir(parents=True, exist_ok=True)
    data = safetensors.numpy.save(tensors, metadata={"format": "pt"})
    (root / "adapter_model.safetensors").write_bytes(data)
    (root / "adapter_config.json").write_text(json.dumps(raw, indent=2) + "\n")


def import_peft(
    config: BackboneConfig, directory: os.PathLike[str] | str
) -> tuple[LoraConfig, Params]:
    """Reads a PEFT adapter for a decoder of this shape.

    Raises:
      BackboneError: names the file or tensor: files absent or corrupt, a variant other than plain
        LoRA, tensors missing, unknown, or of another shape.
    """
    root = epath.Path(directory)
    lora = _read_peft_config(root / "adapter_config.json")
    path = root / "adapter_model.safetensors"
    if not path.exists():
        raise BackboneError(f"{root}: no adapter_model.safetensors there")
    tensors = dict(hf.read_tensors(path))
    adapters: Params = {}
    for name, shapes in lora_shapes(config, lora).items():
        adapters[name] = {}
        for part, shape in shapes.items():
            layers = []
            for layer in range(config.num_layers):
                tensor = tensors.pop(_peft_name(layer, name, part), None)
                if tensor is None or tensor.shape != shape[:0:-1]:
                    found = "missing" if tensor is None else f"of shape {tensor.shape}"
                    raise BackboneError(
                        f"{path}: {_peft_name(layer, name, part)} is {found}, "
                        f"expected {shape[:0:-1]}"
                    )
                layers.append(tensor.T.astype(np.float32))
            adapters[name][part] = jnp.asarray(np.stack(layers))
    if tensors:
        raise BackboneError(f"{path}: unknown tensor {min(tensors)}")
    return lora, adapters


def _peft_name(layer: int, name: str, part: str) -> str:
    return f"base_model.model.model.layers.{layer}.{hf.MODULES[name]}.lora_{part.upper()}.weight"


def _read_peft_config(path: epath.Path) -> LoraConfig:
    if not path.exists():
        raise BackboneError(f"{path}: does not exist; a PEFT adapter has one")
    raw = read_json(path)
    try:
        rank, alpha = read_size(raw, "r"), read_number(raw, "lora_alpha")
        targets = raw["target_modules"]
    except KeyError as missing:
        raise BackboneError(f"{path}: not a LoRA configuration, it has no {missing}") from None
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from None
    plain = raw.get("bias", "none") == "none" and raw.get("peft_type") == "LORA"
    others = ("use_rslora", "use_dora", "fan_in_fan_out", "alpha_pattern")
    if any(raw.get(key) for key in others) or not plain:
        raise BackboneError(f"{path}: only plain LoRA is supported (no bias, {', '.join(others)})")
    names = {hf.MODULES[name].split(".")[-1]: name for name in ALL_LINEAR}
    if not isinstance(targets, list):
        raise BackboneError(f"{path}: target modules must be a list of names, not {targets!r}")
    if unknown := [target for target in targets if target not in list(names)]:
        raise BackboneError(f"{path}: target modules {unknown} are not supported")
    adapted = {names[target] for target in targets}
    try:
        return LoraConfig(rank, alpha, tuple(name for name in ALL_LINEAR if name in adapted))
    except ValueError as error:
        raise BackboneError(f"{path}: {error}") from None

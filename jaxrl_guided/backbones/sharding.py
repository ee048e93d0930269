"""Where a decoder's weights lie on a mesh of the axes `fsdp` and `tensor`.

Every weight has logical axes, and one table says along which axis of the mesh each is divided. Rows
of a batch are divided along `fsdp`. A mesh of 1 × 1 is a single device.
"""

from collections.abc import Sequence
from typing import Any

import jax
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from jaxrl_guided.backbones.config import BackboneConfig

FSDP, TENSOR = "fsdp", "tensor"

RULES = {"embed": FSDP, "vocab": TENSOR, "heads": TENSOR, "kv_heads": TENSOR, "mlp": TENSOR}
"""Logical axis to axis of the mesh; layers and everything else are not divided."""

_LINEAR = {
    "q": ("embed", "heads"),
    "k": ("embed", "kv_heads"),
    "v": ("embed", "kv_heads"),
    "o": ("heads", "embed"),
    "gate": ("embed", "mlp"),
    "up": ("embed", "mlp"),
    "down": ("mlp", "embed"),
}
"""Logical axes of the inputs and outputs of a linear layer."""


def make_model_mesh(
    fsdp: int = 1, tensor: int = 1, devices: Sequence[jax.Device] | None = None
) -> Mesh:
    """The first `fsdp` × `tensor` devices.

    Args:
      devices: to take them from; all by default. Learner and sampler may have meshes of their own.

    Raises:
      ValueError: there are not as many.
    """
    devices = jax.devices() if devices is None else devices
    if fsdp < 1 or tensor < 1 or fsdp * tensor > len(devices):
        raise ValueError(
            f"fsdp {fsdp} and tensor {tensor} must be positive, their product at most the "
            f"{len(devices)} devices"
        )
    shape, axes = (fsdp, tensor), (FSDP, TENSOR)
    chosen = devices[: fsdp * tensor]
    return jax.make_mesh(shape, axes, axis_types=(AxisType.Auto,) * 2, devices=chosen)


def shardings(mesh: Mesh, config: BackboneConfig, tree: Any) -> Any:
    """Shardings for a pytree of arrays or shapes.

    Weights and adapters are found by the end of their paths, as `layers/q/kernel` or `q/a`, so that
    an optimiser's moments lie where their weights do. An axis that the mesh does not divide is
    whole on every device, and so is whatever is no weight of the decoder.
    """
    counts = {"heads": config.num_heads, "kv_heads": config.num_kv_heads}

    def axis_of(name: str | None, size: int) -> str | None:
        axis = RULES.get(name or "")
        # Heads are divided whole, whatever the number of their columns.
        return axis if axis and counts.get(name or "", size) % mesh.shape[axis] == 0 else None

    def place(path: tuple[Any, ...], leaf: Any) -> NamedSharding:
        logical = _logical_axes([_name(key) for key in path])
        if len(logical) != len(leaf.shape):
            return NamedSharding(mesh, PartitionSpec())
        axes = [axis_of(name, size) for name, size in zip(logical, leaf.shape, strict=True)]
        while axes and axes[-1] is None:  # as outputs have it: else programs would compile twice
            axes.pop()
        return NamedSharding(mesh, PartitionSpec(*axes))

    return jax.tree.map_with_path(place, tree)


def of_rows(mesh: Mesh) -> NamedSharding:
    """The first axis of a batch, divided."""
    return NamedSharding(mesh, PartitionSpec(FSDP))


def of_slots(mesh: Mesh, config: BackboneConfig, slots: Any) -> Any:
    """Shardings for a pytree of arrays with rows first; `[B, K, S, h]` is divided by heads, too.

    Raises:
      ValueError: the rows do not divide.
    """
    heads = TENSOR if config.num_kv_heads % mesh.shape[TENSOR] == 0 else None

    def place(leaf: Any) -> NamedSharding:
        if leaf.shape[0] % mesh.shape[FSDP]:
            raise ValueError(
                f"{leaf.shape[0]} rows cannot be divided among fsdp = {mesh.shape[FSDP]}"
            )
        axes = (FSDP, heads) if len(leaf.shape) == 4 else (FSDP,)
        return NamedSharding(mesh, PartitionSpec(*axes))

    return jax.tree.map(place, slots)


def _logical_axes(path: list[str]) -> tuple[str | None, ...]:
    """Of a weight of `params` or `lora` at the end of a path; empty for anything else."""
    module, leaf = ("", *path)[-2:]
    if leaf == "embed":
        return "vocab", "embed"
    if (module, leaf) == ("lm_head", "kernel"):
        return "embed", "vocab"
    if module not in _LINEAR:
        return ()
    inputs, outputs = _LINEAR[module]
    known: dict[str, tuple[str | None, ...]] = {
        "kernel": (None, inputs, outputs),
        "bias": (None, outputs),
        "a": (None, inputs, None),
        "b": (None, None, outputs),
    }
    return known.get(leaf, ())


def _name(key: Any) -> str:
    return str(getattr(key, "key", getattr(key, "name", "")))

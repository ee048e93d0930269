"""The devices that a run uses, of one process or of many, as a mesh."""

import contextlib
import hashlib
from contextlib import AbstractContextManager

import jax
import numpy as np
from jax.experimental import multihost_utils
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

DATA = "data"
"""Name of the axis along which batches are divided."""


def make_mesh(devices: int = 0) -> Mesh:
    """A mesh of one axis, `data`.

    Args:
      devices: how many, the first ones; 0 for all, those of other processes included.

    Raises:
      ValueError: there are not as many.
    """
    available = jax.device_count()
    if not 0 <= devices <= available:
        raise ValueError(f"--devices={devices} must lie between 0 and {available}")
    chosen = jax.devices()[: devices or available]
    return jax.make_mesh((len(chosen),), (DATA,), axis_types=(AxisType.Auto,), devices=chosen)


def replicated(mesh: Mesh) -> NamedSharding:
    """Everything on every device."""
    return NamedSharding(mesh, PartitionSpec())


def divided(mesh: Mesh, axis: int = 0) -> NamedSharding:
    """One axis divided among the devices."""
    return NamedSharding(mesh, PartitionSpec(*[None] * axis, DATA))


def in_host_memory() -> AbstractContextManager[object]:
    """Arrays that are made within lie in the machine's memory, where its CPU is one of the devices.

    It is unless `JAX_PLATFORMS` leaves it out.
    """
    try:
        return jax.default_device(jax.local_devices(backend="cpu")[0])
    except RuntimeError:
        return contextlib.nullcontext()


def is_leader() -> bool:
    """Whether this process is the one that writes logs; a process alone is."""
    return jax.process_index() == 0


def unanimous(text: str) -> bool:
    """Whether all processes, which must call it together, have the same text."""
    if jax.process_count() == 1:
        return True
    mine = np.frombuffer(hashlib.sha256(text.encode()).digest(), np.int32)
    return bool((np.asarray(multihost_utils.process_allgather(mine)) == mine).all())


def agree(number: int, flag: bool) -> tuple[int, bool]:
    """The leader's number, and whether any process has the flag; the same in every process.

    All processes must call it together.
    """
    if jax.process_count() == 1:
        return number, flag
    every = np.asarray(multihost_utils.process_allgather(np.array([number, flag], np.int32)))
    return int(every[0, 0]), bool(every[:, 1].any())

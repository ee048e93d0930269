"""Flags that say which devices, of which processes, share the work of a script."""

import jax
from absl import flags
from jax.sharding import Mesh

from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.mesh import make_mesh

_AUTO = "auto"

_DEVICES = flags.DEFINE_integer(
    "devices", 0, "Devices that share the work; 0: all, those of other processes included.", 0
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of the first of several processes, all started with the same command; `auto` finds "
    "it, and the two below, on a TPU slice or in a Slurm job.",
)
_PROCESSES = flags.DEFINE_integer("processes", None, "How many processes there are.", 1)
_PROCESS = flags.DEFINE_integer("process", None, "Number of this process, from 0.", 0)


def start() -> Mesh:
    """Joins the other processes, where there are any, and makes the mesh.

    Call it before anything is computed.

    Raises:
      UserError: flags that do not fit, or no connection.
    """
    address, processes, process = _COORDINATOR.value, _PROCESSES.value, _PROCESS.value
    if address in (None, _AUTO):
        if (processes, process) != (None, None):
            raise UserError("--processes and --process need --coordinator=HOST:PORT")
        if address == _AUTO:
            _join()
    elif processes is None or process is None or process >= processes:
        raise UserError(
            f"--coordinator={address} needs --processes and --process, which must be below it"
        )
    else:
        _join(address, processes, process)
    with validation():
        return make_mesh(_DEVICES.value)


def _join(
    address: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    try:
        jax.distributed.initialize(address, processes, process)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"--coordinator={_COORDINATOR.value}: {error}") from error

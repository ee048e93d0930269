"""Flags that say which devices, of which processes, share the work of a script."""

import os
import socket

import jax
from absl import flags

from jaxrl_guided.runtime.errors import UserError

_AUTO = "auto"

_DEVICES = flags.DEFINE_integer(
    "devices", 0, "Devices that share the work; 0: as many as divide it, of all processes.", 0
)
_COORDINATOR = flags.DEFINE_string(
    "coordinator",
    None,
    "HOST:PORT of the first of several processes, all started with the same command; `auto` finds "
    "it, and the two below, on a TPU slice or in a Slurm job.",
)
_PROCESSES = flags.DEFINE_integer("processes", None, "How many processes there are.", 1)
_PROCESS = flags.DEFINE_integer("process", None, "Number of this process, from 0.", 0)


def start() -> int:
    """Joins the other processes, where there are any; returns the devices that are asked for.

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
        _check_address(address, process)
        _join(address, processes, process)
    if _DEVICES.value and jax.process_count() > 1:
        raise UserError("--devices must be 0, all of them, where there are several processes")
    return _DEVICES.value


def _check_address(address: str, process: int) -> None:
    """Refuses what the runtime dies of: no port, and one that is taken."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise UserError(f"--coordinator={address} must be HOST:PORT")
    if process == 0:
        try:
            socket.create_server(("", int(port))).close()
        except OSError as error:
            raise UserError(
                f"--coordinator={address}: {os.strerror(error.errno or 0)}; take another port"
            ) from error


def _join(
    address: str | None = None, processes: int | None = None, process: int | None = None
) -> None:
    # Its handler swallows SIGTERM: ours tells the loop, which agrees with the other processes.
    jax.config.update("jax_enable_preemption_service", False)
    try:
        jax.distributed.initialize(address, processes, process)
    except (RuntimeError, ValueError) as error:
        raise UserError(f"--coordinator={_COORDINATOR.value}: {error}") from error

"""Keeps compiled programs on disk, so that the second start of a script is fast.

For demos and tests; never in benchmarks, where it would hide compile time.
"""

import hashlib
import pathlib
import platform

import jax
import jaxlib

from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.errors import UserError


def _host_features() -> str:
    """What compiled programs depend on: they hold instructions of the host that made them."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    features = sorted({line for line in lines if line.startswith(("flags", "Features"))})
    return "\n".join([platform.machine(), jaxlib.__version__, *(features or lines[:1])])


def enable(directory: files.PathLike) -> pathlib.Path:
    """Switches the persistent compilation cache on, in a subdirectory for this kind of host.

    Returns the subdirectory. Programs that were compiled before are not stored.

    Raises:
      UserError: the directory cannot be created.
    """
    digest = hashlib.sha256(_host_features().encode()).hexdigest()[:12]
    path = pathlib.Path(directory) / f"{platform.machine()}-{digest}"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"compile cache {path} cannot be created: {error.strerror}") from error
    jax.config.update("jax_compilation_cache_dir", str(path))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    return path

"""What a result depends on beside its configuration: code, packages and machine."""

import functools
import importlib.metadata
import os
import pathlib
import platform
import subprocess
from typing import Any

PACKAGES = ("jaxrl_guided", "jax", "jaxlib", "numpy", "flax", "optax", "orbax-checkpoint")
_NOT_RESULTS = ":(exclude,top)benchmarks/results"
_REPOSITORY = pathlib.Path(__file__).resolve().parents[2]


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(_REPOSITORY), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@functools.cache
def git_revision() -> str:
    """Commit of this checkout, with `-dirty` when files differ from it; `unknown` without git.

    That of the first call: a checkout may move on while a process works with what it had loaded.
    Results, which a grid rewrites while its cells run, do not count.
    """
    # A copy installed inside somebody's repository must not report that one's revision.
    ours = _git("ls-files", "--error-unmatch", __file__)
    revision = _git("rev-parse", "HEAD")
    if ours is None or revision is None:
        return "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ":/", _NOT_RESULTS)
    return revision + ("-dirty" if changed else "")


def packages() -> dict[str, str]:
    """Installed versions of the packages that numbers depend on."""
    found = {}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def cpu_model() -> str:
    """The processor's name as the system gives it."""
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def cores() -> list[int]:
    """Numbers of the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def snapshot() -> dict[str, Any]:
    """Everything above and the accelerators, as JSON data. Starts JAX's backend."""
    import jax

    devices = jax.devices()
    return {
        "git": git_revision(),
        "python": platform.python_version(),
        "packages": packages(),
        "cpu": cpu_model(),
        "cores": len(cores()),
        "devices": [f"{device.platform}: {device.device_kind}" for device in devices],
    }

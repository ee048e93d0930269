"""`minihack/NAME`: MiniHack's tasks as a `VectorEnv`."""

import functools
import importlib.util
from collections.abc import Sequence

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import OnError, Pool
from jaxrl_guided.envs.minihack.host import Host, HostConfig, Reward
from jaxrl_guided.envs.minihack.tasks import MAX_STEPS
from jaxrl_guided.envs.types import VectorEnv


def list_names() -> Sequence[str]:
    """MiniHack's names without its prefix and version, as `Room-5x5`."""
    return tuple(MAX_STEPS)


def make_minihack(
    environment: str,
    num_envs: int,
    *,
    members: int = 1,
    workers: int | None = None,
    timeout: float = 60.0,
    on_error: OnError = "raise",
    spares: bool = True,
    observe: Sequence[str] = HostConfig.observe,
    actions: Sequence[str] | None = None,
    reward: Reward = "sparse",
    max_steps: int | None = None,
) -> VectorEnv:
    """`num_envs` games of a task, in processes of their own.

    `info` has `success`, 1 in the step that solves the task.

    Args:
      environment: one of `list_names()`.
      members: see `make_bridge`; each has `num_envs` environments.
      workers, timeout, on_error, spares: see `Pool`; a reset takes as long as ten steps.
      observe, actions, reward, max_steps: see `HostConfig`.

    Raises:
      ValueError: an option out of range, or minihack is not installed.
    """
    config = HostConfig(observe, actions, reward, max_steps)
    check_installed(environment)
    pool = Pool(
        f"minihack/{environment}",
        functools.partial(Host, environment, config),
        num_envs * members,
        workers=workers,
        info=("success",),
        timeout=timeout,
        on_error=on_error,
        spares=spares,
    )
    return make_bridge(pool, members)


def check_installed(environment: str) -> None:
    """Raises ValueError, which says what to install, unless MiniHack is there."""
    missing = [name for name in ("minihack", "pkg_resources") if not _is_there(name)]
    if missing:
        raise ValueError(
            f"environment: 'minihack/{environment}' needs {' and '.join(missing)}; "
            "install jaxrl_guided[minihack]"
        )


def _is_there(module: str) -> bool:
    return importlib.util.find_spec(module) is not None

"""`minihack/NAME`: MiniHack's tasks as a `VectorEnv`."""

import functools
from collections.abc import Sequence

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import OnError, Pool
from jaxrl_guided.envs.minihack.host import Host, HostConfig, Reward
from jaxrl_guided.envs.minihack.tasks import MAX_STEPS
from jaxrl_guided.envs.types import VectorEnv
from jaxrl_guided.runtime.extras import check_installed


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
    check_minihack(environment)
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


def check_minihack(environment: str) -> None:
    """Raises ValueError, which says what to install, unless MiniHack is there."""
    subject = f"environment: 'minihack/{environment}'"
    check_installed(subject, ("minihack", "pkg_resources"), "minihack")

"""`metaworld/LEVEL`: Meta-World's tasks in processes of their own, as a `VectorEnv`."""

import functools
from collections.abc import Sequence

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import OnError, Pool
from jaxrl_guided.envs.metaworld.instructions import LEVELS
from jaxrl_guided.envs.types import VectorEnv


def list_names() -> Sequence[str]:
    """The levels: four categories, and every task alone."""
    return LEVELS


def make_metaworld(
    level: str,
    num_envs: int,
    *,
    tasks: Sequence[str] = (),
    distractor: bool = True,
    horizon: int = 100,
    terminate_on_success: bool = True,
    members: int = 1,
    workers: int | None = None,
    timeout: float = 60.0,
    on_error: OnError = "raise",
    spares: bool = False,
) -> VectorEnv:
    """`num_envs` tables, each with an instruction drawn uniformly at every restart.

    Args:
      level, tasks, distractor, horizon, terminate_on_success: see `MetaWorldEnv`.
      members: see `make_bridge`; each has `num_envs` environments.
      workers, timeout, on_error, spares: see `Pool`.

    Raises:
      HostEnvError: it cannot be made.
      ValueError: an argument out of range, or Meta-World is not installed.
    """
    try:
        from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
    except ImportError as error:
        raise ValueError(
            f"environment: 'metaworld/{level}' needs more packages ({error}); install "
            "jaxrl_guided[metaworld]"
        ) from error
    factory = functools.partial(
        MetaWorldEnv,
        level,
        tasks=tuple(tasks),
        distractor=distractor,
        horizon=horizon,
        terminate_on_success=terminate_on_success,
    )
    factory()  # so that a bad argument is told here, not by a process
    pool = Pool(
        f"metaworld/{level}",
        factory,
        num_envs * members,
        workers=workers,
        info=("success",),
        max_steps=horizon,
        timeout=timeout,
        on_error=on_error,
        spares=spares,
    )
    return make_bridge(pool, members)

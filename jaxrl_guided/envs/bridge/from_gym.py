"""`gym/NAME`: any environment that gymnasium knows, or comes to know by an import."""

import functools
from collections.abc import Sequence
from typing import Any

import gymnasium

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import OnError, Pool
from jaxrl_guided.envs.types import VectorEnv
from jaxrl_guided.runtime.modules import import_named


def list_names() -> Sequence[str]:
    """gymnasium's own names, as `CartPole-v1`, of what can be made with what is installed."""
    return tuple(sorted(name for name, spec in gymnasium.registry.items() if _importable(spec)))


def _importable(spec: gymnasium.envs.registration.EnvSpec) -> bool:
    """Whether the code of an environment is there; gymnasium lists many that it no longer has."""
    made_by = spec.entry_point
    if callable(made_by):  # in place of what is gone stand functions that raise
        return not getattr(made_by, "__name__", "").startswith("_raise")
    return made_by is not None and _can_load(made_by)


@functools.cache
def _can_load(entry_point: str) -> bool:
    """Whether `MODULE:CLASS` is there."""
    try:
        gymnasium.envs.registration.load_env_creator(entry_point)
    except Exception:  # whatever it is, the environment cannot be made
        return False
    return True


def knows(environment: str) -> bool:
    """Whether it can be made; `MODULE:NAME` is known once the module has been imported.

    Raises:
      ValueError: the module cannot be imported.
    """
    module, _, name = environment.rpartition(":")
    if module:
        import_named(module, f"gym/{environment}", "environment")
    try:
        gymnasium.spec(name)
    except gymnasium.error.Error:
        return False
    return True


def make_gym(
    environment: str,
    num_envs: int,
    *,
    members: int = 1,
    workers: int | None = None,
    info: Sequence[str] = (),
    max_steps: int | None = None,
    timeout: float = 60.0,
    on_error: OnError = "raise",
    spares: bool = False,
    **options: Any,
) -> VectorEnv:
    """`num_envs` environments of gymnasium, in processes of their own.

    Args:
      environment: gymnasium's name; `MODULE:NAME` imports a module that registers it.
      members: see `make_bridge`; each has `num_envs` environments.
      workers, info, max_steps, timeout, on_error, spares: see `Pool`.
      **options: of the environment.

    Raises:
      HostEnvError: it cannot be made with these options.
      ValueError: a number out of range.
    """
    if max_steps is not None:
        options["max_episode_steps"] = max_steps
    pool = Pool(
        f"gym/{environment}",
        functools.partial(gymnasium.make, environment, disable_env_checker=True, **options),
        num_envs * members,
        workers=workers,
        info=info,
        max_steps=max_steps,
        timeout=timeout,
        on_error=on_error,
        spares=spares,
    )
    return make_bridge(pool, members)

"""The registry of environments: `make("clevr/real", num_envs=256)`.

A name is `FAMILY/ENVIRONMENT`. A family is registered with a function that makes its environments
and one that lists them; what a family needs is imported when one of the two is called.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from jaxrl_guided.envs.types import VectorEnv


@dataclasses.dataclass(frozen=True)
class _Family:
    make: Callable[..., VectorEnv]
    list_names: Callable[[], Sequence[str]]
    knows: Callable[[str], bool]


_FAMILIES: dict[str, _Family] = {}


def register(
    family: str,
    make: Callable[..., VectorEnv],
    list_names: Callable[[], Sequence[str]],
    knows: Callable[[str], bool] | None = None,
) -> None:
    """Adds a family of environments.

    Args:
      family: what stands before the slash.
      make: `(environment, num_envs, **options) -> VectorEnv`.
      list_names: `() -> ` the environments, without the family.
      knows: whether there is an environment of that name; by default one that is listed.

    Raises:
      ValueError: the family exists.
    """
    if family in _FAMILIES:
        raise ValueError(f"family: '{family}' is already registered")
    _FAMILIES[family] = _Family(make, list_names, knows or (lambda name: name in list_names()))


def names() -> list[str]:
    """All names that `make` knows, as `clevr/real`."""
    return [f"{key}/{name}" for key, family in _FAMILIES.items() for name in family.list_names()]


def check(name: str) -> None:
    """Raises ValueError, listing what exists, unless `name` is an environment's."""
    key, _, environment = name.partition("/")
    if key not in _FAMILIES:
        known = [f"{family}/…" for family in _FAMILIES]
    elif not _FAMILIES[key].knows(environment):
        known = [f"{key}/{other}" for other in _FAMILIES[key].list_names()]
    else:
        return
    raise ValueError(f"environment: unknown '{name}'; choose one of {', '.join(known)}")


def make(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """The environment `name`, `num_envs` times side by side.

    Args:
      name: `FAMILY/ENVIRONMENT`, one of `names()`.
      num_envs: how many episodes run in parallel.
      **options: those of the family: of `make_clevr` and `instruction_set`, `make_gymnax`,
        `make_brax`, `make_gym`.

    Raises:
      ValueError: unknown name, or an option out of range.
      TypeError: an option that the family does not have.
    """
    check(name)
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs must be a whole number from 1, not {num_envs!r}")
    key, _, environment = name.partition("/")
    return _FAMILIES[key].make(environment, num_envs, **options)


def _make_clevr(
    level: str,
    num_envs: int,
    *,
    confounded: bool = False,
    allow_conflicts: bool = False,
    **options: Any,
) -> VectorEnv:
    from jaxrl_guided.envs.clevr.env import make_clevr
    from jaxrl_guided.envs.clevr.instructions import instruction_set

    instructions = instruction_set(level, confounded=confounded, allow_conflicts=allow_conflicts)
    return make_clevr(instructions, num_envs, **options)


def _clevr_levels() -> Sequence[str]:
    from jaxrl_guided.envs.clevr.instructions import LEVELS

    return LEVELS


register("clevr", _make_clevr, _clevr_levels)


def _make_gymnax(environment: str, num_envs: int, **options: Any) -> VectorEnv:
    from jaxrl_guided.envs.from_gymnax import make_gymnax

    return make_gymnax(environment, num_envs, **options)


def _gymnax_names() -> Sequence[str]:
    from jaxrl_guided.envs.from_gymnax import list_names

    return list_names()


def _make_brax(environment: str, num_envs: int, **options: Any) -> VectorEnv:
    from jaxrl_guided.envs.from_brax import make_brax

    return make_brax(environment, num_envs, **options)


def _brax_names() -> Sequence[str]:
    from jaxrl_guided.envs.from_brax import list_names

    return list_names()


register("gymnax", _make_gymnax, _gymnax_names)
register("brax", _make_brax, _brax_names)


def _make_gym(environment: str, num_envs: int, **options: Any) -> VectorEnv:
    from jaxrl_guided.envs.bridge.from_gym import make_gym

    return make_gym(environment, num_envs, **options)


def _gym_names() -> Sequence[str]:
    from jaxrl_guided.envs.bridge.from_gym import list_names

    return list_names()


def _gym_knows(environment: str) -> bool:
    from jaxrl_guided.envs.bridge.from_gym import knows

    return knows(environment)


register("gym", _make_gym, _gym_names, _gym_knows)

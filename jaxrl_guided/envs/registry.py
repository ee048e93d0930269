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


_FAMILIES: dict[str, _Family] = {}


def register(
    family: str, make: Callable[..., VectorEnv], list_names: Callable[[], Sequence[str]]
) -> None:
    """Adds a family of environments.

    Args:
      family: what stands before the slash.
      make: `(environment, num_envs, **options) -> VectorEnv`.
      list_names: `() -> ` the environments, without the family.

    Raises:
      ValueError: the family exists.
    """
    if family in _FAMILIES:
        raise ValueError(f"family: '{family}' is already registered")
    _FAMILIES[family] = _Family(make, list_names)


def names() -> list[str]:
    """All names that `make` knows, as `clevr/real`."""
    return [f"{key}/{name}" for key, family in _FAMILIES.items() for name in family.list_names()]


def make(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """The environment `name`, `num_envs` times side by side.

    Args:
      name: `FAMILY/ENVIRONMENT`, one of `names()`.
      num_envs: how many episodes run in parallel.
      **options: those of the family; for `clevr` see `make_clevr` and `instruction_set`.

    Raises:
      ValueError: unknown name, or an option out of range.
      TypeError: an option that the family does not have.
    """
    key, _, environment = name.partition("/")
    if key not in _FAMILIES or environment not in _FAMILIES[key].list_names():
        raise ValueError(f"environment: unknown '{name}'; choose one of {', '.join(names())}")
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs must be a whole number from 1, not {num_envs!r}")
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

"""The registry of environments: `make("clevr/real", num_envs=256)`.

A name is `FAMILY/ENVIRONMENT`. A family is registered with a function that makes its environments
and one that lists them; what a family needs is imported when one of the two is called. Before
`MODULE:FAMILY/ENVIRONMENT` is looked up the module is imported, which registers the family.
"""

import contextlib
import dataclasses
import difflib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

from jaxrl_guided.envs.types import VectorEnv
from jaxrl_guided.runtime.modules import import_named


@dataclasses.dataclass(frozen=True)
class _Family:
    make: Callable[..., VectorEnv]
    list_names: Callable[[], Sequence[str]]
    knows: Callable[[str], bool]
    on_host: bool


_FAMILIES: dict[str, _Family] = {}


def register(
    family: str,
    make: Callable[..., VectorEnv],
    list_names: Callable[[], Sequence[str]],
    knows: Callable[[str], bool] | None = None,
    on_host: bool = False,
) -> None:
    """Adds a family of environments.

    Args:
      family: what stands before the slash.
      make: `(environment, num_envs, **options) -> VectorEnv`.
      list_names: `() -> ` the environments, without the family.
      knows: whether there is an environment of that name; by default one that is listed.
      on_host: whether they are stepped by the host (`VectorEnv.host`), and `make` has the option
        `members`.

    Raises:
      ValueError: the family exists.
    """
    if family in _FAMILIES:
        raise ValueError(f"family: '{family}' is already registered")
    knows = knows or (lambda name: name in list_names())
    _FAMILIES[family] = _Family(make, list_names, knows, on_host)


def names() -> list[str]:
    """All names that `make` knows, as `clevr/real`."""
    return [f"{key}/{name}" for key, family in _FAMILIES.items() for name in family.list_names()]


def check(name: str) -> None:
    """Raises ValueError, naming what is near or what exists, unless `name` is an environment's."""
    _find(name)


def _find(name: str) -> tuple[_Family, str]:
    """The family of a name, and the environment in it; imports a module that the name says."""
    family, _, environment = name.partition("/")
    module, _, key = family.rpartition(":")
    if module:
        import_named(module, name, "environment")
    if key in _FAMILIES and _FAMILIES[key].knows(environment):
        return _FAMILIES[key], environment
    raise ValueError(f"environment: unknown '{name}'; {_advice(module, key, environment)}")


def _advice(module: str, key: str, environment: str) -> str:
    """What might have been meant."""
    known = []
    for family in [key] if key in _FAMILIES else _FAMILIES:
        with contextlib.suppress(ImportError):  # of an extra that is not installed
            known += [f"{family}/{name}" for name in _FAMILIES[family].list_names()]
    same = [name for name in known if name.partition("/")[2] in (key, environment)]
    near = same or difflib.get_close_matches(f"{key}/{environment}", known, n=3, cutoff=0.75)
    imported = f"{module}:" if module and key in _FAMILIES else ""
    if near:
        return f"did you mean {' or '.join(imported + name for name in near)}?"
    if key not in _FAMILIES:
        return f"choose one of {', '.join(f'{family}/…' for family in _FAMILIES)}"
    return f"choose one of {', '.join(imported + name for name in known)}"


def without_module(name: str) -> str:
    """`FAMILY/ENVIRONMENT` of a name, as environments call themselves."""
    family, slash, environment = name.partition("/")
    return f"{family.rpartition(':')[2]}{slash}{environment}"


def on_host(name: str) -> bool:
    """Whether the environments of that name are stepped by the host.

    Raises:
      ValueError: unknown name.
    """
    return _find(name)[0].on_host


def make(name: str, num_envs: int = 1, **options: Any) -> VectorEnv:
    """The environment `name`, `num_envs` times side by side.

    Args:
      name: `FAMILY/ENVIRONMENT`, one of `names()`; behind `MODULE:` if a module registers it.
      num_envs: how many episodes run in parallel.
      **options: those of the family: of `make_clevr` and `instruction_set`, `make_gymnax`,
        `make_brax`, `make_gym`, `make_minihack`, `make_metaworld`.

    Raises:
      ValueError: unknown name, or an option out of range.
      TypeError: an option that the family does not have.
    """
    family, environment = _find(name)
    if isinstance(num_envs, bool) or not isinstance(num_envs, int) or num_envs < 1:
        raise ValueError(f"num_envs must be a whole number from 1, not {num_envs!r}")
    return family.make(environment, num_envs, **options)


def _register_module(
    family: str, module: str, make: str, knows: str = "", on_host: bool = False
) -> None:
    """Adds the family of a module, which is imported when it is used."""

    def called(name: str) -> Callable[..., Any]:
        return lambda *arguments, **options: getattr(
            importlib.import_module(f"jaxrl_guided.envs.{module}"), name
        )(*arguments, **options)

    register(family, called(make), called("list_names"), called(knows) if knows else None, on_host)


_register_module("clevr", "clevr.family", "make_level")
_register_module("gymnax", "from_gymnax", "make_gymnax")
_register_module("brax", "from_brax", "make_brax")
_register_module("gym", "bridge.from_gym", "make_gym", "knows", on_host=True)
_register_module("minihack", "minihack.family", "make_minihack", on_host=True)
_register_module("metaworld", "metaworld.family", "make_metaworld", on_host=True)

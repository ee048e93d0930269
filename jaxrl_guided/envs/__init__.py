"""Environments behind one interface (`types.VectorEnv`), made by name with `make`.

The names are looked up when they are used: the processes of host environments import this package
and need no JAX.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxrl_guided.envs.registry import make, names, register

__all__ = ["make", "names", "register"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from jaxrl_guided.envs import registry

    return getattr(registry, name)

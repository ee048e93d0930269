"""Environments behind one interface (`types.VectorEnv`), made by name with `make`."""

from jaxrl_guided.envs.registry import make, names, register

__all__ = ["make", "names", "register"]

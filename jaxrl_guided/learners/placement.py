"""Where a population of learners lies on a mesh; a mesh of one device is no special case.

Placement decides where numbers are computed and never which: a run on many devices is the run on
one, but for the order of sums.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
from jax.sharding import Mesh, NamedSharding

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.runtime.mesh import divided, replicated

_OF_ENVIRONMENTS = ("env_state", "obs", "memory", "episodes", "reward_scale", "guidance")
"""Fields of a learner's state with environments on the first axis; in `replay` it is the second."""


@dataclasses.dataclass(frozen=True)
class Placement:
    """Members are divided among the devices where their number allows it, else environments are.

    Attributes:
      mesh: of one axis, `data`.
      members: of the population, the first axis of its state.
      num_envs: of each member.
    """

    mesh: Mesh
    members: int
    num_envs: int

    def __post_init__(self) -> None:
        if self.members % self.mesh.size and self.num_envs % self.mesh.size:
            raise ValueError(
                f"{self.mesh.size} devices divide neither {self.members} members nor num_envs "
                f"{self.num_envs}; choose multiples, or fewer devices"
            )

    @property
    def by_member(self) -> bool:
        """Whether each device has whole members."""
        return self.members % self.mesh.size == 0

    @property
    def inner(self) -> Mesh | None:
        """The mesh among whose devices each member's batches are divided, None for none."""
        return None if self.by_member else self.mesh

    def of_state(self, state: Any) -> Any:
        """Shardings for a population's state (arrays or shapes) `[members, …]`."""
        if self.by_member:
            return jax.tree.map(lambda _: divided(self.mesh), state)

        def place(field: str, leaf: Any) -> NamedSharding:
            axis = 1 if field in _OF_ENVIRONMENTS else 2 if field == "replay" else None
            if axis is None or leaf.shape[axis : axis + 1] != (self.num_envs,):
                return replicated(self.mesh)
            return divided(self.mesh, axis)

        parts = {
            field.name: jax.tree.map(
                lambda leaf, name=field.name: place(name, leaf), getattr(state, field.name)
            )
            for field in dataclasses.fields(state)
        }
        return dataclasses.replace(state, **parts)

    def init(self, init: Callable[..., Any], *arguments: PyTree) -> tuple[Any, Any]:
        """The population's state, placed, and its shardings.

        Args:
          init: makes the state of one member from its arguments.
          *arguments: pytrees of numpy arrays `[members, …]`.
        """
        start = jax.vmap(init)
        shardings = self.of_state(jax.eval_shape(start, *arguments))
        return jax.jit(start, out_shardings=shardings)(*arguments), shardings


def check_division(what: str, size: int, mesh: Mesh | None) -> None:
    """Raises ValueError where a batch of that size does not divide among the devices."""
    if mesh is not None and size % mesh.size:
        raise ValueError(f"{what} of {size} does not divide among {mesh.size} devices")


def divide(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The same arrays `[B, …]`, to be computed in parts; as they are without a mesh."""
    return tree if mesh is None else jax.lax.with_sharding_constraint(tree, divided(mesh))


def gather(mesh: Mesh | None, tree: PyTree) -> PyTree:
    """The same arrays, whole on every device; as they are without a mesh."""
    return tree if mesh is None else jax.lax.with_sharding_constraint(tree, replicated(mesh))

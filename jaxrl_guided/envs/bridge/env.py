"""Host environments as a `VectorEnv`, by callbacks inside jit and scan.

The state names, for each environment, the seed, the episode and all actions since its start: it can
be saved, and `restore` plays the open episodes again in a new process. The environments themselves
live in a pool, which moves with every step: a state can be stepped once.
"""

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.experimental import io_callback

from jaxrl_guided.envs.bridge.pool import Pool, Step
from jaxrl_guided.envs.bridge.remote import HostEnvError
from jaxrl_guided.envs.bridge.slot import Interface
from jaxrl_guided.envs.bridge.spaces import Leaf, value_at
from jaxrl_guided.envs.types import (
    Box,
    Dict,
    Discrete,
    HostSide,
    MultiDiscrete,
    PyTree,
    Space,
    TimeStep,
    VectorEnv,
)

_LARGE = 2**16
"""Bytes from which on arguments of a callback are not passed at once."""


@struct.dataclass
class HostState:
    """Where N host environments are.

    Attributes:
      seed: `u32[N]`, of each environment.
      episode: `i32[N]`, number of the open one.
      time: `i32[N]`, steps done in it.
      actions: `[N, max_steps, …]`, those of the open episode.
      clock: `i32[]`, steps since the reset; the pool's must be the same.
    """

    seed: jax.Array
    episode: jax.Array
    time: jax.Array
    actions: jax.Array
    clock: jax.Array


def make_bridge(pool: Pool, members: int = 1) -> VectorEnv:
    """The environments of a pool, which is stepped by nobody else from now on.

    A state can be stepped once, by one program at a time.

    Args:
      members: over which one `vmap` must go; they have equal shares of the environments.

    Raises:
      ValueError: the environments do not divide into so many shares.
    """
    host, shared = _Host(pool, members), pool.interface
    num_envs, action_type = host.num_envs, shared.action.dtype
    shapes = _shapes(shared, num_envs)
    call_reset = _in_order(host, host.reset, shapes[0].obs)
    call_step = _in_order(host, lambda clock, action: host.step(_one(clock), action), shapes)
    each = jnp.arange(num_envs)

    def reset(key: jax.Array) -> tuple[HostState, PyTree]:
        seeds = jax.random.bits(key, (num_envs,), jnp.uint32)
        obs = call_reset(seeds)
        zeros = jnp.zeros(num_envs, jnp.int32)
        actions = jnp.zeros((num_envs, shared.max_steps, *shared.action.shape), action_type)
        return HostState(seeds, zeros, zeros, actions, jnp.int32(0)), obs

    def advance(
        state: HostState, action: jax.Array, outcome: tuple[TimeStep, jax.Array]
    ) -> tuple[HostState, TimeStep]:
        after, episode = outcome
        return HostState(
            seed=state.seed,
            episode=episode,
            time=jnp.where(after.done, 0, state.time + 1),
            actions=state.actions.at[each, state.time].set(action.astype(action_type)),
            clock=state.clock + 1,
        ), after

    def step(state: HostState, action: jax.Array) -> tuple[HostState, TimeStep]:
        return advance(state, action, call_step(state.clock, action.astype(action_type)))

    return VectorEnv(
        pool.name,
        num_envs,
        _space(shared.observation),
        _space((shared.action,)),
        reset,
        step,
        HostSide(
            members=members,
            outcome=shapes,
            step=host.step,
            clock=lambda state: _one(state.clock),
            advance=advance,
            restore=host.restore,
            close=pool.close,
        ),
    )


class _Host:
    """A pool whose environments are divided among members, a further axis in front."""

    def __init__(self, pool: Pool, members: int):
        if members < 1 or pool.num_envs % members:
            raise ValueError(f"{pool.num_envs} environments do not divide into {members} members")
        self.pool, self.members, self.num_envs = pool, members, pool.num_envs // members

    def reset(self, seeds: Any) -> PyTree:
        """Observations `[N, …]` or `[members, N, …]`, as the seeds are."""
        axes, seeds = self._one_axis(seeds)
        obs = _nest(self.pool.interface.observation, self.pool.reset(seeds))
        return _with_axes(axes, obs)

    def step(self, clock: int, action: Any) -> tuple[TimeStep, np.ndarray]:
        """A step, and the numbers of the episodes that are open after it."""
        pool, shared = self.pool, self.pool.interface
        if clock != pool.clock:
            raise HostEnvError(
                f"{pool.name}: the state is of step {clock}, the environments are at step "
                f"{pool.clock}; a state can be stepped once, unless it is restored"
            )
        axes, action = self._one_axis(action, len(shared.action.shape))
        step = pool.step(action)
        return _with_axes(axes, (_time_step(shared.observation, step), step.episode))

    def restore(self, state: HostState, obs: PyTree) -> None:
        """Plays the open episodes of a saved state again; says which could not be."""
        shared = self.pool.interface
        leaves = {
            leaf.name: self._one_axis(value_at(obs, leaf.path), len(leaf.shape))[1]
            for leaf in shared.observation
        }
        seed, episode, time = (
            self._one_axis(part)[1] for part in (state.seed, state.episode, state.time)
        )
        actions = self._one_axis(state.actions, 1 + len(shared.action.shape))[1]
        lost = self.pool.restore(seed, episode, time, actions, leaves, _one(state.clock))
        for index, reason in lost.items():
            said = f"{self.pool.name}: the episode of environment {index} starts anew: {reason}"
            print(said, file=sys.stderr)

    def _one_axis(self, array: Any, trailing: int = 0) -> tuple[tuple[int, ...], np.ndarray]:
        """The axes before the trailing ones, and the array with one in their place."""
        array = np.asarray(array)
        axes = array.shape[: array.ndim - trailing]
        if math.prod(axes) != self.pool.num_envs:
            raise HostEnvError(
                f"{self.pool.name} was made for {self.members} members of {self.num_envs} "
                f"environments under one vmap, not for {axes}"
            )
        return axes, array.reshape(-1, *array.shape[len(axes) :])


def _with_axes(axes: tuple[int, ...], tree: PyTree) -> PyTree:
    """Arrays `[environments of all members, …]` as `[*axes, …]`."""
    return jax.tree.map(lambda x: x.reshape(*axes, *x.shape[1:]), tree)


def _dispatches_ahead() -> bool:
    """Whether programs on a CPU are started while others run."""
    ahead = jax.config.values["jax_cpu_enable_async_dispatch"]
    return jax.default_backend() == "cpu" and bool(ahead)


def _one(clock: Any) -> int:
    """The number that all members have in common."""
    return int(np.ravel(np.asarray(clock))[0])


def _in_order(host: _Host, function: Callable[..., PyTree], shapes: PyTree) -> Callable[..., Any]:
    """The host's function as a part of programs, called once each time and in their order.

    It raises ValueError for arguments that hang programs on a CPU; when it is called, not when it
    is traced, since shapes are asked of environments which the host's loop then steps.
    """

    def ordered(shapes: PyTree, arguments: Sequence[jax.Array]) -> Any:
        size = sum(x.size * x.dtype.itemsize for x in arguments)
        hangs = size >= _LARGE and _dispatches_ahead()

        def refuse(*_: Any) -> PyTree:
            raise ValueError(
                f"{host.pool.name}: callbacks with {size:,} bytes of actions hang on a CPU beside "
                "other work: call jax.config.update('jax_cpu_enable_async_dispatch', False) before "
                "anything else of JAX, or step them by the host's loop (learners.on_host)"
            )

        return io_callback(refuse if hangs else function, shapes, *arguments, ordered=True)

    @jax.custom_batching.custom_vmap
    def call(*arguments: jax.Array) -> PyTree:
        return ordered(shapes, arguments)

    @call.def_vmap
    def _all(axis_size: int, in_batched: list[bool], *arguments: jax.Array) -> Any:
        members = host.members
        if axis_size != members:
            raise ValueError(
                f"{host.pool.name} runs on the host and was made for {members} members, not for a "
                f"vmap over {axis_size}, of seeds or anything else: make it with "
                f"members={axis_size}"
            )
        arguments = tuple(
            x if batched else jnp.broadcast_to(x, (members, *x.shape))
            for x, batched in zip(arguments, in_batched, strict=True)
        )
        of_all = jax.tree.map(lambda x: jax.ShapeDtypeStruct((members, *x.shape), x.dtype), shapes)
        found = ordered(of_all, arguments)
        return found, jax.tree.map(lambda _: True, found)

    return call


def _shapes(shared: Interface, num_envs: int) -> tuple[TimeStep, jax.ShapeDtypeStruct]:
    """What a step gives, and the numbers of the open episodes."""

    def of(dtype: Any, shape: tuple[int, ...] = ()) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct((num_envs, *shape), dtype)

    obs = _nest(
        shared.observation, {leaf.name: of(leaf.dtype, leaf.shape) for leaf in shared.observation}
    )
    info = {name: of(jnp.float32) for name in shared.info}
    step: Any = TimeStep(
        obs=obs,
        reward=cast(Any, of(jnp.float32)),
        terminated=cast(Any, of(jnp.bool_)),
        truncated=cast(Any, of(jnp.bool_)),
        final_obs=obs,
        info=cast(Any, info | {"restarted": of(jnp.bool_)}),
    )
    return step, of(jnp.int32)


def _time_step(observation: Sequence[Leaf], step: Step) -> TimeStep:
    """The pool's step as the library's, its arrays still numpy's."""
    arrays: Any = step
    return TimeStep(
        obs=_nest(observation, step.obs),
        reward=arrays.reward,
        terminated=arrays.terminated,
        truncated=arrays.truncated,
        final_obs=_nest(observation, step.final_obs),
        info={**arrays.info, "restarted": arrays.restarted},
    )


def _nest(observation: Sequence[Leaf], leaves: Mapping[str, Any]) -> PyTree:
    """Named leaves as the nest that the space says."""
    if not observation[0].path:
        return leaves[""]
    tree: dict[str, Any] = {}
    for leaf in observation:
        part = tree
        for name in leaf.path[:-1]:
            part = part.setdefault(name, {})
        part[leaf.path[-1]] = leaves[leaf.name]
    return tree


def _space(leaves: Sequence[Leaf]) -> Space:
    """The library's space of the leaves."""
    nest = _nest(leaves, {leaf.name: _leaf_space(leaf) for leaf in leaves})
    return _dicts(nest)


def _dicts(nest: Any) -> Space:
    if not isinstance(nest, dict):
        return cast(Space, nest)
    return Dict({name: _dicts(part) for name, part in nest.items()})


def _leaf_space(leaf: Leaf) -> Space:
    if leaf.kind == "discrete":
        return Discrete(int(np.max(leaf.high - leaf.low)) + 1, leaf.shape)
    if leaf.kind == "multi_discrete":
        return MultiDiscrete(tuple((leaf.high - leaf.low + 1).tolist()))
    low, high = (_bound(np.asarray(bound)) for bound in (leaf.low, leaf.high))
    return Box(leaf.shape, low, high, jnp.dtype(leaf.dtype))


def _bound(values: np.ndarray) -> float | np.ndarray:
    """One number where all are alike."""
    same = values.size > 0 and bool((values == values.flat[0]).all())
    return float(values.flat[0]) if same else values.astype(np.float32)

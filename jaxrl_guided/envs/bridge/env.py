"""Host environments as a `VectorEnv`, by callbacks inside jit and scan.

The state names, for each environment, the seed, the episode and all actions since its start: it can
be saved, and `restore` plays the open episodes again in a new process. The environments themselves
live in a pool, which moves with every step: a state can be stepped once.
"""

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
    MultiDiscrete,
    PyTree,
    Space,
    TimeStep,
    VectorEnv,
)


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


def make_bridge(pool: Pool) -> VectorEnv:
    """The environments of a pool, which is stepped by nobody else from now on.

    A state can be stepped once, by one program at a time; `vmap` over states is refused.
    """
    name, num_envs = pool.name, pool.num_envs
    shared = pool.interface
    each = jnp.arange(num_envs)

    def host_reset(seeds: np.ndarray) -> PyTree:
        return _nest(shared.observation, pool.reset(np.asarray(seeds)))

    def host_step(clock: np.ndarray, action: np.ndarray) -> tuple[TimeStep, np.ndarray]:
        if int(clock) != pool.clock:
            raise HostEnvError(
                f"{name}: the state is of step {int(clock)}, the environments are at step "
                f"{pool.clock}; a state can be stepped once, unless it is restored"
            )
        return _time_step(shared.observation, (step := pool.step(np.asarray(action)))), step.episode

    shapes = _shapes(shared, num_envs)
    call_reset = _in_order(name, host_reset, shapes[0].obs)
    call_step = _in_order(name, host_step, shapes)

    def reset(key: jax.Array) -> tuple[HostState, PyTree]:
        seeds = jax.random.bits(key, (num_envs,), jnp.uint32)
        obs = call_reset(seeds)
        zeros = jnp.zeros(num_envs, jnp.int32)
        action = shared.action
        actions = jnp.zeros((num_envs, shared.max_steps, *action.shape), action.dtype)
        return HostState(seeds, zeros, zeros, actions, jnp.int32(0)), obs

    def step(state: HostState, action: jax.Array) -> tuple[HostState, TimeStep]:
        action = action.astype(shared.action.dtype)
        after, episode = call_step(state.clock, action)
        return HostState(
            seed=state.seed,
            episode=episode,
            time=jnp.where(after.done, 0, state.time + 1),
            actions=state.actions.at[each, state.time].set(action),
            clock=state.clock + 1,
        ), after

    def restore(state: HostState, obs: PyTree) -> None:
        given_up = pool.restore(
            np.asarray(state.seed),
            np.asarray(state.episode),
            np.asarray(state.time),
            np.asarray(state.actions),
            _leaves(shared.observation, obs),
        )
        pool.clock = int(state.clock)
        for index, reason in given_up.items():
            said = f"{name}: the episode of environment {index} starts anew: {reason}"
            print(said, file=sys.stderr)

    return VectorEnv(
        name,
        num_envs,
        _space(shared.observation),
        _space((shared.action,)),
        reset,
        step,
        True,
        restore,
        pool.close,
    )


def _in_order(name: str, function: Callable[..., PyTree], shapes: PyTree) -> Callable[..., Any]:
    """The host's function as a part of programs, called once each time and in their order."""

    @jax.custom_batching.custom_vmap
    def call(*arguments: jax.Array) -> PyTree:
        return io_callback(function, shapes, *arguments, ordered=True)

    @call.def_vmap
    def _refuse(axis_size: int, in_batched: list[bool], *arguments: jax.Array) -> Any:
        raise ValueError(
            f"{name} runs on the host and cannot be vmapped, over seeds or anything else: give "
            "each seed environments of its own, or all of them one larger number of environments"
        )

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


def _leaves(observation: Sequence[Leaf], tree: PyTree) -> dict[str, np.ndarray]:
    """The reverse of `_nest`."""
    return {leaf.name: np.asarray(value_at(tree, leaf.path)) for leaf in observation}


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
        return Discrete(int(leaf.high - leaf.low) + 1)
    if leaf.kind == "multi_discrete":
        return MultiDiscrete(tuple((leaf.high - leaf.low + 1).tolist()))
    low, high = (_bound(np.asarray(bound)) for bound in (leaf.low, leaf.high))
    return Box(leaf.shape, low, high, jnp.dtype(leaf.dtype))


def _bound(values: np.ndarray) -> float | np.ndarray:
    """One number where all are alike."""
    same = values.size > 0 and bool((values == values.flat[0]).all())
    return float(values.flat[0]) if same else values.astype(np.float32)

"""From one environment of a functional library to a `VectorEnv` with restarts and a time limit."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.population import any_of_all
from jaxrl_guided.envs.types import (
    Box,
    Dict,
    Discrete,
    MultiDiscrete,
    PyTree,
    Space,
    TimeStep,
    VectorEnv,
    map_leaves,
)


@struct.dataclass
class Outcome:
    """What one step of one environment gives.

    Attributes:
      obs: what the step led to, before any restart.
      reward: a number.
      terminated: the task has ended.
      truncated: a limit of the environment's own has cut the episode.
      info: named arrays, the same names in every step.
    """

    obs: PyTree
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    info: dict[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class SingleEnv:
    """One environment: pure functions, episodes end and do not restart.

    Attributes:
      reset: `key -> (state, obs)`.
      step: `(key, state, action) -> (state, Outcome)`.
    """

    reset: Callable[[jax.Array], tuple[PyTree, PyTree]]
    step: Callable[[jax.Array, PyTree, jax.Array], tuple[PyTree, Outcome]]


@struct.dataclass
class VectorState:
    """State of N environments.

    Attributes:
      inner: pytree `[N, …]`, the states of the environments.
      time: `i32[N]`, steps done in the open episode.
      first: pytree `[N, …]` of states and observations that every episode of an environment starts
        from; None where each starts anew.
      key: draws steps and restarts.
    """

    inner: PyTree
    time: jax.Array
    first: PyTree
    key: jax.Array


def vectorise(
    name: str,
    single: SingleEnv,
    num_envs: int,
    observation_space: Space,
    action_space: Space,
    max_steps: int | None = None,
    cached_reset: bool = False,
) -> VectorEnv:
    """Run `num_envs` of them side by side.

    States and observations get one type each, the wider of what reset and step give, so that a loop
    over steps compiles once. A restart costs something only in steps in which an episode ends (all
    environments are reset then, and the finished ones take what they need). An episode that ends
    and reaches the limit in the same step is terminated, not truncated.

    Args:
      max_steps: episodes are truncated after so many steps; None leaves it to the environment.
      cached_reset: every episode of an environment starts where its first one started: right only
        where starts are all alike or too dear to be drawn.

    Raises:
      ValueError: `num_envs` or `max_steps` is not a whole number from 1, or observations are not
        what their space says.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs must be at least 1, not {num_envs}")
    if max_steps is not None:
        check_max_steps(max_steps)
    if not isinstance(cached_reset, bool):
        raise ValueError(f"cached_reset must be True or False, not {cached_reset!r}")
    state_like, obs_like = _common_types(single, action_space)
    _check_observations(name, observation_space, obs_like)

    def reset_all(key: jax.Array) -> tuple[PyTree, PyTree]:
        inner, obs = jax.vmap(single.reset)(jax.random.split(key, num_envs))
        return _cast(inner, state_like), _cast(obs, obs_like)

    def reset(key: jax.Array) -> tuple[VectorState, PyTree]:
        key, start_key = jax.random.split(key)
        inner, obs = reset_all(start_key)
        first = (inner, obs) if cached_reset else None
        return VectorState(inner, jnp.zeros(num_envs, jnp.int32), first, key), obs

    def step(state: VectorState, action: jax.Array) -> tuple[VectorState, TimeStep]:
        key, step_key, start_key = jax.random.split(state.key, 3)
        inner, out = jax.vmap(single.step)(
            jax.random.split(step_key, num_envs), state.inner, action
        )
        inner, final_obs = _cast(inner, state_like), _cast(out.obs, obs_like)
        time = state.time + 1
        terminated, truncated = out.terminated.astype(bool), out.truncated.astype(bool)
        if max_steps is not None:
            truncated |= time >= max_steps
        done = terminated | truncated
        reached = (inner, final_obs)
        if cached_reset:
            starts = state.first
        else:
            starts = jax.lax.cond(
                any_of_all(done),
                lambda k, _: reset_all(k),
                lambda _, same: same,
                start_key,
                reached,
            )
        inner, obs = jax.tree.map(lambda new, old: _where(done, new, old), starts, reached)
        state = dataclasses.replace(state, inner=inner, time=jnp.where(done, 0, time), key=key)
        return state, TimeStep(
            obs=obs,
            reward=out.reward.astype(jnp.float32),
            terminated=terminated,
            truncated=truncated & ~terminated,
            final_obs=final_obs,
            info=out.info,
        )

    return VectorEnv(name, num_envs, observation_space, action_space, reset, step)


def check_max_steps(max_steps: int) -> None:
    """Raises ValueError unless it is a whole number from 1."""
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise ValueError(f"max_steps must be a whole number from 1, not {max_steps!r}")


def _check_observations(name: str, space: Space, obs: PyTree) -> None:
    """Raises ValueError where shapes or names differ: a normaliser would broadcast in silence."""

    def check(leaf_space: Box | Discrete | MultiDiscrete, leaf: jax.ShapeDtypeStruct) -> None:
        if leaf.shape != leaf_space.shape:
            raise ValueError(
                f"{name}: an observation of shape {leaf.shape} does not lie in {leaf_space}"
            )

    try:
        map_leaves(check, space, obs)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{name}: observations {obs} do not lie in {space}") from error


def _common_types(single: SingleEnv, action_space: Space) -> tuple[PyTree, PyTree]:
    """Types of states and observations that hold what reset and step give.

    Raises:
      ValueError: reset and step disagree in structure or shapes.
    """
    key = jax.eval_shape(lambda: jax.random.key(0))
    start = jax.eval_shape(single.reset, key)
    assert not isinstance(action_space, Dict)
    action = jax.ShapeDtypeStruct(action_space.shape, action_space.dtype)
    state, out = jax.eval_shape(single.step, key, start[0], action)
    after = (state, out.obs)
    at_reset, at_step = (str(jax.tree.structure(tree)) for tree in (start, after))
    if at_reset != at_step:
        raise ValueError(
            f"reset and step must give the same nest of arrays, not {at_reset} and {at_step}"
        )

    def wider(a: jax.ShapeDtypeStruct, b: jax.ShapeDtypeStruct) -> jax.ShapeDtypeStruct:
        if a.shape != b.shape:
            raise ValueError(f"reset gives an array of shape {a.shape} where step gives {b.shape}")
        dtype = a.dtype if a.dtype == b.dtype else jnp.promote_types(a.dtype, b.dtype)
        return jax.ShapeDtypeStruct(a.shape, dtype)

    return jax.tree.map(wider, start, after)


def _cast(tree: PyTree, like: PyTree) -> PyTree:
    """The same values in the types of `like`, none of them weak."""
    return jax.tree.map(lambda x, to: jnp.asarray(x, to.dtype), tree, like)


def _where(done: jax.Array, new: jax.Array, old: jax.Array) -> jax.Array:
    return jnp.where(done.reshape(done.shape + (1,) * (new.ndim - 1)), new, old)

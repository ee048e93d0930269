"""Evaluation of a policy: one episode in each environment, inside jit."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.population import any_of_all
from jaxrl_guided.envs.types import Box, Dict, Discrete, PyTree, TimeStep, VectorEnv
from jaxrl_guided.learners.episodes import succeeded
from jaxrl_guided.runtime.ranges import COUNT, INT32, check


@dataclasses.dataclass(frozen=True)
class EvaluationConfig:
    """How policies are judged, each on the same episodes.

    Attributes:
      episodes: of the final evaluation, for each seed.
      curve_points: evaluations on the way, equally spaced; checkpoints are saved with them.
      curve_episodes: episodes of each of these.
    """

    episodes: int = 1000
    curve_points: int = 20
    curve_episodes: int = 200

    def __post_init__(self) -> None:
        check(self, COUNT, "episodes", "curve_points", "curve_episodes")
        check(self, INT32, "episodes", "curve_points", "curve_episodes")


@struct.dataclass
class EpisodeResults:
    """N episodes, the first of each environment after a reset.

    Attributes:
      returns: `f32[N]`, undiscounted.
      length: `i32[N]`.
      success: `bool[N]`, `info["success"]` was true in some step.
      success_at_end: `bool[N]`, it was true in the last step.
      finished: `bool[N]`, the episode ended before the cap.
    """

    returns: jax.Array
    length: jax.Array
    success: jax.Array
    success_at_end: jax.Array
    finished: jax.Array


Act = Callable[..., tuple[PyTree, jax.Array]]
"""`(memory, key, obs [N, …]) -> (memory, action [N, …])`, its parameters fixed."""


def evaluate(
    env: VectorEnv,
    act: Act,
    key: jax.Array,
    max_steps: int,
    memory: PyTree = (),
    until_success: bool = False,
) -> EpisodeResults:
    """Run `env.num_envs` episodes, each for at most `max_steps` steps.

    Only the first episode of an environment counts, so that short episodes do not count more often
    than long ones. The number of steps is that of the longest episode.

    Args:
      act: with its parameters and statistics frozen.
      memory: what `act` remembers at the start of the episodes.
      until_success: returns and lengths stop at the first success, for an environment that goes
        on after it: one run then gives what a terminating environment would, and whether the
        success lasted.

    Raises:
      ValueError: `max_steps` is not positive.
    """
    if max_steps < 1:
        raise ValueError(f"max_steps must be positive, not {max_steps}")

    def unfinished(carry: PyTree) -> jax.Array:
        step, *_, results = carry
        return (step < max_steps) & any_of_all(~results.finished)

    def advance(carry: PyTree) -> PyTree:
        count, env_state, carry, results = carry
        carry, action = choose_action(act, carry)
        env_state, step = env.step(env_state, action)
        return count + 1, env_state, *count_step(carry, results, step, until_success)

    start = (jnp.int32(0), *start_evaluation(env, key, memory))
    return jax.lax.while_loop(unfinished, advance, start)[-1]


def start_evaluation(
    env: VectorEnv, key: jax.Array, memory: PyTree
) -> tuple[PyTree, PyTree, EpisodeResults]:
    """The environments' state, what `choose_action` carries, and results without a step."""
    reset_key, key = jax.random.split(key)
    env_state, obs = env.reset(reset_key)
    flags = jnp.zeros(env.num_envs, jnp.bool_)
    results = EpisodeResults(
        jnp.zeros(env.num_envs), jnp.zeros(env.num_envs, jnp.int32), flags, flags, flags
    )
    return env_state, (key, memory, obs), results


def choose_action(act: Act, carry: PyTree) -> tuple[PyTree, jax.Array]:
    """What is done before a step: what is carried on, and the actions."""
    key, memory, obs = carry
    key, act_key = jax.random.split(key)
    memory, action = act(memory, act_key, obs)
    return (key, memory), action


def count_step(
    carry: PyTree, results: EpisodeResults, step: TimeStep, until_success: bool
) -> tuple[PyTree, EpisodeResults]:
    """What is done after a step, with what `choose_action` carries on."""
    running = ~results.finished
    counted = running & ~results.success if until_success else running
    success = succeeded(step)
    results = EpisodeResults(
        returns=results.returns + jnp.where(counted, step.reward, 0.0),
        length=results.length + counted,
        success=results.success | (running & success),
        success_at_end=jnp.where(running, success, results.success_at_end),
        finished=results.finished | step.done,
    )
    return (*carry, step.obs), results


def uniform_action(env: VectorEnv, key: jax.Array) -> jax.Array:
    """Uniform random actions `[N, …]`; standard normal numbers in a space without bounds."""
    space = env.action_space
    assert not isinstance(space, Dict)
    shape = (env.num_envs, *space.shape)
    if not isinstance(space, Box):
        sizes = space.n if isinstance(space, Discrete) else jnp.asarray(space.sizes)
        return jax.random.randint(key, shape, 0, sizes, space.dtype)
    if space.bounded:
        return jax.random.uniform(key, shape, space.dtype, space.low, space.high)
    return jax.random.normal(key, shape, space.dtype)

"""Judging the policies of a training run on episodes that training never sees."""

import functools
from collections.abc import Callable

import jax
import numpy as np

from jaxrl_guided.envs.types import Dict, PyTree, VectorEnv
from jaxrl_guided.learners.build import Job
from jaxrl_guided.learners.evaluate import EpisodeResults, evaluate, stateless, uniform_action
from jaxrl_guided.learners.job_config import EVALUATION_SEED, TrainConfig
from jaxrl_guided.runtime.mesh import replicated


def make_judge(
    job: Job, episodes: int, sampled: bool = True
) -> Callable[[PyTree], dict[str, list[float]]]:
    """A function from the policies of all seeds to their numbers, a list over seeds each.

    `return`, `length` and, where the environment reports it, `success` are means over episodes of
    greedy actions; `sampled_return` is that of sampled ones, where it is asked for.
    """
    config, learner = job.config, job.learner
    env = config.make_env(episodes)
    memory = learner.memory(episodes)

    def run(policy: PyTree) -> dict[str, jax.Array]:
        def play(greedy: bool) -> EpisodeResults:
            act = functools.partial(learner.act, policy, greedy=greedy)
            key = jax.random.key(EVALUATION_SEED)
            return evaluate(env, act, key, config.evaluation.max_steps, memory)

        results = play(greedy=True)
        numbers = {"return": results.returns, "length": results.length}
        if reports_success(env):
            numbers["success"] = results.success
        if sampled:
            numbers["sampled_return"] = play(greedy=False).returns
        return {name: values.mean() for name, values in numbers.items()}

    program = jax.jit(jax.vmap(run), out_shardings=replicated(job.placement.mesh))
    return lambda policy: {k: np.asarray(v).tolist() for k, v in program(policy).items()}


def judge_random(config: TrainConfig) -> dict[str, list[float]]:
    """Returns of uniform random actions on the episodes of the final evaluation."""
    env = config.make_env(config.evaluation.episodes)

    def choose(key: jax.Array, obs: PyTree) -> jax.Array:
        del obs
        return uniform_action(env, key)

    def run(key: jax.Array) -> jax.Array:
        results = evaluate(env, stateless(choose), key, config.evaluation.max_steps)
        return results.returns.mean()

    return {"return": [float(jax.jit(run)(jax.random.key(EVALUATION_SEED)))]}


def reports_success(env: VectorEnv) -> bool:
    """Whether `info` has `success`."""
    assert not isinstance(env.action_space, Dict)
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    shape = (env.num_envs, *env.action_space.shape)
    action = jax.ShapeDtypeStruct(shape, env.action_space.dtype)
    return "success" in jax.eval_shape(env.step, state, action)[1].info

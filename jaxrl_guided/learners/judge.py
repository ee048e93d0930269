"""Judging the policies of a training run on episodes that training never sees."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrl_guided.envs.types import Dict, PyTree, VectorEnv
from jaxrl_guided.learners.build import Job
from jaxrl_guided.learners.evaluate import Act, EpisodeResults, uniform_action
from jaxrl_guided.learners.job_config import EVALUATION_SEED
from jaxrl_guided.learners.members import make_player
from jaxrl_guided.runtime.mesh import replicated


def make_judge(
    job: Job, episodes: int, sampled: bool = True
) -> Callable[[PyTree], dict[str, list[float]]]:
    """A function from the policies of all seeds to their numbers, a list over seeds each.

    `return`, `length` and, where the environment reports it, `success` are means over episodes of
    greedy actions; `sampled_return` is that of sampled ones, where it is asked for.
    """
    env = _environments(job, episodes)
    tells_success = reports_success(env)
    memory = job.learner.memory(env.num_envs)
    play, play_sampled = (
        _player(job, env, functools.partial(job.learner.act, greedy=greedy), memory, episodes)
        for greedy in (True, False)
    )

    def judge(policies: PyTree) -> dict[str, list[float]]:
        results = play(policies)
        numbers = {"return": results.returns, "length": results.length}
        if tells_success:
            numbers["success"] = results.success
        if sampled:
            numbers["sampled_return"] = play_sampled(policies).returns
        return {name: values.mean(axis=1).tolist() for name, values in numbers.items()}

    return judge


def judge_random(job: Job) -> dict[str, list[float]]:
    """Means of uniform random actions over the episodes of the final evaluation, as lists of one.

    `return` and, where the environment reports it, `success`.
    """
    episodes = job.config.evaluation.episodes
    env = _environments(job, episodes)

    def choose(policy: PyTree, memory: PyTree, key: jax.Array, obs: PyTree) -> Any:
        del policy, obs
        return memory, uniform_action(env, key)

    members = 1 if env.host is None else env.host.members
    results = _player(job, env, choose, (), episodes)(np.zeros(members))
    floor = {"return": [float(results.returns[0].mean())]}
    if reports_success(env):
        floor["success"] = [float(results.success[0].mean())]
    return floor


def _environments(job: Job, episodes: int) -> VectorEnv:
    return job.config.make_env(episodes) if job.judged is None else job.judged


def _player(
    job: Job, env: VectorEnv, act: Act, memory: PyTree, episodes: int
) -> Callable[[PyTree], EpisodeResults]:
    """`policies [members, …] -> EpisodeResults [members, episodes]`, always the same episodes."""
    shardings = replicated(job.placement.mesh) if env.host is None else None
    steps = job.config.evaluation.max_steps
    play = make_player(env, act, episodes, steps, memory, shardings=shardings)
    return lambda policies: play(policies, jax.random.key(EVALUATION_SEED))


def reports_success(env: VectorEnv) -> bool:
    """Whether `info` has `success`."""
    assert not isinstance(env.action_space, Dict)
    state, _ = jax.eval_shape(env.reset, jax.random.key(0))
    shape = (env.num_envs, *env.action_space.shape)
    action = jax.ShapeDtypeStruct(shape, env.action_space.dtype)
    return "success" in jax.eval_shape(env.step, state, action)[1].info

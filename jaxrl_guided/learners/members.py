"""All members of a population at once: in one program, or by a loop where the host steps.

Members are the first axis of states and policies; each has the environments of its own.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.learners.evaluate import Act, EpisodeResults, evaluate
from jaxrl_guided.learners.on_host import make_chunk_on_host, make_evaluation_on_host
from jaxrl_guided.learners.ppo import PPO
from jaxrl_guided.learners.sac import SAC
from jaxrl_guided.learners.train import Chunk, make_chunk

Player = Callable[[PyTree, jax.Array], EpisodeResults]
"""`(who acts, of each member; key) -> results [members, episodes]`, of numpy arrays."""


def make_training(
    env: VectorEnv, learner: PPO | SAC, max_iterations: int = 256, shardings: Any = None
) -> Chunk:
    """The loop of training; its second argument is a tuple, the last arguments of `iterate`.

    Args:
      max_iterations, shardings: see `make_chunk`.
    """
    if env.host is not None:
        return make_chunk_on_host(env, learner, max_iterations)

    def iterate(state: Any, more: PyTree) -> Any:
        return learner.iterate(state, *more)

    return make_chunk(jax.vmap(iterate, in_axes=(0, None)), max_iterations, shardings)


def restore(env: VectorEnv, state: Any) -> None:
    """Brings environments that the host steps to where a learner's state says."""
    if env.host is not None:
        env.host.restore(state.env_state, state.obs)


def make_player(
    env: VectorEnv,
    act: Act,
    episodes: int,
    max_steps: int,
    memory: PyTree = (),
    *,
    until_success: bool = False,
    axes: PyTree = 0,
    shardings: Any = None,
) -> Player:
    """Plays so many episodes of each member, the same ones at every call with the same key.

    Environments that are fewer are played again, from another key.

    Args:
      act: `(who, memory, key, obs [N, …]) -> (memory, action [N, …])`, of one member.
      max_steps, memory, until_success: see `evaluate`.
      axes: of the members in who acts, as `vmap` has it.
      shardings: of the results.
    """
    play: Player
    if env.host is not None:
        play = make_evaluation_on_host(env, act, max_steps, memory, until_success, axes)
    else:

        def run(who: PyTree, key: jax.Array) -> EpisodeResults:
            return evaluate(env, functools.partial(act, who), key, max_steps, memory, until_success)

        play = jax.jit(jax.vmap(run, in_axes=(axes, None)), out_shardings=shardings)

    def rounds(who: PyTree, key: jax.Array) -> EpisodeResults:
        count = math.ceil(episodes / env.num_envs)
        found = [play(who, jax.random.fold_in(key, i) if i else key) for i in range(count)]
        return jax.tree.map(lambda *x: np.concatenate(x, axis=1)[:, :episodes], *found)

    return rounds

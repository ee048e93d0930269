"""Demonstrations beside one's own experience, half and half (RLPD, arXiv 2302.02948)."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.dataset import Episodes, Observations
from jaxrl_guided.envs.types import Dict, PyTree, VectorEnv
from jaxrl_guided.learners.replay import Replay, Steps
from jaxrl_guided.networks.observations import INSTRUCTION
from jaxrl_guided.networks.soft import SoftNetwork


def demonstrations(episodes: Episodes, env: VectorEnv, network: SoftNetwork) -> Replay:
    """The steps of a dataset as a full ring of one environment, for `SAC.iterate`.

    An environment that gives instructions gets those of the episodes, where the observations are
    its states alone.

    Raises:
      ValueError: the episodes are not of such an environment.
    """
    ends = np.cumsum(episodes.lengths) - 1
    following = np.minimum(np.arange(episodes.num_steps) + 1, episodes.num_steps - 1)

    def moved(now: np.ndarray, final: np.ndarray) -> np.ndarray:
        after = np.asarray(now)[following]
        after[ends] = final
        return after

    texts = np.repeat(episodes.instruction, episodes.lengths)
    final = episodes.final_observations
    obs = _observation(env, episodes.observations, texts)
    next_obs = _observation(env, jax.tree.map(moved, episodes.observations, final), texts)
    _check(env, obs, episodes.actions)
    space = env.action_space
    assert not isinstance(space, Dict)
    terminated = np.asarray(episodes.terminated)
    steps = Steps(
        obs=obs,
        action=network.from_env(jnp.asarray(episodes.actions, space.dtype)),
        reward=jnp.asarray(episodes.rewards, jnp.float32),
        terminated=jnp.asarray(terminated),
        done=jnp.asarray(terminated | np.asarray(episodes.truncated)),
        next_obs=next_obs,
    )
    steps = jax.tree.map(lambda x: x[:, None], steps)
    return Replay(steps, jnp.int32(episodes.num_steps))


def _observation(env: VectorEnv, recorded: Observations, texts: np.ndarray) -> PyTree:
    """Observations `[M, …]` as the environment gives them."""
    space = env.observation_space
    if isinstance(space, Dict) and INSTRUCTION in space.spaces and not isinstance(recorded, dict):
        (other,) = set(space.spaces) - {INSTRUCTION}
        recorded = {other: recorded, INSTRUCTION: texts}
    _, like = jax.eval_shape(env.reset, jax.random.key(0))
    same = str(jax.tree.structure(recorded)) == str(jax.tree.structure(like))
    if not same:
        raise ValueError(f"demonstrations have other observations than {env.name}: {space}")
    return jax.tree.map(lambda x, to: jnp.asarray(np.asarray(x), to.dtype), recorded, like)


def _check(env: VectorEnv, obs: PyTree, actions: np.ndarray) -> None:
    """Raises ValueError where shapes are not those of the environment."""
    _, like = jax.eval_shape(env.reset, jax.random.key(0))
    found = [x.shape[1:] for x in (*jax.tree.leaves(obs), actions)]
    assert not isinstance(env.action_space, Dict)
    wanted = [x.shape[1:] for x in jax.tree.leaves(like)] + [env.action_space.shape]
    if found != wanted:
        raise ValueError(f"demonstrations have shapes {found}, {env.name} has {wanted}")

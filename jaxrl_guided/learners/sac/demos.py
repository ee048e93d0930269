"""Demonstrations beside one's own experience, half and half (RLPD, arXiv 2302.02948)."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.dataset import Episodes, Observations
from jaxrl_guided.envs.types import Box, Dict, Discrete, PyTree, Space, VectorEnv, map_leaves
from jaxrl_guided.learners.replay import Replay, Steps
from jaxrl_guided.networks.observations import INSTRUCTION
from jaxrl_guided.networks.soft import SoftNetwork

_DECISIVE = ("reward",)
"""Options that a dataset names and that change what its steps are worth."""


def check_origin(episodes: Episodes, env: str, options: Mapping[str, Any]) -> None:
    """Raises ValueError where episodes were made elsewhere, or with other options."""
    made = episodes.metadata
    if made["env"] != env:
        raise ValueError(f"demonstrations are of {made['env']}, not of {env}")
    for name in {*options, *_DECISIVE} & made.keys():
        if options.get(name) != made[name]:
            raise ValueError(
                f"demonstrations were made with {name}={made[name]}; give the environment the same "
                f"(options {name}={made[name]})"
            )


def demonstrations(episodes: Episodes, env: VectorEnv, network: SoftNetwork) -> Replay:
    """The steps of a dataset as a full ring of one environment, for `SAC.iterate`.

    An environment that gives instructions gets those of the episodes, where the observations are
    its states alone.

    Raises:
      ValueError: observations or actions are not of the environment's spaces.
    """
    ends = np.cumsum(episodes.lengths) - 1
    following = np.minimum(np.arange(episodes.num_steps) + 1, episodes.num_steps - 1)

    def moved(now: np.ndarray, final: np.ndarray) -> np.ndarray:
        after = np.asarray(now)[following]
        after[ends] = final
        return after

    texts = np.repeat(episodes.instruction, episodes.lengths)
    later = jax.tree.map(moved, episodes.observations, episodes.final_observations)
    terminated = np.asarray(episodes.terminated)
    action = _of_space("actions", env.action_space, np.asarray(episodes.actions))
    steps = Steps(
        obs=_observation(env.observation_space, episodes.observations, texts),
        action=network.from_env(action),
        reward=jnp.asarray(episodes.rewards, jnp.float32),
        terminated=jnp.asarray(terminated),
        done=jnp.asarray(terminated | np.asarray(episodes.truncated)),
        next_obs=_observation(env.observation_space, later, texts),
    )
    return Replay(jax.tree.map(lambda x: x[:, None], steps), jnp.int32(episodes.num_steps))


def _observation(space: Space, recorded: Observations, texts: np.ndarray) -> PyTree:
    """Observations `[M, …]` as the environment gives them."""
    if isinstance(space, Dict) and not isinstance(recorded, dict):
        others = sorted(set(space.spaces) - {INSTRUCTION})
        if len(others) == 1 and INSTRUCTION in space.spaces:
            recorded = {others[0]: recorded, INSTRUCTION: texts}
    names = sorted(recorded) if isinstance(recorded, dict) else None
    wanted = sorted(space.spaces) if isinstance(space, Dict) else None
    if names != wanted:
        raise ValueError(f"demonstrations have observations {names}, the environment {wanted}")
    return map_leaves(
        lambda leaf, x: _of_space("observations", leaf, np.asarray(x)), space, recorded
    )


def _of_space(what: str, space: Space, values: np.ndarray) -> jax.Array:
    """Values `[M, …]` in the space's type.

    Raises:
      ValueError: another shape, or numbers that the space does not have.
    """
    assert not isinstance(space, Dict)
    if values.shape[1:] != space.shape:
        raise ValueError(
            f"demonstrations have {what} of shape {values.shape[1:]}, not {space.shape}"
        )
    if isinstance(space, Discrete) and not (values.min() >= 0 and values.max() < space.n):
        raise ValueError(f"demonstrations have {what} up to {values.max()}, not below {space.n}")
    if isinstance(space, Box) and not (
        np.isfinite(values).all() and (values >= space.low).all() and (values <= space.high).all()
    ):
        raise ValueError(f"demonstrations have {what} that are not within {space}")
    return jnp.asarray(values, space.dtype)

"""brax's environments behind `VectorEnv`."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from brax import envs as brax_envs

from jaxrl_guided.envs.types import Box, Dict, PyTree, Space, VectorEnv
from jaxrl_guided.envs.vectorise import Outcome, SingleEnv, check_max_steps, vectorise


def list_names() -> Sequence[str]:
    """brax's own names, as `ant`."""
    return tuple(brax_envs._envs)


def make_brax(
    environment: str,
    num_envs: int,
    *,
    max_steps: int = 1000,
    cached_reset: bool = False,
    **options: Any,
) -> VectorEnv:
    """`num_envs` environments of brax; actions are in [-1, 1].

    `terminated` is brax's `done`, and episodes are truncated after `max_steps` steps, as by brax's
    `EpisodeWrapper`. `info` has the environment's metrics.

    Args:
      environment: brax's name.
      max_steps: longest episode.
      cached_reset: see `vectorise`; what brax's trainers do.
      **options: arguments of the environment's class, as `backend` (`generalized`, `spring`,
        `positional`, `mjx`).

    Raises:
      TypeError: an option that the environment does not have.
      ValueError: an option out of range, or brax's code does not run with this version of JAX, as
        that of `swimmer` with jax 0.10.
    """
    check_max_steps(max_steps)
    theirs = brax_envs.get_environment(environment, **options)

    def reset(key: jax.Array) -> tuple[PyTree, PyTree]:
        state = theirs.reset(key)
        return state, state.obs

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[PyTree, Outcome]:
        del key
        state = theirs.step(state, action)
        terminated = state.done > 0.5
        never = jnp.zeros_like(terminated)
        return state, Outcome(state.obs, state.reward, terminated, never, state.metrics)

    obs = jax.eval_shape(lambda key: reset(key)[1], jax.eval_shape(lambda: jax.random.key(0)))
    actions = Box((theirs.action_size,), -1.0, 1.0)
    name, single = f"brax/{environment}", SingleEnv(reset, step)
    try:
        return vectorise(name, single, num_envs, _space(obs), actions, max_steps, cached_reset)
    except TypeError as error:
        raise ValueError(f"{name} does not run with jax {jax.__version__}: {error}") from error


def _space(obs: PyTree) -> Space:
    if isinstance(obs, dict):
        return Dict({name: _space(part) for name, part in obs.items()})
    return Box(obs.shape, dtype=obs.dtype)

"""gymnax's environments (classic control, MinAtar, bsuite, misc) behind `VectorEnv`."""

import dataclasses
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gymnax
import jax
import numpy as np
from gymnax.environments import spaces as gymnax_spaces

from jaxrl_guided.envs.types import Box, Discrete, PyTree, Space, VectorEnv
from jaxrl_guided.envs.vectorise import Outcome, SingleEnv, check_max_steps, vectorise

_MNIST = "MNISTBandit-bsuite"
_MNIST_DIRECTORY = Path("/tmp/mnist")  # gymnax reads it from nowhere else
_MNIST_FILES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_MISSTATED = ("MemoryChain-bsuite", "MetaMaze-misc", "GaussianBandit-misc")
"""Their observations leave the bounds that gymnax 1.0.1 states."""


def list_names() -> Sequence[str]:
    """gymnax's own names, as `CartPole-v1`."""
    return tuple(gymnax.registered_envs)


def make_gymnax(
    environment: str,
    num_envs: int,
    *,
    max_steps: int | None = None,
    cached_reset: bool = False,
    **options: Any,
) -> VectorEnv:
    """`num_envs` environments of gymnax.

    Episodes end as gymnax says: `terminated` by the task, `truncated` at
    `max_steps_in_episode`. What a step reports in its `info` is passed on.

    Args:
      environment: gymnax's name.
      max_steps: in place of the environment's `max_steps_in_episode`.
      cached_reset: see `vectorise`.
      **options: arguments of the environment's class (`size` of DeepSea) or fields of its
        parameters (`gravity` of CartPole).

    Raises:
      TypeError: an option that is neither.
      ValueError: an option out of range, or data that the environment reads is missing.
    """
    if environment == _MNIST:
        _check_mnist()
    ours, params = _build(environment, options)
    if "max_steps_in_episode" in options:
        check_max_steps(options["max_steps_in_episode"])
    if max_steps is not None:
        check_max_steps(max_steps)
        params = params.replace(max_steps_in_episode=max_steps)

    def step(key: jax.Array, state: PyTree, action: jax.Array) -> tuple[PyTree, Outcome]:
        obs, state, reward, terminated, info = ours.step_env(key, state, action, params)
        return state, Outcome(obs, reward, terminated, ours.is_truncated(state, params), info)

    def reset(key: jax.Array) -> tuple[PyTree, PyTree]:
        obs, state = ours.reset_env(key, params)
        return state, obs

    obs = jax.eval_shape(lambda key: reset(key)[1], jax.eval_shape(lambda: jax.random.key(0)))
    observation_space = _space(ours.observation_space(params), obs)
    if environment in _MISSTATED:
        observation_space = Box(obs.shape, dtype=obs.dtype)
    return vectorise(
        f"gymnax/{environment}",
        SingleEnv(reset, step),
        num_envs,
        observation_space,
        _space(ours.action_space(params)),
        cached_reset=cached_reset,
    )


def _build(environment: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """gymnax's environment and parameters, each option given to whichever has it."""
    factory = gymnax.registration._registry[environment]
    arguments = set(inspect.signature(factory).parameters)
    given = {name: options[name] for name in options if name in arguments}
    ours, params = gymnax.make(environment, **given)
    fields = {field.name for field in dataclasses.fields(params)}
    if unknown := sorted(set(options) - arguments - fields):
        raise TypeError(
            f"gymnax/{environment} has no option {', '.join(unknown)}; it has "
            f"{', '.join(sorted(arguments | fields | {'max_steps', 'cached_reset'}))}"
        )
    return ours, params.replace(**{name: options[name] for name in options if name in fields})


def _check_mnist() -> None:
    missing = [name for name in _MNIST_FILES if not (_MNIST_DIRECTORY / name).is_file()]
    if missing:
        raise ValueError(
            f"gymnax/{_MNIST} reads MNIST from {_MNIST_DIRECTORY}, which lacks "
            f"{', '.join(missing)}; put the files there"
        )


def _space(theirs: Any, example: jax.ShapeDtypeStruct | None = None) -> Space:
    """Ours for gymnax's; shape and type are those of `example`, which gymnax may misstate."""
    if isinstance(theirs, gymnax_spaces.Discrete):
        return Discrete(theirs.n)
    if not isinstance(theirs, gymnax_spaces.Box):
        raise ValueError(f"spaces must be Box or Discrete, not {theirs}")
    shape, dtype = (
        (theirs.shape, theirs.dtype) if example is None else (example.shape, example.dtype)
    )
    low, high = (
        np.broadcast_to(np.asarray(b, np.float32), shape) for b in (theirs.low, theirs.high)
    )
    return Box(tuple(shape), low, high, dtype)

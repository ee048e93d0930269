"""Hyper-parameters of PPO (arXiv 1707.06347), checked when they are written down."""

import dataclasses
import math
from typing import Literal

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.runtime.ranges import (
    COUNT,
    INT32,
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    check,
    check_choice,
)


@dataclasses.dataclass(frozen=True)
class PPOConfig:
    """One PPO run.

    Attributes:
      total_steps: environment steps asked for; the run does the next multiple of a rollout.
      num_envs: parallel environments N.
      rollout_steps: steps T of each environment between two updates.
      epochs: passes over a rollout.
      minibatches: parts of a rollout, one optimiser step each.
      learning_rate: of Adam, at the start.
      schedule: `constant`, or `linear` to zero over all optimiser steps of the run.
      adam_epsilon: of Adam.
      max_grad_norm: global norm to which gradients are clipped.
      gamma: discount.
      gae_lambda: mixing of advantage estimates.
      clip: largest change of the probability ratio that is rewarded.
      value_clip: largest change of a value per rollout that is rewarded, in units of the value
        targets (after reward scaling); None for no clipping.
      value_weight: of the value loss, which is half the squared error.
      entropy_weight: of the entropy bonus.
      normalise_advantage: mean 0 and variance 1 in each minibatch.
      normalise_obs: running statistics of the observation's real parts.
      scale_reward: divide by the running deviation of discounted returns.
      target_kl: the rest of an iteration's minibatches is left out once the KL divergence from the
        acting policy, estimated on a minibatch, is larger; None for never.
    """

    total_steps: int = 500_000
    num_envs: int = 64
    rollout_steps: int = 128
    epochs: int = 4
    minibatches: int = 32
    learning_rate: float = 5e-4
    schedule: Literal["constant", "linear"] = "linear"
    adam_epsilon: float = 1e-5
    max_grad_norm: float = 0.5
    gamma: float = 0.99
    gae_lambda: float = 0.95
    clip: float = 0.2
    value_clip: float | None = None
    value_weight: float = 0.5
    entropy_weight: float = 0.01
    normalise_advantage: bool = True
    normalise_obs: bool = True
    scale_reward: bool = False
    target_kl: float | None = None

    def __post_init__(self) -> None:
        counts = ("total_steps", "num_envs", "rollout_steps", "epochs", "minibatches")
        positive = ("learning_rate", "adam_epsilon", "max_grad_norm", "clip")
        check(self, COUNT, *counts, part="ppo.")
        check(self, INT32, *counts[1:], part="ppo.")
        check(self, POSITIVE, *positive, "value_clip", "target_kl", part="ppo.")
        check(self, NOT_NEGATIVE, "value_weight", "entropy_weight", part="ppo.")
        check(self, SHARE, "gamma", "gae_lambda", part="ppo.")
        check_choice(self, "schedule", ("constant", "linear"), part="ppo.")
        self._check_minibatches()

    def _check_minibatches(self) -> None:
        if self.batch >= 2**31 or self.iterations * self.optimiser_steps >= 2**31:
            raise ValueError(
                f"ppo: the {self.batch} steps of a rollout and the {self.iterations} x "
                f"{self.optimiser_steps} optimiser steps of the run must be below 2**31"
            )
        sizes = (
            f"ppo.num_envs {self.num_envs} x ppo.rollout_steps {self.rollout_steps} = {self.batch}"
        )
        if self.batch % self.minibatches:
            raise ValueError(f"{sizes} steps do not divide into ppo.minibatches {self.minibatches}")
        if self.normalise_advantage and self.batch == self.minibatches:
            raise ValueError(
                f"{sizes} steps in ppo.minibatches {self.minibatches} leave one step each, which "
                "ppo.normalise_advantage cannot normalise"
            )

    @property
    def batch(self) -> int:
        """Environment steps of one iteration."""
        return self.num_envs * self.rollout_steps

    def minibatch_items(self, recurrent: bool) -> int:
        """Items of a minibatch: steps, or whole sequences for a recurrent network."""
        return (self.num_envs if recurrent else self.batch) // self.minibatches

    @property
    def iterations(self) -> int:
        """Iterations of the run; `steps_at(iterations) >= total_steps`."""
        return math.ceil(self.total_steps / self.batch)

    @property
    def optimiser_steps(self) -> int:
        """Optimiser steps of one iteration."""
        return self.epochs * self.minibatches

    def steps_at(self, iteration: int) -> int:
        """Environment steps done after `iteration` iterations; a Python integer, never wraps."""
        return int(iteration) * self.batch


@struct.dataclass
class Hyper:
    """Hyper-parameters that are data, `f32[]` each: in the state, so that vmap may vary them."""

    learning_rate: jax.Array
    gamma: jax.Array
    gae_lambda: jax.Array
    clip: jax.Array
    entropy_weight: jax.Array


def make_hyper(config: PPOConfig) -> Hyper:
    names = [field.name for field in dataclasses.fields(Hyper)]
    return Hyper(**{name: jnp.float32(getattr(config, name)) for name in names})


def learning_rate_at(config: PPOConfig, start: jax.Array, step: jax.Array) -> jax.Array:
    """Learning rate of optimiser step `step`, counted from 0 over the whole run.

    Steps that `target_kl` leaves out are counted, so a linear schedule always ends at zero.
    """
    if config.schedule == "constant":
        return start
    total = config.iterations * config.optimiser_steps
    return start * jnp.maximum(1 - step.astype(jnp.float32) / total, 0.0)

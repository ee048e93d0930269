"""Hyper-parameters of SAC (arXiv 1812.05905), checked when they are written down."""

import dataclasses
import math

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.ranges import COUNT, INT32, NOT_NEGATIVE, POSITIVE, SHARE, check


@dataclasses.dataclass(frozen=True)
class SACConfig:
    """One SAC run.

    An iteration is a chunk of `chunk_steps` steps in each environment and then all the updates
    that are due.

    Attributes:
      replay_capacity: steps that are remembered, over all environments.
      total_steps: environment steps asked for; the run does the next multiple of a chunk.
      num_envs: parallel environments N.
      chunk_steps: steps C of each environment without updates.
      updates_per_step: updates for each environment step, any ratio that gives whole updates a
        chunk.
      learning_starts: environment steps of uniform random actions, without updates.
      batch: transitions in an update.
      actor_rate: learning rate of the actor.
      critic_rate: learning rate of the critics.
      alpha_rate: learning rate of the temperature; 0 keeps it as it is.
      initial_alpha: temperature at the start.
      target_entropy: entropy that the temperature is to keep; None for minus the numbers in a real
        action, or .89 of the logarithm of the number of discrete ones.
      gamma: discount.
      tau: share of the critics that their slow copies take over in an update.
      n_step: steps in a return.
      demo_share: share of each batch that is drawn from demonstrations (arXiv 2302.02948: half).
    """

    replay_capacity: int
    total_steps: int = 100_000
    num_envs: int = 1
    chunk_steps: int = 1
    updates_per_step: float = 1.0
    learning_starts: int = 1_000
    batch: int = 256
    actor_rate: float = 3e-4
    critic_rate: float = 1e-3
    alpha_rate: float = 1e-3
    initial_alpha: float = 1.0
    target_entropy: float | None = None
    gamma: float = 0.99
    tau: float = 0.005
    n_step: int = 1
    demo_share: float = added(0.0)

    def __post_init__(self) -> None:
        counts = ("replay_capacity", "total_steps", "num_envs", "chunk_steps", "batch", "n_step")
        positive = ("updates_per_step", "actor_rate", "critic_rate", "initial_alpha")
        check(self, COUNT, *counts, part="sac.")
        check(self, INT32, "num_envs", "chunk_steps", "batch", "n_step", part="sac.")
        check(self, POSITIVE, *positive, part="sac.")
        check(self, NOT_NEGATIVE, "alpha_rate", "learning_starts", part="sac.")
        check(self, SHARE, "gamma", "tau", "demo_share", part="sac.")
        if self.target_entropy is not None and not abs(self.target_entropy) < 1e30:
            raise ValueError(f"sac.target_entropy must be finite, not {self.target_entropy}")
        self._check_sizes()

    def _check_sizes(self) -> None:
        if self.demo_share and not self.demo_batch:
            raise ValueError(
                f"sac.demo_share {self.demo_share} of sac.batch {self.batch} is no transition"
            )
        due = self.chunk * self.updates_per_step
        if abs(due - round(due)) > 1e-6 or round(due) < 1:
            raise ValueError(
                f"sac.updates_per_step {self.updates_per_step} must give whole updates: a chunk "
                f"of {self.chunk} steps has {due:g}"
            )
        if self.updates >= 2**31 or self.iterations >= 2**31:
            raise ValueError(
                f"sac: the {self.updates} updates of an iteration and the {self.iterations} "
                "iterations of the run must be below 2**31"
            )
        if self.replay_capacity % self.chunk:
            raise ValueError(
                f"sac.replay_capacity must be a multiple of sac.num_envs {self.num_envs} x "
                f"sac.chunk_steps {self.chunk_steps}, not {self.replay_capacity}"
            )
        if self.warm_iterations >= self.iterations:
            raise ValueError(
                f"sac.learning_starts {self.learning_starts} (and sac.n_step {self.n_step}) leave "
                f"nothing of sac.total_steps {self.total_steps} to learn in"
            )
        if self.capacity < self.n_step:
            raise ValueError(
                f"sac.replay_capacity must hold sac.n_step {self.n_step} steps of each of the "
                f"{self.num_envs} environments, not {self.capacity}"
            )

    @property
    def demo_batch(self) -> int:
        """Transitions of a batch that are demonstrations."""
        return round(self.batch * self.demo_share)

    @property
    def chunk(self) -> int:
        """Environment steps of one iteration."""
        return self.num_envs * self.chunk_steps

    @property
    def capacity(self) -> int:
        """Steps of each environment that are remembered."""
        return self.replay_capacity // self.num_envs

    @property
    def updates(self) -> int:
        """Updates of one iteration."""
        return round(self.chunk * self.updates_per_step)

    @property
    def warm_iterations(self) -> int:
        """Iterations without updates: random actions, and enough steps for the first return."""
        return max(
            math.ceil(self.learning_starts / self.chunk),
            math.ceil(self.n_step / self.chunk_steps) - 1,
        )

    @property
    def iterations(self) -> int:
        """Iterations of the run; `steps_at(iterations) >= total_steps`."""
        return math.ceil(self.total_steps / self.chunk)

    def steps_at(self, iteration: int) -> int:
        """Environment steps done after `iteration` iterations; a Python integer, never wraps."""
        return int(iteration) * self.chunk


@struct.dataclass
class Hyper:
    """Hyper-parameters that are data, `f32[]` each: in the state, so that vmap may vary them."""

    actor_rate: jax.Array
    critic_rate: jax.Array
    alpha_rate: jax.Array
    gamma: jax.Array
    tau: jax.Array


def make_hyper(config: SACConfig) -> Hyper:
    names = [field.name for field in dataclasses.fields(Hyper)]
    return Hyper(**{name: jnp.float32(getattr(config, name)) for name in names})

"""The data of PPO: its policy, its training state, and a rollout."""

import jax
from flax import struct

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.episodes import EpisodeSums
from jaxrl_guided.learners.normaliser import Normaliser, RewardScale
from jaxrl_guided.learners.ppo.config import Hyper
from jaxrl_guided.networks.actor_critic import Memory

Metrics = dict[str, jax.Array]


@struct.dataclass
class Policy:
    """All that acting needs: parameters, and the statistics that they were learned with."""

    params: PyTree
    normaliser: Normaliser


@struct.dataclass
class PPOState:
    """The whole training state, one pytree: scanned, vmapped, donated and checkpointed.

    Attributes:
      policy: what acts.
      opt_state: of the optimiser.
      hyper: hyper-parameters that may differ along a vmapped axis.
      env_state, obs: where the N environments stand.
      memory: what the policy remembers of the open episodes; empty without memory.
      episodes: what the open episodes have gathered.
      reward_scale: None without reward scaling.
      guidance: the guidance's state, None without guidance.
      key: typed key.
      iteration: `i32[]`, iterations done; environment steps are counted on the host from it.
    """

    policy: Policy
    opt_state: PyTree
    hyper: Hyper
    env_state: PyTree
    obs: PyTree
    memory: Memory
    episodes: EpisodeSums
    reward_scale: RewardScale | None
    guidance: PyTree
    key: jax.Array
    iteration: jax.Array

    @property
    def trained(self) -> PyTree:
        """What must stay finite (`train`)."""
        return self.policy.params


@struct.dataclass
class Rollout:
    """T steps of N environments, time axis first; observations are raw.

    Attributes:
      obs: pytree `[T, N, …]` that was acted on.
      raw_action: `[T, N, …]`, before `Distribution.action`.
      log_prob, value, reward: `f32[T, N]`.
      terminated, truncated: `bool[T, N]`.
      memory: `[N, …]`, that before the first step.
      final_value: `f32[T, N]`, value of the final observation where `truncated`.
      last_value: `f32[N]`, value of the observation after the last step.
      episodes: sums over the episodes that ended (`episodes.add_step`).
    """

    obs: PyTree
    raw_action: jax.Array
    log_prob: jax.Array
    value: jax.Array
    reward: jax.Array
    terminated: jax.Array
    truncated: jax.Array
    memory: Memory
    final_value: jax.Array
    last_value: jax.Array
    episodes: Metrics

    @property
    def done(self) -> jax.Array:
        """`bool[T, N]`."""
        return self.terminated | self.truncated

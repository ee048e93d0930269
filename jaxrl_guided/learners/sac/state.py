"""The data of SAC."""

import jax
from flax import struct

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.episodes import EpisodeSums
from jaxrl_guided.learners.replay import Replay
from jaxrl_guided.learners.sac.config import Hyper

Metrics = dict[str, jax.Array]


@struct.dataclass
class Learned:
    """What updates change.

    Attributes:
      actor: parameters of the policy.
      critics, slow_critics: parameters with the critics on the first axis, and their slow copy.
      log_alpha: `f32[]`, logarithm of the temperature.
      opt_state: of the optimiser of actor, critics and temperature.
    """

    actor: PyTree
    critics: PyTree
    slow_critics: PyTree
    log_alpha: jax.Array
    opt_state: PyTree

    @property
    def trained(self) -> PyTree:
        """What gradients change: actor, critics, temperature."""
        return self.actor, self.critics, self.log_alpha


@struct.dataclass
class SACState:
    """The whole training state, one pytree: scanned, vmapped, donated and checkpointed.

    Attributes:
      learned: what updates change.
      hyper: hyper-parameters that may differ along a vmapped axis.
      replay: the last steps.
      env_state, obs: where the N environments stand.
      episodes: what the open episodes have gathered.
      guidance: the guidance's state, None without guidance.
      key: typed key.
      iteration: `i32[]`, iterations done.
    """

    learned: Learned
    hyper: Hyper
    replay: Replay
    env_state: PyTree
    obs: PyTree
    episodes: EpisodeSums
    guidance: PyTree
    key: jax.Array
    iteration: jax.Array

    @property
    def trained(self) -> PyTree:
        """What must stay finite (`train`)."""
        return self.learned.trained

    @property
    def policy(self) -> PyTree:
        """All that acting needs."""
        return self.learned.actor

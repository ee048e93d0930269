"""PPO's loss on a minibatch (arXiv 1707.06347, equations 7 and 9)."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.ppo.config import Hyper, PPOConfig
from jaxrl_guided.networks.actor_critic import Memory
from jaxrl_guided.networks.distributions import Distribution


@struct.dataclass
class Batch:
    """What to learn from, `[B]` each, fixed before the first epoch: steps, or sequences `[B, T]`.

    Attributes:
      obs: pytree `[B, …]`, normalised.
      raw_action: `[B, …]`, before `Distribution.action`.
      log_prob: `f32[B]`, of the acting policy.
      advantage, target: `f32[B]`.
      value: `f32[B]`, of the acting critic; None without value clipping.
      guidance: pytree `[B, …]` of the guidance's targets; None without guidance.
      done: `bool[B, T]` of sequences; None for steps.
      memory: `[B, …]` before the first step of each sequence; empty for steps.
    """

    obs: PyTree
    raw_action: jax.Array
    log_prob: jax.Array
    advantage: jax.Array
    target: jax.Array
    value: jax.Array | None
    guidance: PyTree
    done: jax.Array | None = None
    memory: Memory = struct.field(default_factory=dict)


def ppo_loss(
    policy: Distribution, value: jax.Array, batch: Batch, config: PPOConfig, hyper: Hyper
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Clipped surrogate + value loss - entropy bonus, means over the minibatch.

    Args:
      policy, value: of the parameters that learn, at `batch.obs`.

    Returns:
      The loss, and metrics `f32[]`: `policy_loss`, `value_loss`, `entropy`, `kl` (an unbiased,
      never negative estimate of KL(acting ‖ learning)) and `clip_fraction`.
    """
    log_ratio = policy.log_prob(batch.raw_action) - batch.log_prob
    ratio = jnp.exp(log_ratio)
    advantage = batch.advantage
    if config.normalise_advantage:
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    clipped = jnp.clip(ratio, 1 - hyper.clip, 1 + hyper.clip)
    policy_loss = -jnp.minimum(ratio * advantage, clipped * advantage).mean()
    value_loss = _value_loss(value, batch, config.value_clip)
    entropy = policy.entropy().mean()
    loss = policy_loss + config.value_weight * value_loss - hyper.entropy_weight * entropy
    metrics = {
        "policy_loss": policy_loss,
        "value_loss": value_loss,
        "entropy": entropy,
        "kl": (jnp.expm1(log_ratio) - log_ratio).mean(),
        "clip_fraction": (jnp.abs(ratio - 1) > hyper.clip).mean(dtype=jnp.float32),
    }
    return loss, metrics


def _value_loss(value: jax.Array, batch: Batch, clip: float | None) -> jax.Array:
    """Half the squared error; with clipping the larger of that and the clipped value's."""
    error = (value - batch.target) ** 2
    if clip is not None and batch.value is not None:
        near = batch.value + jnp.clip(value - batch.value, -clip, clip)
        error = jnp.maximum(error, (near - batch.target) ** 2)
    return 0.5 * error.mean()

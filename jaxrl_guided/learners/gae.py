"""Generalised advantage estimation that knows time limits (arXiv 1506.02438)."""

import chex
import jax
import jax.numpy as jnp


def generalised_advantages(
    reward: jax.Array,
    terminated: jax.Array,
    truncated: jax.Array,
    value: jax.Array,
    final_value: jax.Array,
    last_value: jax.Array,
    gamma: jax.Array | float,
    lam: jax.Array | float,
) -> jax.Array:
    """Advantages of a rollout whose episodes follow each other.

    δ_t = r_t + γ·V' - V(s_t), with V' = 0 at termination, V(final observation) at truncation, and
    V(s_{t+1}) elsewhere; A_t = δ_t + γλ·A_{t+1} within an episode, A_t = δ_t at its end and at the
    end of the rollout. rlax's estimator gives the same numbers (tested); this one needs no change
    of rewards at a truncation and imports in no time.

    Args:
      reward, value, final_value: `f32[T, N]`; `final_value` is read where `truncated` only.
      terminated, truncated: `bool[T, N]`.
      last_value: `f32[N]`, value of the observation after the last step.

    Returns:
      `f32[T, N]`.
    """
    chex.assert_rank([reward, terminated, truncated, value, final_value], 2)
    following = jnp.concatenate([value[1:], last_value[None]])
    following = jnp.where(truncated, final_value, following)
    delta = reward + gamma * jnp.where(terminated, 0.0, following) - value
    decay = jnp.where(terminated | truncated, 0.0, gamma * lam)

    def step(advantage: jax.Array, now: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        delta, decay = now
        advantage = delta + decay * advantage
        return advantage, advantage

    return jax.lax.scan(step, jnp.zeros_like(last_value), (delta, decay), reverse=True)[1]

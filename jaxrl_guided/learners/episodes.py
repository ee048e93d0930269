"""Returns, lengths and successes of episodes, reduced while a rollout is collected."""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.types import TimeStep


@struct.dataclass
class EpisodeSums:
    """What the open episodes of N environments have gathered.

    Attributes:
      returns: `f32[N]`, undiscounted.
      length: `i32[N]`.
      success: `bool[N]`, whether `info["success"]` has been true in any step.
    """

    returns: jax.Array
    length: jax.Array
    success: jax.Array


def no_episodes(num_envs: int) -> EpisodeSums:
    return EpisodeSums(
        jnp.zeros(num_envs), jnp.zeros(num_envs, jnp.int32), jnp.zeros(num_envs, jnp.bool_)
    )


def add_step(open_: EpisodeSums, step: TimeStep) -> tuple[EpisodeSums, dict[str, jax.Array]]:
    """Add a step; episodes that it ends are summed up and start anew.

    Returns:
      The open episodes, and sums over those that ended: `episodes` (their number), `return_sum`,
      `squared_return_sum`, `length_sum` and, where the environment reports it, `success_sum`.
    """
    grown = EpisodeSums(
        returns=open_.returns + step.reward,
        length=open_.length + 1,
        success=open_.success | succeeded(step),
    )
    done = step.done
    sums = {
        "episodes": jnp.sum(done, dtype=jnp.float32),
        "return_sum": jnp.sum(jnp.where(done, grown.returns, 0.0)),
        "squared_return_sum": jnp.sum(jnp.where(done, jnp.square(grown.returns), 0.0)),
        "length_sum": jnp.sum(jnp.where(done, grown.length, 0), dtype=jnp.float32),
    }
    if "success" in step.info:
        sums["success_sum"] = jnp.sum(done & grown.success, dtype=jnp.float32)
    return jax.tree.map(lambda x: jnp.where(done, jnp.zeros_like(x), x), grown), sums


def succeeded(step: TimeStep) -> jax.Array:
    """`bool[N]`: `info["success"]` of this step, false where the environment has none."""
    success = step.info.get("success")
    return jnp.zeros_like(step.terminated) if success is None else success > 0.5

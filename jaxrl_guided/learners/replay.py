"""A replay buffer on the device: a ring of the last steps of N environments.

Steps lie in the order in which they were made, so that returns over several steps are put together
when a batch is drawn. Drawing is with replacement and touches the batch alone: its time does not
depend on the capacity.
"""

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.population import write
from jaxrl_guided.envs.types import PyTree


@struct.dataclass
class Steps:
    """Steps of environments, `[T, N, …]` each.

    Attributes:
      obs: pytree, acted on.
      action: real ones on the unit scale.
      reward: `f32`.
      terminated: `bool`, the task ended.
      done: `bool`, the episode ended, for either reason.
      next_obs: pytree, what the step led to, before any restart.
      targets: pytree of the guidance's targets, None without guidance.
    """

    obs: PyTree
    action: jax.Array
    reward: jax.Array
    terminated: jax.Array
    done: jax.Array
    next_obs: PyTree
    targets: PyTree = None


@struct.dataclass
class Replay:
    """The ring.

    Attributes:
      steps: `Steps` of `[capacity, N, …]`.
      inserted: `i32[]`, steps of each environment inserted so far, at most capacity + the place of
        the next one, so that it never wraps.
    """

    steps: PyTree
    inserted: jax.Array


def init_replay(like: Steps, capacity: int) -> Replay:
    """An empty ring of `capacity` steps of each environment.

    Args:
      like: a chunk `[T, N, …]` of arrays or shapes.
    """
    empty = jax.tree.map(lambda x: jnp.zeros((capacity, *x.shape[1:]), x.dtype), like)
    return Replay(empty, jnp.int32(0))


def insert(replay: Replay, chunk: Steps) -> Replay:
    """Add a chunk of T steps in place of the oldest ones; T must divide the capacity."""
    length = chunk.reward.shape[0]
    capacity = replay.steps.reward.shape[0]
    at = replay.inserted % capacity
    steps = jax.tree.map(lambda ring, new: write(ring, new, at), replay.steps, chunk)
    inserted = replay.inserted + length
    return Replay(steps, jnp.where(inserted >= 2 * capacity, inserted - capacity, inserted))


@struct.dataclass
class Transitions:
    """A batch to learn from, `[B, …]` each.

    Attributes:
      obs, action: what was done.
      reward: `f32[B]`, discounted sum over up to n steps.
      discount: `f32[B]`, of the value at `next_obs`: γ^m after m steps, 0 after a termination.
      next_obs: pytree, where the last of the steps led to.
      targets: of the guidance at `obs`.
    """

    obs: PyTree
    action: jax.Array
    reward: jax.Array
    discount: jax.Array
    next_obs: PyTree
    targets: PyTree


def draw(
    replay: Replay,
    key: jax.Array,
    batch: int,
    gamma: jax.Array | float,
    n_step: int = 1,
    whole: bool = False,
) -> Transitions:
    """Transitions with returns over n steps, or fewer where an episode ends.

    At least `n_step` steps must have been inserted. The newest n_step − 1 steps of an environment
    are not drawn, as what follows them is not known yet; they are where the last episode of each
    environment is `whole`.
    """
    steps = replay.steps
    capacity, num_envs = steps.reward.shape
    filled = jnp.minimum(replay.inserted, capacity)
    newest = 0 if whole else n_step - 1
    # A remainder of 32 bits is off from uniform by less than a thousandth for a million steps, and
    # one call costs a fourth of what two of `randint` do, which draw twice each.
    bits = jax.random.bits(key, (2, batch), jnp.uint32)
    age = newest + (bits[0] % (filled - newest).astype(jnp.uint32)).astype(jnp.int32)
    time = (replay.inserted - 1 - age) % capacity
    env = (bits[1] % num_envs).astype(jnp.int32)

    def at(leaf: jax.Array, time: jax.Array) -> jax.Array:
        return leaf[time, env]

    reward, last = jnp.zeros(batch), time
    discount, alive = jnp.ones(batch), jnp.ones(batch, jnp.bool_)
    for k in range(n_step):
        now = (time + k) % capacity
        reward += jnp.where(alive, discount * at(steps.reward, now), 0.0)
        discount = jnp.where(alive, discount * gamma, discount)
        last = jnp.where(alive, now, last)
        alive &= ~at(steps.done, now)
    discount = jnp.where(at(steps.terminated, last), 0.0, discount)
    return Transitions(
        obs=jax.tree.map(lambda x: at(x, time), steps.obs),
        action=at(steps.action, time),
        reward=reward,
        discount=discount,
        next_obs=jax.tree.map(lambda x: at(x, last), steps.next_obs),
        targets=jax.tree.map(lambda x: at(x, time), steps.targets),
    )


def nbytes(tree: PyTree) -> int:
    """Bytes of all arrays, or shapes, in a tree; keys, which are small, are left out."""
    leaves = [x for x in jax.tree.leaves(tree) if not jnp.issubdtype(x.dtype, jax.dtypes.prng_key)]
    return sum(leaf.size * leaf.dtype.itemsize for leaf in leaves)

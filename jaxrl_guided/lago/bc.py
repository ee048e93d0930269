"""Behaviour cloning of the small policy, for the rows `BC` and `PPO from BC`.

-log pi(a | s) on expert steps of Real, of clipped actions where they are continuous; the parameters
with the best loss on held-out Real are kept.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import optax

from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.lago.actions import of_policy
from jaxrl_guided.learners.normaliser import init_normaliser, normalise, update_normaliser
from jaxrl_guided.learners.ppo import Policy
from jaxrl_guided.networks.actor_critic import Network
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.ranges import COUNT, POSITIVE, check

Batch = tuple[PyTree, jax.Array]
"""Observations and the environment's actions `[M, …]`."""

_CHECKS = 20
"""On held-out steps, equally spaced."""


@dataclasses.dataclass(frozen=True)
class BCConfig:
    """Hyper-parameters of behaviour cloning.

    Attributes:
      episodes: of the dataset, the first ones.
      updates: optimiser steps, rounded up to a multiple of the checks on held-out steps.
      batch: expert steps in each.
      learning_rate: of Adam.
    """

    episodes: int = 6_400
    updates: int = 4_000
    batch: int = 256
    learning_rate: float = 1e-3

    def __post_init__(self) -> None:
        check(self, COUNT, "episodes", "updates", "batch", part="bc.")
        check(self, POSITIVE, "learning_rate", part="bc.")


def expert_steps(episodes: Episodes, held_out: np.ndarray) -> tuple[Batch, Batch]:
    """Expert steps to learn from and held-out ones, as observations of the environment.

    Args:
      held_out: `bool[I]` by instruction.
    """
    instruction = np.repeat(episodes.instruction, episodes.lengths)
    parts = []
    for part in (False, True):
        chosen = np.flatnonzero(episodes.is_expert & (held_out[instruction] == part))
        if not len(chosen):
            kind = "held-out" if part else "other"
            raise UserError(f"the dataset has no expert steps on {kind} instructions: too small")
        obs = {
            "state": jnp.asarray(np.asarray(episodes.observations)[chosen]),
            "instruction": jnp.asarray(instruction[chosen], jnp.int32),
        }
        parts.append((obs, jnp.asarray(episodes.actions[chosen])))
    return parts[0], parts[1]


def clone(
    network: Network, config: BCConfig, train: Batch, held_out: Batch, key: jax.Array
) -> tuple[Policy, jax.Array]:
    """The cloned policy (its critic is untrained) and its held-out loss; may be vmapped.

    The loss is not finite where cloning has diverged.

    Raises:
      ValueError: the policy is none that can be taught so (`of_policy`).
    """
    optimiser = optax.adam(config.learning_rate)
    normaliser = update_normaliser(init_normaliser(network.observation_space), train[0])
    train, held_out = ((normalise(normaliser, obs), action) for obs, action in (train, held_out))

    def loss(params: PyTree, batch: Batch) -> jax.Array:
        _, distribution, _ = network.step(params, {}, batch[0])
        return -distribution.log_prob(of_policy(distribution).raw(batch[1])).mean()

    def update(carry: PyTree, key: jax.Array) -> tuple[PyTree, None]:
        params, opt_state = carry
        chosen = jax.random.randint(key, (config.batch,), 0, train[1].shape[0])
        grads = jax.grad(loss)(params, jax.tree.map(lambda x: x[chosen], train))
        updates, opt_state = optimiser.update(grads, opt_state)
        return (optax.apply_updates(params, updates), opt_state), None

    def stretch(carry: PyTree, keys: jax.Array) -> tuple[PyTree, None]:
        learning, best, least = carry
        learning, _ = jax.lax.scan(update, learning, keys)
        now = loss(learning[0], held_out)
        best = jax.tree.map(lambda new, old: jnp.where(now < least, new, old), learning[0], best)
        return (learning, best, jnp.minimum(now, least)), None  # NaN stays NaN

    init_key, key = jax.random.split(key)
    params = network.init(init_key)
    checks = min(_CHECKS, config.updates)
    keys = jax.random.split(key, (checks, -(-config.updates // checks)))
    start = ((params, optimiser.init(params)), params, jnp.float32(jnp.inf))
    (_, best, least), _ = jax.lax.scan(stretch, start, keys)
    return Policy(best, normaliser), least

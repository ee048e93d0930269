"""SAC's update of actor, critics and temperature (arXiv 1812.05905, equations 5 to 8 and 18).

For discrete actions expectations over the policy are sums (arXiv 1910.07207).
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.guidance import Guidance
from jaxrl_guided.learners.replay import Transitions
from jaxrl_guided.learners.sac.config import Hyper, SACConfig
from jaxrl_guided.learners.sac.state import Learned, Metrics
from jaxrl_guided.networks.distributions import Categorical, Distribution, TanhNormal
from jaxrl_guided.networks.soft import SoftNetwork

_ADAM = optax.scale_by_adam()


def init_learned(network: SoftNetwork, config: SACConfig, key: jax.Array) -> Learned:
    """Everything at the start; slow critics are copies."""
    actor, critics = network.init(key)
    log_alpha = jnp.float32(math.log(config.initial_alpha))
    return Learned(
        actor=actor,
        critics=critics,
        slow_critics=jax.tree.map(jnp.array, critics),
        log_alpha=log_alpha,
        opt_state=_ADAM.init((actor, critics, log_alpha)),
    )


def target_entropy(network: SoftNetwork, config: SACConfig) -> float:
    """What the temperature is to keep, on the unit scale of actions."""
    if config.target_entropy is not None:
        return config.target_entropy
    if network.discrete:
        return 0.89 * math.log(network.num_actions)
    return -float(network.action_size)


def make_update(
    network: SoftNetwork, config: SACConfig, guidance: Guidance | None
) -> Callable[[Learned, Hyper, Transitions, PyTree, jax.Array], tuple[Learned, Metrics]]:
    """`(learned, hyper, batch, guidance's state, key) -> (learned, metrics f32[])`."""
    wanted = target_entropy(network, config)

    def update(
        learned: Learned, hyper: Hyper, batch: Transitions, guide: PyTree, key: jax.Array
    ) -> tuple[Learned, Metrics]:
        # One call for both: random numbers are a good part of a small update.
        size = (2, len(batch.reward), network.action_size)
        next_noise, noise = jax.random.normal(key, size)
        alpha = jnp.exp(learned.log_alpha)
        target = soft_target(network, learned, batch, alpha, next_noise)

        def critic_loss(critics: PyTree) -> tuple[jax.Array, jax.Array]:
            values = _values_of(network, critics, batch.obs, batch.action)
            return 0.5 * jnp.square(values - target).mean(axis=-1).sum(), values.mean()

        def actor_loss(actor: PyTree) -> tuple[jax.Array, Metrics]:
            policy = network.policy(actor, batch.obs)
            value, entropy = _soft_value(network, learned.critics, batch.obs, policy, noise)
            loss = -(value + alpha * entropy).mean()
            metrics = {"policy_loss": loss, "entropy": entropy.mean()}
            if guidance is not None:
                extra, more = guidance.loss(policy, batch.targets, guide)
                loss, metrics = loss + extra, metrics | more
            return loss, metrics

        (value_loss, value), to_critics = jax.value_and_grad(critic_loss, has_aux=True)(
            learned.critics
        )
        to_actor, metrics = jax.grad(actor_loss, has_aux=True)(learned.actor)
        # d/d log α of α (entropy - wanted): α falls while there is more entropy than wanted.
        to_alpha = alpha * (metrics["entropy"] - wanted)
        steps, opt_state = _ADAM.update((to_actor, to_critics, to_alpha), learned.opt_state)
        rates = (hyper.actor_rate, hyper.critic_rate, hyper.alpha_rate)
        actor, critics, log_alpha = (
            jax.tree.map(lambda p, step, rate=rate: p - rate * step, part, step)
            for part, step, rate in zip(learned.trained, steps, rates, strict=True)
        )
        slow = jax.tree.map(
            lambda old, new: old + hyper.tau * (new - old), learned.slow_critics, critics
        )
        learned = Learned(actor, critics, slow, log_alpha, opt_state)
        return learned, metrics | {"value": value, "value_loss": value_loss, "alpha": alpha}

    return update


def soft_target(
    network: SoftNetwork, learned: Learned, batch: Transitions, alpha: jax.Array, noise: jax.Array
) -> jax.Array:
    """`f32[B]`: r + γ^m (min Q(s', a') + α H), eq. 5 and 3.

    Args:
      noise: standard normal `f32[B, D]` that make a', not used for discrete actions.
    """
    policy = network.policy(learned.actor, batch.next_obs)
    value, entropy = _soft_value(network, learned.slow_critics, batch.next_obs, policy, noise)
    return batch.reward + batch.discount * (value + alpha * entropy)


def _soft_value(
    network: SoftNetwork, critics: PyTree, obs: PyTree, policy: Distribution, noise: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Expected value of the lowest critic and entropy under the policy, `f32[B]` each.

    For real actions both are estimates from one reparametrised sample.
    """
    if isinstance(policy, Categorical):
        chances = jnp.exp(policy.log_probs())
        lowest = network.values(critics, obs, None).min(axis=0)
        return (chances * lowest).sum(axis=-1), policy.entropy()
    assert isinstance(policy, TanhNormal)
    raw = policy.at(noise)
    lowest = network.values(critics, obs, policy.action(raw)).min(axis=0)
    return lowest, -policy.log_prob(raw)


def _values_of(network: SoftNetwork, critics: PyTree, obs: PyTree, action: jax.Array) -> jax.Array:
    """`f32[critics, B]`: values of the actions that were taken."""
    if not network.discrete:
        return network.values(critics, obs, action)
    values = network.values(critics, obs, None)
    return jnp.take_along_axis(values, action[None, :, None], axis=-1)[..., 0]

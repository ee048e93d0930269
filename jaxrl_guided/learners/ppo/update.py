"""Learning from a rollout."""

import dataclasses
from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.gae import generalised_advantages
from jaxrl_guided.learners.guidance import Guidance, GuidedRollout
from jaxrl_guided.learners.normaliser import (
    RewardScale,
    normalise,
    scale_rewards,
    update_normaliser,
)
from jaxrl_guided.learners.placement import divide, gather
from jaxrl_guided.learners.ppo.config import PPOConfig, learning_rate_at
from jaxrl_guided.learners.ppo.loss import Batch, ppo_loss
from jaxrl_guided.learners.ppo.state import Metrics, Policy, PPOState, Rollout
from jaxrl_guided.learners.shuffle import shuffled
from jaxrl_guided.networks.actor_critic import Network


def make_optimiser(config: PPOConfig) -> optax.GradientTransformation:
    """Adam after clipping by global norm; the learning rate is applied by the update."""
    return optax.chain(
        optax.clip_by_global_norm(config.max_grad_norm),
        optax.scale_by_adam(eps=config.adam_epsilon),
    )


def make_update(
    network: Network,
    config: PPOConfig,
    optimiser: optax.GradientTransformation,
    guidance: Guidance | None,
    mesh: Mesh | None,
) -> Callable[..., tuple[PPOState, Metrics]]:
    """`(state, rollout, frozen=None) -> (state, metrics f32[])`: all epochs over one rollout.

    Advantages, value targets and the guidance's targets are fixed before the first epoch, and the
    statistics of observations move after the last, so that learning sees what acting saw.
    """

    def update(
        state: PPOState, rollout: Rollout, frozen: PyTree = None
    ) -> tuple[PPOState, Metrics]:
        reward_scale, batch = _prepare(config, state, rollout)
        guide = state.guidance
        if guidance is not None:
            seen = GuidedRollout(rollout.obs, network.action(rollout.raw_action), rollout.done)
            targets, guide = guidance.targets(frozen, guide, seen)
            batch = dataclasses.replace(batch, guidance=targets)
        if network.recurrent:  # whole sequences [N, T, …] are shuffled, with their first memory
            batch = jax.tree.map(lambda x: x.swapaxes(0, 1), batch)
            batch = dataclasses.replace(batch, done=rollout.done.T, memory=rollout.memory)
        else:
            batch = jax.tree.map(lambda x: x.reshape(config.batch, *x.shape[2:]), batch)

        batch = gather(mesh, batch)  # minibatches take steps from everywhere

        key, shuffle_key = jax.random.split(state.key)
        params, opt_state, metrics = _learn(
            network, config, optimiser, guidance, mesh, state, guide, batch, shuffle_key
        )
        iteration = state.iteration + 1
        metrics |= rollout.episodes | _diagnose(rollout, batch)
        if guidance is not None:
            progress = jnp.minimum(iteration / config.iterations, 1.0)
            guide = guidance.after_update(guide, metrics, progress)
        normaliser = state.policy.normaliser
        if normaliser is not None:
            normaliser = update_normaliser(normaliser, rollout.obs)
        state = dataclasses.replace(
            state,
            policy=Policy(params, normaliser),
            opt_state=opt_state,
            reward_scale=reward_scale,
            guidance=guide,
            key=key,
            iteration=iteration,
        )
        return state, metrics

    return update


def _prepare(
    config: PPOConfig, state: PPOState, rollout: Rollout
) -> tuple[RewardScale | None, Batch]:
    """Everything that stays fixed over the epochs, `[T, N, …]`."""
    scale, reward = state.reward_scale, rollout.reward
    if scale is not None:
        scale, reward = scale_rewards(scale, reward, rollout.done, state.hyper.gamma)
    advantage = generalised_advantages(
        reward,
        rollout.terminated,
        rollout.truncated,
        rollout.value,
        rollout.final_value,
        rollout.last_value,
        state.hyper.gamma,
        state.hyper.gae_lambda,
    )
    return scale, Batch(
        obs=normalise(state.policy.normaliser, rollout.obs),
        raw_action=rollout.raw_action,
        log_prob=rollout.log_prob,
        advantage=advantage,
        target=advantage + rollout.value,
        value=None if config.value_clip is None else rollout.value,
        guidance=None,
    )


def _learn(
    network: Network,
    config: PPOConfig,
    optimiser: optax.GradientTransformation,
    guidance: Guidance | None,
    mesh: Mesh | None,
    state: PPOState,
    guide: PyTree,
    batch: Batch,
    key: jax.Array,
) -> tuple[PyTree, PyTree, Metrics]:
    """Optimiser steps over shuffled minibatches; metrics are means over the steps taken."""

    def loss(params: PyTree, part: Batch) -> tuple[jax.Array, Metrics]:
        distribution, value = network.unroll(params, part.memory, part.obs, part.done)
        total, metrics = ppo_loss(distribution, value, part, config, state.hyper)
        if guidance is not None:
            extra, more = guidance.loss(distribution, part.guidance, guide)
            total, metrics = total + extra, metrics | more
        return total, metrics | {"loss": total}

    def step(carry: PyTree, now: tuple[jax.Array, jax.Array]) -> tuple[PyTree, Metrics]:
        params, opt_state, stopped = carry
        indices, count = now
        part = divide(mesh, jax.tree.map(lambda x: x[indices], batch))
        grads, metrics = jax.grad(loss, has_aux=True)(params, part)
        rate = learning_rate_at(config, state.hyper.learning_rate, count)
        updates, new_opt_state = optimiser.update(grads, opt_state)
        new_params = jax.tree.map(lambda p, u: p - rate * u, params, updates)
        metrics |= {"grad_norm": optax.global_norm(grads), "learning_rate": rate}
        if config.target_kl is not None:
            stopped |= metrics["kl"] > config.target_kl
            new_params, new_opt_state = jax.tree.map(
                lambda old, new: jnp.where(stopped, old, new),
                (params, opt_state),
                (new_params, new_opt_state),
            )
        metrics["steps_taken"] = 1.0 - stopped.astype(jnp.float32)
        return (new_params, new_opt_state, stopped), metrics

    items = len(batch.advantage)
    indices = jax.vmap(lambda k: shuffled(k, items))(jax.random.split(key, config.epochs))
    counts = state.iteration * config.optimiser_steps + jnp.arange(config.optimiser_steps)
    start = (state.policy.params, state.opt_state, jnp.bool_(False))
    (params, opt_state, _), metrics = jax.lax.scan(
        step, start, (indices.reshape(config.optimiser_steps, -1), counts)
    )
    taken = metrics.pop("steps_taken")
    # The first step is always looked at, so that a run whose every step is left out shows why.
    counted = (taken > 0) | (jnp.arange(config.optimiser_steps) == 0)
    means = {name: jnp.mean(x, where=counted) for name, x in metrics.items()}
    return params, opt_state, means | {"share_of_steps": taken.mean()}


def _diagnose(rollout: Rollout, batch: Batch) -> Metrics:
    """`explained_variance` of the value targets by the acting critic, and the mean reward."""
    residual = jnp.var(batch.advantage) / jnp.maximum(jnp.var(batch.target), 1e-8)
    return {
        "explained_variance": 1 - residual,
        "reward": rollout.reward.mean(),
    }

"""LaGO's guidance of a learner (stage 2): L = L_PG + beta * L_prior.

`nll` is the paper's discrete loss, -log pi(a_hat | s) with a_hat the prior's predicted action.
`soft` is the cross-entropy from the whole prior distribution, the paper's continuous loss, and
`reverse_kl` is KL(pi || pi_K). All are of raw actions (module `actions`).
"""

import dataclasses
from typing import Any, Literal

import jax
import jax.numpy as jnp
import optax
from flax import struct

from jaxrl_guided.backbones.decoder import Prefix
from jaxrl_guided.lago.actions import Actions, of_policy
from jaxrl_guided.lago.prior import Prior, PriorSpec
from jaxrl_guided.lago.scoring import OpenEpisodes, no_open_episodes, score
from jaxrl_guided.learners.guidance import Guidance, GuidedRollout
from jaxrl_guided.networks.distributions import Distribution
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.ranges import (
    COUNT,
    NOT_NEGATIVE,
    POSITIVE,
    POSITIVE_SHARE,
    check,
    check_choice,
)

_CHOICES = {
    "schedule": ("constant", "linear", "cosine"),
    "loss": ("nll", "soft", "reverse_kl"),
    "label": ("argmax", "sample"),
}


@dataclasses.dataclass(frozen=True)
class GuidanceConfig:
    """How strongly, and by which loss, the prior guides.

    Attributes:
      beta: weight of the prior loss at the start.
      schedule: `constant`, or `linear` / `cosine` to zero at `schedule_end`.
      schedule_end: share of the run after which beta is zero (not used by `constant`).
      loss: `nll`, `soft` or `reverse_kl`.
      label: `argmax` or `sample`, how `nll` picks a_hat.
      prior_fraction: share of the visited states that is scored.
      chunk_tokens: tokens in one forward of the prior.
      prior_std_floor: least raw deviation of a prior of continuous actions while it guides.
    """

    beta: float = 0.1
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    schedule_end: float = 1.0
    loss: Literal["nll", "soft", "reverse_kl"] = "nll"
    label: Literal["argmax", "sample"] = "argmax"
    prior_fraction: float = 1.0
    chunk_tokens: int = 1024
    prior_std_floor: float = added(0.3)

    def __post_init__(self) -> None:
        for name, choices in _CHOICES.items():
            check_choice(self, name, choices, part="guidance.")
        check(self, NOT_NEGATIVE, "beta", part="guidance.")
        check(self, POSITIVE_SHARE, "schedule_end", "prior_fraction", part="guidance.")
        check(self, COUNT, "chunk_tokens", part="guidance.")
        check(self, POSITIVE, "prior_std_floor", part="guidance.")


@struct.dataclass
class FrozenPrior:
    """The `frozen` argument of a guided update: the prior's weights and its encoded texts."""

    prior: Prior
    texts: Prefix


@struct.dataclass
class GuidanceState:
    """What the guidance remembers between iterations.

    Attributes:
      open: the episodes that go on into the next rollout.
      beta: `f32[]`.
      key: draws labels and subsets.
    """

    open: OpenEpisodes | None
    beta: jax.Array
    key: jax.Array


@struct.dataclass
class Targets:
    """What the prior says of each state.

    Attributes:
      prior: pi_K; not kept for `nll`.
      label: `[..., …]`, a_hat, raw.
      scored: `bool[...]`, false where the state was left out of the subset.
    """

    prior: Distribution | None
    label: jax.Array
    scored: jax.Array


def make_guidance(spec: PriorSpec, config: GuidanceConfig) -> Guidance:
    """The four functions of the hook; `frozen` is a `FrozenPrior`.

    Observations are `{"state": f32[N, S], "instruction": i32[N]}`. `loss` raises ValueError for a
    policy of other actions than the prior's.
    """
    beta_at, actions = _schedule(config), spec.actions

    def init(num_envs: int, key: jax.Array) -> GuidanceState:
        return GuidanceState(
            open=no_open_episodes(spec, num_envs),
            beta=jnp.asarray(beta_at(0.0), jnp.float32),
            key=key,
        )

    def targets(
        frozen: FrozenPrior, state: GuidanceState, rollout: GuidedRollout
    ) -> tuple[Targets, GuidanceState]:
        key, label_key, subset_key = jax.random.split(state.key, 3)
        obs = rollout.obs
        outputs, scored, open_ = score(
            spec,
            frozen.prior,
            frozen.texts,
            state.open,
            (
                obs["state"][..., : spec.state_size],
                rollout.action,
                obs["instruction"],
                rollout.done,
            ),
            chunk_tokens=config.chunk_tokens,
            fraction=config.prior_fraction,
            key=subset_key,
        )
        said = actions.distribution(outputs, config.prior_std_floor)
        label = said.mode() if config.label == "argmax" else said.sample(label_key)
        found = Targets(said if config.loss != "nll" else None, label, scored)
        return found, dataclasses.replace(state, open=open_, key=key)

    def loss(
        policy: Distribution, targets: Targets, state: GuidanceState
    ) -> tuple[jax.Array, dict[str, jax.Array]]:
        _check_same(actions, of_policy(policy))
        value = prior_loss(actions, config.loss, policy, targets)
        agree = actions.agreement(policy, policy.action(targets.label))
        metrics = {
            "prior_loss": value,
            "prior_agreement": masked_mean(agree, targets.scored),
            "beta": state.beta,
        }
        if config.loss == "soft":
            entropy = actions.entropy(targets.prior)
            metrics["prior_kl"] = value - masked_mean(entropy, targets.scored)
        return state.beta * value, metrics

    def after_update(
        state: GuidanceState, metrics: dict[str, jax.Array], progress: jax.Array
    ) -> GuidanceState:
        del metrics
        return dataclasses.replace(state, beta=jnp.asarray(beta_at(progress), jnp.float32))

    return Guidance(init, targets, loss, after_update)


def _check_same(prior: Actions[Any], policy: Actions[Any]) -> None:
    if policy != prior:
        raise ValueError(
            f"the learner's policy has {policy}, but the prior was trained for {prior}; train a "
            "prior for the environment"
        )


def prior_loss(
    actions: Actions[Any], loss: str, policy: Distribution, targets: Targets
) -> jax.Array:
    """L_prior over a minibatch: mean over scored states.

    `nll` is -log pi(a_hat | s) [paper, discrete], `soft` is E_{a~pi_K}[-log pi(a | s)] [paper,
    continuous], `reverse_kl` is KL(pi || pi_K).

    Args:
      loss: which of them.
      policy: the learner's, at `B` states.
    """
    if loss == "nll":
        each = actions.nll(policy, targets.label)
    elif loss == "soft":
        each = actions.cross_entropy(targets.prior, policy)
    else:
        each = actions.cross_entropy(policy, targets.prior) - actions.entropy(policy)
    return masked_mean(each, targets.scored)


def masked_mean(values: jax.Array, mask: jax.Array) -> jax.Array:
    """Mean of `values` where `mask`, zero when nothing is."""
    return jnp.sum(jnp.where(mask, values, 0.0)) / jnp.maximum(jnp.sum(mask), 1)


def _schedule(config: GuidanceConfig) -> optax.Schedule:
    """Beta as a function of progress in 0 ... 1."""
    if config.schedule == "constant":
        return optax.constant_schedule(config.beta)
    decay = optax.linear_schedule(config.beta, 0.0, 1)
    if config.schedule == "cosine":
        decay = optax.cosine_decay_schedule(config.beta, 1)
    return lambda progress: decay(jnp.minimum(progress / config.schedule_end, 1.0))

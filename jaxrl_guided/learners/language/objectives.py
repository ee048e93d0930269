"""Losses of single tokens: GRPO's and CISPO's policy gradients, and imitation.

All take log-probabilities `f32[B, T]`; what is no token of the assistant is masked by the weights
of `advantages.token_weights`, which also say how tokens make one number.
"""

import dataclasses
from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jax import lax

from jaxrl_guided.learners.language.batches import MicroBatch
from jaxrl_guided.runtime.ranges import (
    NOT_NEGATIVE,
    POSITIVE,
    SHARE,
    Range,
    check,
    check_choice,
)

Ratio = Literal["token", "sequence"]
RATIOS = get_args(Ratio)

Metrics = dict[str, jax.Array]


_BETWEEN = Range(lambda x: 0 < x < 1, "between 0 and 1")
_FAR = 20.0
"""Differences of log-probabilities are cut here: beyond, an exponential says nothing more, and one
that is infinite makes a gradient of nothing but NaN."""


@dataclasses.dataclass(frozen=True)
class GRPOConfig:
    """Clipped policy gradient (arXiv 2402.03300), as in Complementary RL (arXiv 2603.17621 §3).

    Attributes:
      ratio: of single tokens, or of the whole sequence (the product over its tokens).
      clip_low, clip_high: ε below and above 1.
      max_importance: largest weight π_old / π_behaviour of a token; it carries what the sampler
        computed otherwise and how stale the sample is.
      kl_weight: of the penalty against the reference (estimator k3); 0: none.

    Raises:
      ValueError: a number is out of range; the message names it.
    """

    ratio: Ratio = "token"
    clip_low: float = 0.2
    clip_high: float = 0.2
    max_importance: float = 2.0
    kl_weight: float = 0.0

    def __post_init__(self) -> None:
        check_choice(self, "ratio", RATIOS)
        check(self, _BETWEEN, "clip_low")
        check(self, POSITIVE, "clip_high", "max_importance")
        check(self, NOT_NEGATIVE, "kl_weight")


@dataclasses.dataclass(frozen=True)
class CISPOConfig:
    """Policy gradient with a clipped, constant importance weight (arXiv 2506.13585).

    The ratio is to the policy that drew the tokens, however long ago.

    Attributes:
      clip_low, clip_high: how far below and above 1 the weight may be; both 0: REINFORCE.

    Raises:
      ValueError: a number is out of range.
    """

    clip_low: float = 0.1
    clip_high: float = 0.1

    def __post_init__(self) -> None:
        check(self, SHARE, "clip_low")
        check(self, NOT_NEGATIVE, "clip_high")


@dataclasses.dataclass(frozen=True)
class ImitationConfig:
    """Cross-entropy with what was said; advantages and behaviour do not matter."""


Objective = GRPOConfig | CISPOConfig | ImitationConfig


def token_losses(
    objective: Objective, log_prob: jax.Array, batch: MicroBatch
) -> tuple[jax.Array, Metrics]:
    """Loss of each token, `f32[B, T]`, and sums over tokens for metrics.

    Metrics are sums of `weight`-weighted values, so that those of micro-batches add up to means.
    """
    if isinstance(objective, GRPOConfig):
        return _grpo(objective, log_prob, batch)
    if isinstance(objective, CISPOConfig):
        return _cispo(objective, log_prob, batch)
    return -jnp.where(batch.weight > 0, log_prob, 0.0), {}


def _grpo(
    objective: GRPOConfig, log_prob: jax.Array, batch: MicroBatch
) -> tuple[jax.Array, Metrics]:
    counted = batch.weight > 0
    old = lax.stop_gradient(log_prob) if batch.old is None else batch.old
    change = jnp.where(counted, log_prob - old, 0.0)
    if objective.ratio == "sequence":
        change = jnp.where(counted, change.sum(1, keepdims=True), 0.0)
    ratio, advantage = _exp(change), batch.advantage[:, None]
    clipped = jnp.clip(ratio, 1 - objective.clip_low, 1 + objective.clip_high)
    gain = jnp.minimum(ratio * advantage, clipped * advantage)
    importance = _exp(jnp.where(counted, old - batch.behaviour, 0.0))
    truncated = jnp.minimum(lax.stop_gradient(importance), objective.max_importance)
    loss = -truncated * gain
    metrics = {
        "clipped": ratio * advantage > clipped * advantage,
        "ratio": ratio,
        "importance": importance,
        "importance_truncated": importance > objective.max_importance,
    }
    if objective.kl_weight > 0:
        assert batch.reference is not None
        apart = jnp.where(counted, batch.reference - log_prob, 0.0)
        kl = _exp(apart) - apart - 1
        loss, metrics["kl_reference"] = loss + objective.kl_weight * kl, kl
    return loss, _sums(metrics, batch)


def _cispo(
    objective: CISPOConfig, log_prob: jax.Array, batch: MicroBatch
) -> tuple[jax.Array, Metrics]:
    counted = batch.weight > 0
    ratio = _exp(jnp.where(counted, lax.stop_gradient(log_prob) - batch.behaviour, 0.0))
    clipped = jnp.clip(ratio, 1 - objective.clip_low, 1 + objective.clip_high)
    loss = -clipped * batch.advantage[:, None] * jnp.where(counted, log_prob, 0.0)
    return loss, _sums({"clipped": ratio != clipped, "ratio": ratio}, batch)


def _exp(difference: jax.Array) -> jax.Array:
    return jnp.exp(jnp.clip(difference, -_FAR, _FAR))


def _sums(values: Metrics, batch: MicroBatch) -> Metrics:
    return {name: lax.stop_gradient((batch.weight * x).sum()) for name, x in values.items()}

"""What depends on the kind of a prior's actions: one out of A, or D numbers in ±1.

Distributions are those of learners (`networks.distributions`), and losses are taken between their
raw actions: a discrete action is itself, a continuous one is u with action = tanh(u). Prior and
policy are Gaussians of u, so that cross-entropies have closed forms; tanh changes them by the
expected log-slope under the first of the two, and KL divergences by nothing.
"""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.networks.distributions import Categorical, Distribution, TanhNormal

CLIP = 0.98
"""Expert actions are clipped to ± this before atanh, as scripted experts saturate (section 1)."""

NEAR = 0.1
"""A continuous action agrees with another one where their distance is not larger."""

STD_LOW, STD_HIGH = 0.1, math.atanh(CLIP)
"""Range of a continuous prior's raw deviations: the least floor that guidance is reported with, and
the largest raw label, beyond which no deviation of labels can lie."""

NOT_SHOWN = 2.0
"""Each number of a continuous action that is not shown; no action has it."""

_HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
_MIDDLE = (math.log(STD_HIGH) + math.log(STD_LOW)) / 2
_HALF = (math.log(STD_HIGH) - math.log(STD_LOW)) / 2

P = TypeVar("P")
"""The distribution of the kind: `Categorical` or `TanhNormal`."""


class Actions(Protocol[P]):
    """What a prior, its training and guidance ask of the kind of actions."""

    @property
    def outputs(self) -> int:
        """K, numbers that the head G gives."""

    @property
    def fields(self) -> dict[str, int]:
        """The fields of `PriorSpec` that say which actions these are."""

    @property
    def convention(self) -> dict[str, Any]:
        """What a prior's card has of them beside the environment's action map."""

    @property
    def range(self) -> str:
        """Where actions of a dataset must lie, in words."""

    def contains(self, actions: np.ndarray) -> bool:
        """Whether all actions `[M, …]` of a dataset are such actions."""

    def empty(self, shape: tuple[int, ...]) -> jax.Array:
        """Zeros in the form of actions `[*shape, …]`."""

    def hide(self, action: jax.Array, where: jax.Array) -> jax.Array:
        """Actions `[..., …]`, not shown where `bool[...]`."""

    def init_embedding(self, key: jax.Array, width: int, rms: jax.Array) -> PyTree:
        """Weights of E_a, whose embeddings have the root mean square `rms`."""

    def embed(self, weights: PyTree, action: jax.Array) -> jax.Array:
        """E_a: actions, or that they are not shown, to embeddings `f32[..., D]`."""

    def distribution(self, outputs: jax.Array, std_floor: float = STD_LOW) -> P:
        """pi_K from outputs `f32[..., K]` of G; raw deviations are at least `std_floor`."""

    def raw(self, action: jax.Array) -> jax.Array:
        """Raw actions of an expert's actions."""

    def nll(self, policy: P, raw: jax.Array) -> jax.Array:
        """`f32[...]`: -log of the policy's density at a raw action."""

    def cross_entropy(self, of: P, under: P) -> jax.Array:
        """`f32[...]`: E_{u~of}[-log under(u)]."""

    def entropy(self, of: P) -> jax.Array:
        """`f32[...]`: `cross_entropy(of, of)`."""

    def agreement(self, policy: P, action: jax.Array) -> jax.Array:
        """`f32[...]`: share of an action's numbers that the policy's mode agrees with."""


@dataclasses.dataclass(frozen=True)
class DiscreteActions:
    """One action out of `size`; A = `size` stands for one that is not shown."""

    size: int

    def __str__(self) -> str:
        return f"{self.size} discrete actions"

    @property
    def outputs(self) -> int:
        return self.size

    @property
    def fields(self) -> dict[str, int]:
        return {"num_actions": self.size}

    @property
    def convention(self) -> dict[str, Any]:
        return {}

    @property
    def range(self) -> str:
        return f"0 … {self.size - 1}"

    def contains(self, actions: np.ndarray) -> bool:
        whole = actions.ndim == 1 and np.issubdtype(actions.dtype, np.integer)
        return bool(whole and np.all((actions >= 0) & (actions < self.size)))

    def empty(self, shape: tuple[int, ...]) -> jax.Array:
        return jnp.zeros(shape, jnp.int32)

    def hide(self, action: jax.Array, where: jax.Array) -> jax.Array:
        return jnp.where(where, self.size, action)

    def init_embedding(self, key: jax.Array, width: int, rms: jax.Array) -> PyTree:
        return jax.random.normal(key, (self.size + 1, width)) * rms

    def embed(self, weights: PyTree, action: jax.Array) -> jax.Array:
        return weights[action]

    def distribution(self, outputs: jax.Array, std_floor: float = STD_LOW) -> Categorical:
        del std_floor
        return Categorical(outputs)

    def raw(self, action: jax.Array) -> jax.Array:
        return action

    def nll(self, policy: Categorical, raw: jax.Array) -> jax.Array:
        return -policy.log_prob(raw)

    def cross_entropy(self, of: Categorical, under: Categorical) -> jax.Array:
        return -jnp.sum(jnp.exp(of.log_probs()) * under.log_probs(), axis=-1)

    def entropy(self, of: Categorical) -> jax.Array:
        return of.entropy()

    def agreement(self, policy: Categorical, action: jax.Array) -> jax.Array:
        return (policy.mode() == action).astype(jnp.float32)


@dataclasses.dataclass(frozen=True)
class ContinuousActions:
    """`size` numbers in ±1, of which G gives raw means first and then what deviations come from."""

    size: int

    def __str__(self) -> str:
        return f"actions of {self.size} numbers in ±1"

    @property
    def outputs(self) -> int:
        return 2 * self.size

    @property
    def fields(self) -> dict[str, int]:
        return {"num_actions": 0, "action_size": self.size}

    @property
    def convention(self) -> dict[str, Any]:
        return {"squash": "tanh", "clip": CLIP}

    @property
    def range(self) -> str:
        return f"±1, {self.size} numbers each"

    def contains(self, actions: np.ndarray) -> bool:
        real = np.issubdtype(actions.dtype, np.floating) and actions.shape[1:] == (self.size,)
        return bool(real and np.all(np.abs(actions) <= 1))  # nan is not

    def empty(self, shape: tuple[int, ...]) -> jax.Array:
        return jnp.zeros((*shape, self.size))

    def hide(self, action: jax.Array, where: jax.Array) -> jax.Array:
        return jnp.where(where[..., None], NOT_SHOWN, action)

    def init_embedding(self, key: jax.Array, width: int, rms: jax.Array) -> PyTree:
        drawn = jax.random.normal(key, (self.size + 1, width)) * rms
        kernel = drawn[:-1] / math.sqrt(self.size)
        return {"kernel": kernel, "bias": jnp.zeros(width), "not_shown": drawn[-1]}

    def embed(self, weights: PyTree, action: jax.Array) -> jax.Array:
        hidden = jnp.any(action == NOT_SHOWN, axis=-1, keepdims=True)
        return jnp.where(hidden, weights["not_shown"], linear(weights, action))

    def distribution(self, outputs: jax.Array, std_floor: float = STD_LOW) -> TanhNormal:
        mean, spread = jnp.split(outputs, 2, axis=-1)
        # Within the range by a tanh; a spread of 0 is a deviation of 1.
        log_std = _MIDDLE + _HALF * jnp.tanh(spread + math.atanh(-_MIDDLE / _HALF))
        low, high = (-1.0,) * self.size, (1.0,) * self.size
        return TanhNormal(mean, jnp.maximum(log_std, math.log(std_floor)), low, high)

    def raw(self, action: jax.Array) -> jax.Array:
        return jnp.arctanh(jnp.clip(action, -CLIP, CLIP))

    def nll(self, policy: TanhNormal, raw: jax.Array) -> jax.Array:
        return _cross_entropy(raw, 0.0, policy)

    def cross_entropy(self, of: TanhNormal, under: TanhNormal) -> jax.Array:
        return _cross_entropy(of.mean, jnp.exp(2 * of.log_std), under)

    def entropy(self, of: TanhNormal) -> jax.Array:
        each = jnp.broadcast_to(of.log_std + _HALF_LOG_2PI + 0.5, of.mean.shape)
        return jnp.sum(each, axis=-1)

    def agreement(self, policy: TanhNormal, action: jax.Array) -> jax.Array:
        distance = jnp.abs(policy.action(policy.mode()) - action)
        return jnp.mean(distance <= NEAR, axis=-1, dtype=jnp.float32)


def _cross_entropy(mean: jax.Array, variance: jax.Array | float, policy: TanhNormal) -> jax.Array:
    """`f32[...]`: -log N(u; policy's) for u of that mean and variance `f32[..., D]`, summed.

    Each dimension has log σ + (variance + (mean - μ)²) / (2 σ²) + ½ log 2π.
    """
    spread = (variance + jnp.square(mean - policy.mean)) * jnp.exp(-2 * policy.log_std)
    return jnp.sum(policy.log_std + spread / 2 + _HALF_LOG_2PI, axis=-1)


def linear(weights: PyTree, x: jax.Array) -> jax.Array:
    """x W + b, in float32 on every device as in the decoder."""
    return jnp.matmul(x, weights["kernel"], precision=jax.lax.Precision.HIGHEST) + weights["bias"]


def from_map(action_map: Any) -> Actions[Any]:
    """The actions of an environment's or a dataset's action map.

    Raises:
      ValueError: it states none that a prior can have.
    """
    match action_map:
        case {"kind": "discrete", "n": int(size)} if size >= 1:
            return DiscreteActions(size)
        case {"kind": "continuous", "size": int(size), "low": -1, "high": 1} if size >= 1:
            return ContinuousActions(size)
    raise ValueError(
        "action_map must have kind 'discrete' and a whole number n, or kind 'continuous', a whole "
        f"number size, low -1 and high 1; not {action_map}"
    )


def of_policy(policy: Distribution) -> Actions[Any]:
    """The actions of a learner's policy.

    Raises:
      ValueError: it is none that a prior can guide or an expert teach.
    """
    if isinstance(policy, Categorical):
        return DiscreteActions(policy.logits.shape[-1])
    if not isinstance(policy, TanhNormal):
        raise ValueError(
            "network.policy must be 'tanh' for guidance by a prior and for cloning, whose "
            f"Gaussians are squashed, and actions discrete or numbers; not {type(policy).__name__}"
        )
    size = policy.mean.shape[-1]
    if set(policy.low) != {-1.0} or set(policy.high) != {1.0}:
        raise ValueError(
            "the environment's actions must lie in -1 … 1 for guidance by a prior and for "
            f"cloning, not in {policy.low} … {policy.high}"
        )
    return ContinuousActions(size)


def recorded_map(action_map: Mapping[str, Any]) -> dict[str, Any]:
    """An environment's action map as the card of a prior for it has it.

    Raises:
      ValueError: see `from_map`.
    """
    return {**action_map, **from_map(action_map).convention}

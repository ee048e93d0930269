"""Actor and critic with separate trunks: the small networks of PPO."""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxrl_guided.envs.types import Box, Discrete, MultiDiscrete, PyTree, Space
from jaxrl_guided.networks.distributions import (
    Categorical,
    ClippedNormal,
    Distribution,
    MultiCategorical,
    TanhNormal,
)
from jaxrl_guided.networks.layers import ACTIVATIONS, MLP, Convolutions, check_layers
from jaxrl_guided.networks.observations import make_encoder
from jaxrl_guided.runtime.config import added


@dataclasses.dataclass(frozen=True)
class NetworkConfig:
    """Size and form of the networks.

    Attributes:
      hidden: units of each hidden layer, the same for actor and critic.
      activation: `tanh`, `relu` or `silu`.
      policy: for real actions, `tanh` (squashed Gaussian) or `clipped` (Gaussian, then clipped).
      initial_std: standard deviation of raw real actions at the start; learned, the same in every
        state.
      conv: channels of 3 × 3 convolutions over an observation that is an image `[height, width,
        channels]`, before the hidden layers; empty for flattening it.
      shared: actor and critic share all layers but their last ones.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    policy: Literal["tanh", "clipped"] = "tanh"
    initial_std: float = 1.0
    conv: tuple[int, ...] = added(())
    shared: bool = added(False)

    def __post_init__(self) -> None:
        check_layers(self.hidden, self.activation)
        if self.policy not in ("tanh", "clipped"):
            raise ValueError(f"network.policy must be 'tanh' or 'clipped', not {self.policy!r}")
        if self.initial_std <= 0:
            raise ValueError(f"network.initial_std must be positive, not {self.initial_std}")
        if min(self.conv, default=1) < 1:
            raise ValueError(f"network.conv must be positive numbers, not {self.conv}")


@dataclasses.dataclass(frozen=True)
class Network:
    """Pure functions over a nested dictionary of parameters.

    Attributes:
      observation_space: of one environment.
      init: `key -> params`.
      apply: `(params, obs [..., *]) -> (Distribution, value f32[...])`.
      value: `(params, obs [..., *]) -> f32[...]`, the critic alone.
      action: `raw action -> action that the environment receives`.
    """

    observation_space: Space
    init: Callable[[jax.Array], PyTree]
    apply: Callable[[PyTree, PyTree], tuple[Distribution, jax.Array]]
    value: Callable[[PyTree, PyTree], jax.Array]
    action: Callable[[jax.Array], jax.Array]


def make_actor_critic(
    observation_space: Space,
    action_space: Space,
    config: NetworkConfig,
    features: jax.Array | None = None,
) -> Network:
    """Build a network for a pair of spaces.

    Observations enter as `observations.make_encoder` says, already normalised by the learner.

    Args:
      features: `f32[I, d]`, one row per id of the observation's `instruction` leaf.

    Raises:
      ValueError: a space that the network cannot serve, or features of the wrong length.
    """
    shape, encode = _inputs(observation_space, config, features)
    outputs, distribution = _policy_head(action_space, config)
    learns_std = isinstance(action_space, Box)

    def build(rngs: nnx.Rngs) -> _ActorCritic:
        return _ActorCritic(shape, outputs, learns_std, config, rngs)

    graph = nnx.split(nnx.eval_shape(lambda: build(nnx.Rngs(0))))[0]

    def init(key: jax.Array) -> PyTree:
        return nnx.to_pure_dict(nnx.split(build(nnx.Rngs(key)))[1])

    def apply(params: PyTree, obs: PyTree) -> tuple[Distribution, jax.Array]:
        module = nnx.merge(graph, params)
        policy, value = module(encode(obs))
        log_std = module.log_std[...] if learns_std else None
        return distribution(policy, log_std), value

    def value(params: PyTree, obs: PyTree) -> jax.Array:
        return nnx.merge(graph, params).value(encode(obs))

    no_output = jnp.zeros(outputs)
    action = distribution(no_output, no_output if learns_std else None).action
    return Network(observation_space, init, apply, value, action)


class _ActorCritic(nnx.Module):
    """Two networks, or one with two heads; images go through convolutions first."""

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        learns_std: bool,
        config: NetworkConfig,
        rngs: nnx.Rngs,
    ) -> None:
        self.activation, self.shared = config.activation, config.shared
        if config.conv:
            names = ("conv",) if config.shared else ("actor_conv", "critic_conv")
            for name in names:
                conv = Convolutions(config.conv, shape[-1], config.activation, rngs)
                setattr(self, name, conv)
        sizes = (_conv_outputs(shape, config.conv), *config.hidden)
        if config.shared:
            self.body = MLP(sizes, config.activation, math.sqrt(2), rngs)
            sizes = sizes[-1:]
        # A small last layer makes the first policy nearly the same in every state.
        self.actor = MLP((*sizes, outputs), config.activation, 0.01, rngs)
        self.critic = MLP((*sizes, 1), config.activation, 1.0, rngs)
        if learns_std:
            self.log_std = nnx.Param(
                jnp.full((outputs,), jnp.float32(math.log(config.initial_std)))
            )

    def __call__(self, x: jax.Array) -> tuple[jax.Array, jax.Array]:
        """The actor's outputs and the value."""
        if self.shared:
            x = self._body(x)
            return self.actor(x), self.critic(x)[..., 0]
        return self.actor(self._image("actor_conv", x)), self.value(x)

    def value(self, x: jax.Array) -> jax.Array:
        x = self._body(x) if self.shared else self._image("critic_conv", x)
        return self.critic(x)[..., 0]

    def _body(self, x: jax.Array) -> jax.Array:
        return ACTIVATIONS[self.activation](self.body(self._image("conv", x)))

    def _image(self, name: str, x: jax.Array) -> jax.Array:
        """The convolutions of that name, where there are any."""
        return getattr(self, name)(x) if hasattr(self, name) else x


def _inputs(
    space: Space, config: NetworkConfig, features: jax.Array | None
) -> tuple[tuple[int, ...], Callable[[PyTree], jax.Array]]:
    """Shape of the network's input, and `obs -> f32[..., *shape]`."""
    if not config.conv:
        size, encode = make_encoder(space, features)
        return (size,), encode
    if not isinstance(space, Box) or len(space.shape) != 3:
        raise ValueError(f"network.conv needs observations [height, width, channels], not {space}")
    if _conv_outputs(space.shape, config.conv) < 1:
        raise ValueError(f"network.conv {config.conv} is too deep for an image of {space.shape}")
    return space.shape, lambda obs: obs.astype(jnp.float32)


def _conv_outputs(shape: tuple[int, ...], channels: tuple[int, ...]) -> int:
    """Numbers that come out of the convolutions; without them, those that go in."""
    if not channels:
        return math.prod(shape)
    height, width = (max(size - 2 * len(channels), 0) for size in shape[:2])
    return height * width * channels[-1]


def _policy_head(
    space: Space, config: NetworkConfig
) -> tuple[int, Callable[[jax.Array, jax.Array | None], Distribution]]:
    """Number of outputs, and `(outputs [..., K], log_std [K] | None) -> Distribution`."""
    if isinstance(space, Discrete) and space.shape == ():
        return space.n, lambda logits, _: Categorical(logits)
    if isinstance(space, MultiDiscrete):
        return sum(space.sizes), lambda logits, _: MultiCategorical(logits, space.sizes)
    if not isinstance(space, Box) or len(space.shape) != 1:
        raise ValueError(
            "action space must be Discrete(n), MultiDiscrete(sizes) or Box of shape (d,), "
            f"not {space}"
        )
    low, high = (tuple(np.broadcast_to(b, space.shape).tolist()) for b in (space.low, space.high))
    if config.policy == "tanh" and not np.isfinite([low, high]).all():
        raise ValueError(f"network.policy='tanh' needs finite action bounds, not {low}, {high}")
    family = TanhNormal if config.policy == "tanh" else ClippedNormal
    return space.shape[0], lambda mean, log_std: family(mean, log_std, low, high)

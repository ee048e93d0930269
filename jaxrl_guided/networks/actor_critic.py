"""Actor and critic: the small networks of PPO, with or without memory."""

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
from jaxrl_guided.networks.layers import ACTIVATIONS, GRU, MLP, Convolutions, check_layers
from jaxrl_guided.networks.observations import make_encoder
from jaxrl_guided.runtime.config import added
from jaxrl_guided.runtime.ranges import NOT_NEGATIVE, POSITIVE, check, check_choice

Memory = dict[str, jax.Array]
"""`f32[N, units]` of each recurrent layer, by its name."""


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
      gru: units of a gated recurrent unit (arXiv 1406.1078) before the hidden layers, which
        remembers the episode; 0 for none.
    """

    hidden: tuple[int, ...] = (64, 64)
    activation: Literal["tanh", "relu", "silu"] = "tanh"
    policy: Literal["tanh", "clipped"] = "tanh"
    initial_std: float = 1.0
    conv: tuple[int, ...] = added(())
    shared: bool = added(False)
    gru: int = added(0)

    def __post_init__(self) -> None:
        check_layers(self.hidden, self.activation)
        check_choice(self, "policy", ("tanh", "clipped"))
        check(self, POSITIVE, "initial_std")
        check(self, NOT_NEGATIVE, "gru")
        if min(self.conv, default=1) < 1:
            raise ValueError(f"conv must be positive numbers, not {self.conv}")


@dataclasses.dataclass(frozen=True)
class Network:
    """Pure functions over a nested dictionary of parameters.

    Memory is a pytree `[N, …]`; that of a network without any is empty, and then N may be any
    shape.

    Attributes:
      observation_space: of one environment.
      recurrent: whether there is memory, so that learning needs sequences.
      init: `key -> params`.
      memory: `N -> memory` at the start of an episode.
      step: `(params, memory, obs [N, *]) -> (memory, Distribution, value f32[N])`.
      value: `(params, memory, obs [N, *]) -> f32[N]`, the critic alone.
      unroll: `(params, memory, obs [N, T, *], done bool[N, T]) -> (Distribution, value f32[N, T])`,
        what T calls of `step` give, each memory being that of a start after `done`; without memory
        as `step`, and `done` may be None.
      action: `raw action -> action that the environment receives`.
    """

    observation_space: Space
    recurrent: bool
    init: Callable[[jax.Array], PyTree]
    memory: Callable[[int], Memory]
    step: Callable[[PyTree, Memory, PyTree], tuple[Memory, Distribution, jax.Array]]
    value: Callable[[PyTree, Memory, PyTree], jax.Array]
    unroll: Callable[[PyTree, Memory, PyTree, jax.Array | None], tuple[Distribution, jax.Array]]
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

    def step(
        params: PyTree, memory: Memory, obs: PyTree, done: jax.Array | None = None
    ) -> tuple[Memory, Distribution, jax.Array]:
        module = nnx.merge(graph, params)
        memory, policy, value = module(memory, encode(obs), done)
        log_std = module.log_std[...] if learns_std else None
        return memory, distribution(policy, log_std), value

    def value(params: PyTree, memory: Memory, obs: PyTree) -> jax.Array:
        return nnx.merge(graph, params).value(memory, encode(obs), None)[1]

    def unroll(
        params: PyTree, memory: Memory, obs: PyTree, done: jax.Array | None
    ) -> tuple[Distribution, jax.Array]:
        return step(params, memory, obs, done)[1:]

    def memory(num_envs: int) -> Memory:
        names = _trunks(config, "gru") if config.gru else ()
        return {name: jnp.zeros((num_envs, config.gru)) for name in names}

    no_output = jnp.zeros(outputs)
    action = distribution(no_output, no_output if learns_std else None).action
    recurrent = config.gru > 0
    return Network(observation_space, recurrent, init, memory, step, value, unroll, action)


def _trunks(config: NetworkConfig, part: str) -> tuple[str, ...]:
    """Names of a part that each trunk has."""
    return (part,) if config.shared else (f"actor_{part}", f"critic_{part}")


class _ActorCritic(nnx.Module):
    """Two networks, or one with two heads: convolutions, memory, hidden layers.

    Methods take memory, inputs, and `done`: None for a step `[N, *]`, else those are sequences
    `[N, T, *]`.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        outputs: int,
        learns_std: bool,
        config: NetworkConfig,
        rngs: nnx.Rngs,
    ) -> None:
        self.activation, self.shared = config.activation, config.shared
        inputs = _conv_outputs(shape, config.conv)
        if config.conv:
            for name in _trunks(config, "conv"):
                conv = Convolutions(config.conv, shape[-1], config.activation, rngs)
                setattr(self, name, conv)
        if config.gru:
            for name in _trunks(config, "gru"):
                setattr(self, name, GRU(inputs, config.gru, rngs))
            inputs = config.gru
        sizes = (inputs, *config.hidden)
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

    def __call__(
        self, memory: Memory, x: jax.Array, done: jax.Array | None
    ) -> tuple[Memory, jax.Array, jax.Array]:
        """The memory afterwards, the actor's outputs and the value."""
        if self.shared:
            memory, x = self._body(memory, x, done)
            return memory, self.actor(x), self.critic(x)[..., 0]
        acting, seen = self._trunk("actor_", memory, x, done)
        valuing, value = self.value(memory, x, done)
        return acting | valuing, self.actor(seen), value

    def value(
        self, memory: Memory, x: jax.Array, done: jax.Array | None
    ) -> tuple[Memory, jax.Array]:
        if self.shared:
            memory, x = self._body(memory, x, done)
        else:
            memory, x = self._trunk("critic_", memory, x, done)
        return memory, self.critic(x)[..., 0]

    def _body(
        self, memory: Memory, x: jax.Array, done: jax.Array | None
    ) -> tuple[Memory, jax.Array]:
        memory, x = self._trunk("", memory, x, done)
        return memory, ACTIVATIONS[self.activation](self.body(x))

    def _trunk(
        self, prefix: str, memory: Memory, x: jax.Array, done: jax.Array | None
    ) -> tuple[Memory, jax.Array]:
        """Convolutions and memory of that trunk, where there are any."""
        if hasattr(self, f"{prefix}conv"):
            x = getattr(self, f"{prefix}conv")(x)
        if not hasattr(self, f"{prefix}gru"):
            return {}, x
        name = f"{prefix}gru"
        now, x = getattr(self, name)(memory[name], x, done)
        return {name: now}, x


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

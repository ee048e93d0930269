"""Actor and critics of SAC, for real and for discrete actions.

Real actions are dealt with on the unit scale, where each number is in [-1, 1]: critics read them
and densities are taken there, so that an entropy means the same in every environment.
"""

import dataclasses
import math
from collections.abc import Callable
from typing import Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from jaxrl_guided.envs.types import Box, Discrete, PyTree, Space
from jaxrl_guided.networks.distributions import Categorical, Distribution, TanhNormal
from jaxrl_guided.networks.layers import MLP, check_layers
from jaxrl_guided.networks.observations import make_encoder
from jaxrl_guided.runtime.ranges import COUNT, check

LOG_STD_LOW, LOG_STD_HIGH = -5.0, 2.0
"""Range of the actor's logarithmic deviations, reached through a tanh."""


@dataclasses.dataclass(frozen=True)
class SoftNetworkConfig:
    """Size and form of the networks.

    Attributes:
      hidden: units of each hidden layer, the same for actor and critics.
      activation: `relu`, `tanh` or `silu`.
      critics: independent critics, of which the lowest value counts.
    """

    hidden: tuple[int, ...] = (256, 256)
    activation: Literal["relu", "tanh", "silu"] = "relu"
    critics: int = 2

    def __post_init__(self) -> None:
        check_layers(self.hidden, self.activation)
        check(self, COUNT, "critics")


@dataclasses.dataclass(frozen=True)
class SoftNetwork:
    """Pure functions over nested dictionaries of parameters.

    Attributes:
      num_actions: of a discrete environment; 0 for real actions.
      action_size: numbers in a real action; 0 for discrete ones.
      init: `key -> (actor's parameters, critics' parameters)`, those of the critics with them on
        the first axis.
      policy: `(actor, obs [B, …]) -> Distribution`, on the unit scale for real actions.
      values: `(critics, obs [B, …], unit action [B, D]) -> f32[critics, B]`; for discrete actions
        `(critics, obs, None) -> f32[critics, B, A]`.
      to_env: `unit action -> action that the environment receives`.
      from_env: its inverse.
    """

    num_actions: int
    action_size: int
    init: Callable[[jax.Array], tuple[PyTree, PyTree]]
    policy: Callable[[PyTree, PyTree], Distribution]
    values: Callable[[PyTree, PyTree, jax.Array | None], jax.Array]
    to_env: Callable[[jax.Array], jax.Array]
    from_env: Callable[[jax.Array], jax.Array]

    @property
    def discrete(self) -> bool:
        """Whether actions are integers."""
        return self.num_actions > 0


def make_soft_network(
    observation_space: Space,
    action_space: Space,
    config: SoftNetworkConfig,
    features: jax.Array | None = None,
) -> SoftNetwork:
    """Build the networks for a pair of spaces; see `observations.make_encoder` for the inputs.

    Raises:
      ValueError: actions are neither `Discrete(n)` nor a bounded `Box` of shape (d,).
    """
    inputs, encode = make_encoder(observation_space, features)
    num_actions, size = _num_actions(action_space)
    discrete = num_actions > 0
    low, high = (-1.0,) * size, (1.0,) * size

    def build_actor(rngs: nnx.Rngs) -> MLP:
        sizes = (inputs, *config.hidden, num_actions or 2 * size)
        return MLP(sizes, config.activation, 0.01, rngs)

    def build_critic(rngs: nnx.Rngs) -> MLP:
        sizes = (inputs + size, *config.hidden, num_actions or 1)
        return MLP(sizes, config.activation, 1.0, rngs)

    actor_graph, critic_graph = (
        nnx.split(nnx.eval_shape(lambda build=build: build(nnx.Rngs(0))))[0]
        for build in (build_actor, build_critic)
    )

    def init(key: jax.Array) -> tuple[PyTree, PyTree]:
        actor_key, critic_key = jax.random.split(key)
        critics = jax.vmap(lambda k: _params(build_critic, k))(
            jax.random.split(critic_key, config.critics)
        )
        return _params(build_actor, actor_key), critics

    def policy(actor: PyTree, obs: PyTree) -> Distribution:
        outputs = nnx.merge(actor_graph, actor)(encode(obs))
        if discrete:
            return Categorical(outputs)
        mean, spread = jnp.split(outputs, 2, axis=-1)
        middle, half = (LOG_STD_HIGH + LOG_STD_LOW) / 2, (LOG_STD_HIGH - LOG_STD_LOW) / 2
        # Starts at a deviation of 1, the tanh's argument being 0 there.
        log_std = middle + half * jnp.tanh(spread + math.atanh(-middle / half))
        return TanhNormal(mean, log_std, low, high)

    def values(critics: PyTree, obs: PyTree, unit: jax.Array | None) -> jax.Array:
        x = encode(obs)
        x = x if unit is None else jnp.concatenate([x, unit], axis=-1)
        # A copy for each critic: a batched product is faster than one that shares its input.
        x = jnp.broadcast_to(x, (config.critics, *x.shape))
        out = jax.vmap(lambda critic, x: nnx.merge(critic_graph, critic)(x))(critics, x)
        return out if discrete else out[..., 0]

    to_env, from_env = _scale(action_space)
    return SoftNetwork(num_actions, size, init, policy, values, to_env, from_env)


def _params(build: Callable[[nnx.Rngs], nnx.Module], key: jax.Array) -> PyTree:
    return nnx.to_pure_dict(nnx.split(build(nnx.Rngs(key)))[1])


def _num_actions(space: Space) -> tuple[int, int]:
    """Number of discrete actions, or else of the numbers in a real one."""
    if isinstance(space, Discrete) and space.shape == ():
        return space.n, 0
    if isinstance(space, Box) and len(space.shape) == 1 and space.bounded:
        return 0, space.shape[0]
    raise ValueError(f"actions must be Discrete(n) or a bounded Box of shape (d,), not {space}")


def _scale(
    space: Space,
) -> tuple[Callable[[jax.Array], jax.Array], Callable[[jax.Array], jax.Array]]:
    """From the unit scale to the environment's actions and back; nothing to do for integers."""
    if not isinstance(space, Box):
        return (lambda action: action), (lambda action: action)
    low, high = (np.broadcast_to(bound, space.shape) for bound in (space.low, space.high))
    centre, half = jnp.float32((high + low) / 2), jnp.float32((high - low) / 2)
    return (lambda unit: centre + half * unit), (lambda action: (action - centre) / half)

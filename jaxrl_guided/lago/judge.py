"""How policies of the LaGO experiment are judged: the same episodes for every arm.

Every policy plays each episode twice, greedily and sampled, with termination off: the first success
ends what is counted, and the last step shows whether it lasted.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.text_features import MINILM_DIM, text_features, whiten
from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.types import PyTree, VectorEnv
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.prior import PriorSpec, init_cache, step_action, step_outputs
from jaxrl_guided.learners.evaluate import EpisodeResults, evaluate, uniform_action
from jaxrl_guided.learners.ppo import Policy, act
from jaxrl_guided.networks.actor_critic import Network, make_actor_critic

EVAL_SEED = 2_000_000_000
"""Evaluation keys come from here; training seeds are small numbers."""

FEATURE_LEVEL = "real"
"""Level over whose texts sentence vectors are whitened, whatever the level of the policy."""

Act = Callable[[PyTree, jax.Array, PyTree, jax.Array], tuple[PyTree, jax.Array]]
"""`(memory, key, obs, greedy bool[]) -> (memory, action)`."""


def eval_key(level: str, curve: bool = False) -> jax.Array:
    """The key of a level's evaluation episodes, never used in training; curves have their own."""
    key = jax.random.fold_in(jax.random.key(EVAL_SEED), zlib.crc32(level.encode()))
    return jax.random.fold_in(key, int(curve))


def level_env(config: OnlineConfig, level: str, num_envs: int, **options: Any) -> VectorEnv:
    """An environment of the run's family, reward and horizon."""
    return make(
        f"{config.env}/{level}",
        num_envs=num_envs,
        reward=config.reward,
        horizon=config.horizon,
        **options,
    )


def make_network(config: OnlineConfig, level: str, env: VectorEnv) -> Network:
    """The policy network for a level; parameters fit every level with the same features."""
    kind, size = config.features, config.feature_size
    vectors = _features(level, kind, size, config.feature_components)
    features = jnp.asarray(config.feature_scale * vectors)
    return make_actor_critic(env.observation_space, env.action_space, config.network, features)


@functools.lru_cache(maxsize=16)
def _features(level: str, kind: Any, size: int, components: int | None) -> np.ndarray:
    """Sentence vectors `f32[I, d]` of a level's texts: of unit length, or whitened components.

    Each text is read, and each level whitened, once.
    """
    if components is not None:
        levels = (level, FEATURE_LEVEL)
        vectors, reference = (_features(name, kind, size, None) for name in levels)
        return whiten(vectors, reference, components)
    texts = instruction_set(level).texts
    unique, index = np.unique(texts, return_inverse=True)
    dim = size if kind == "hashed" else MINILM_DIM
    return text_features(unique.tolist(), kind=kind, dim=dim)[index]


def _play(
    env: VectorEnv, act: Act, key: jax.Array, horizon: int, memory: PyTree = ()
) -> EpisodeResults:
    """Episodes `[2, N]`: greedy ones first, then sampled ones."""

    def one(greedy: jax.Array) -> EpisodeResults:
        return evaluate(
            env,
            lambda memory, key, obs: act(memory, key, obs, greedy),
            key,
            horizon,
            memory,
            until_success=True,
        )

    return jax.vmap(one)(jnp.array([True, False]))


def _report(results: EpisodeResults) -> dict[str, list[float]]:
    """Means over episodes for every seed, from results `[S, 2, N]`."""
    greedy = jax.tree.map(lambda x: x[:, 0], results)
    means = {
        "success": greedy.success,
        "return": greedy.returns,
        "length": greedy.length,
        "sampled_success": results.success[:, 1],
        "success_at_end": greedy.success_at_end,
    }
    return {name: np.asarray(x.mean(axis=-1)).tolist() for name, x in means.items()}


def judge_policy(
    config: OnlineConfig, policy: Policy, level: str, curve: bool = False
) -> dict[str, list[float]]:
    """Results of the policies of all seeds (leading axis) on a level.

    Args:
      curve: use the fewer episodes of curves instead of the final ones.

    Returns:
      `success`, `return`, `length`, `success_at_end` of greedy and `sampled_success` of sampled
      actions, a list over seeds each.
    """
    shared = dataclasses.replace(config, arm="random", seeds=(0,), level="real")
    episodes = config.eval.curve_episodes if curve else config.eval.episodes
    program = _policy_program(shared, level, episodes)
    return _report(program(policy, eval_key(level, curve)))


@functools.lru_cache(maxsize=8)
def _policy_program(
    config: OnlineConfig, level: str, episodes: int
) -> Callable[[Policy, jax.Array], EpisodeResults]:
    """One compiled program serves all arms that share everything but training."""
    env = level_env(config, level, episodes, terminate_on_success=False)
    network = make_network(config, level, env)

    def run(policy: Policy, key: jax.Array) -> EpisodeResults:
        def choose(
            memory: PyTree, key: jax.Array, obs: PyTree, greedy: jax.Array
        ) -> tuple[PyTree, jax.Array]:
            (memory, best), (_, drawn) = (
                act(network, policy, memory, key, obs, greedy=mode) for mode in (True, False)
            )
            return memory, jnp.where(greedy, best, drawn)

        return _play(env, choose, key, config.horizon, network.memory(env.num_envs))

    return jax.jit(jax.vmap(run, in_axes=(0, None)))


def judge_random(config: OnlineConfig, level: str) -> dict[str, list[float]]:
    """Uniform random actions; every seed draws its own."""
    env = level_env(config, level, config.eval.episodes, terminate_on_success=False)

    def run(seed: jax.Array, key: jax.Array) -> EpisodeResults:
        def choose(
            memory: PyTree, key: jax.Array, obs: PyTree, greedy: jax.Array
        ) -> tuple[PyTree, jax.Array]:
            key = jax.random.fold_in(key, seed)
            return memory, uniform_action(env, key)

        return _play(env, choose, key, config.horizon)

    results = jax.jit(jax.vmap(run, in_axes=(0, None)))(jnp.asarray(config.seeds), eval_key(level))
    return _report(results)


def judge_prior(
    config: OnlineConfig, spec: PriorSpec, frozen: FrozenPrior, level: str
) -> dict[str, list[float]]:
    """The prior as controller, step by step with a key-value cache; the same for every seed.

    Args:
      frozen: the prior with the texts of `level`.
    """
    env = level_env(config, level, config.eval.episodes, terminate_on_success=False)

    def run(frozen: FrozenPrior, key: jax.Array) -> EpisodeResults:
        choose = functools.partial(act_by_prior, spec, frozen)
        return _play(env, choose, key, config.horizon, init_cache(spec, env.num_envs))

    results = jax.jit(run)(frozen, eval_key(level))
    return _report(jax.tree.map(lambda x: jnp.stack([x] * len(config.seeds)), results))


def act_by_prior(
    spec: PriorSpec,
    frozen: FrozenPrior,
    cache: PyTree,
    key: jax.Array,
    obs: PyTree,
    greedy: jax.Array | bool = False,
) -> tuple[PyTree, jax.Array]:
    """The prior's actions `[N, …]`, sampled or of the largest density, and its cache after them.

    Args:
      cache: of N running episodes; that of `init_cache` at their start.
      obs: `{"state": f32[N, …], "instruction": i32[N]}`, raw.
    """
    prior, texts, text = frozen.prior, frozen.texts, obs["instruction"]
    state = obs["state"][:, : spec.state_size]
    outputs, cache = step_outputs(spec, prior, texts, cache, text, state)
    said = spec.actions.distribution(outputs)
    action = said.action(jnp.where(greedy, said.mode(), said.sample(key)))
    running = jnp.zeros(text.shape, bool)
    return step_action(spec, prior, texts, cache, text, action, running), action

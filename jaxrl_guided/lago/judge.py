"""How policies of the LaGO experiment are judged: the same episodes for every arm.

Every policy plays each episode twice, greedily and sampled, with termination off: the first success
ends what is counted, and the last step shows whether it lasted.
"""

import contextlib
import dataclasses
import functools
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.backbones.text_features import MINILM_DIM, text_features, whiten
from jaxrl_guided.envs import make
from jaxrl_guided.envs.types import PyTree, Space, VectorEnv
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.families import family_of
from jaxrl_guided.lago.guidance import FrozenPrior
from jaxrl_guided.lago.prior import PriorSpec, init_cache, step_action, step_outputs
from jaxrl_guided.learners import ppo, sac
from jaxrl_guided.learners.evaluate import EpisodeResults, uniform_action
from jaxrl_guided.learners.members import Player, make_player
from jaxrl_guided.networks.actor_critic import Network, make_actor_critic
from jaxrl_guided.networks.soft import SoftNetwork, make_soft_network

EVAL_SEED = 2_000_000_000
"""Evaluation keys come from here; training seeds are small numbers."""

FEATURE_LEVEL = "real"
"""Level over whose texts sentence vectors are whitened, whatever the level of the policy."""

HOST_EPISODES = 20
"""Of each member at a time, where the host steps environments."""

Numbers = dict[str, list[float]]
"""`success`, `return`, `length`, `success_at_end` of greedy and `sampled_success` of sampled
actions, a list over seeds each."""

Judge = Callable[[PyTree], Numbers]
"""From the policies of all seeds (leading axis) to their results."""


def eval_key(level: str, curve: bool = False) -> jax.Array:
    """The key of a level's evaluation episodes, never used in training; curves have their own."""
    key = jax.random.fold_in(jax.random.key(EVAL_SEED), zlib.crc32(level.encode()))
    return jax.random.fold_in(key, int(curve))


def level_env(config: OnlineConfig, level: str, num_envs: int, **options: Any) -> VectorEnv:
    """An environment of the run's family, reward and horizon."""
    if len(config.family.rewards) > 1:
        options["reward"] = config.reward
    name = f"{config.env}/{level}"
    return make(name, num_envs=num_envs, horizon=config.horizon, **options)


@functools.lru_cache(maxsize=16)
def spaces_of(name: str) -> tuple[Space, Space]:
    """Observations and actions of an environment."""
    with contextlib.closing(make(name)) as env:
        return env.observation_space, env.action_space


def make_network(config: OnlineConfig, level: str, env: VectorEnv | None = None) -> Network:
    """The policy network of PPO for a level; parameters fit every level with the same features.

    Args:
      env: of the level, if there is one already.
    """
    spaces = _spaces(config, level, env)
    return make_actor_critic(*spaces, config.network, policy_features(config, level))


def make_soft(config: OnlineConfig, level: str, env: VectorEnv | None = None) -> SoftNetwork:
    """The networks of SAC for a level, as `make_network`."""
    spaces = _spaces(config, level, env)
    return make_soft_network(*spaces, config.soft, policy_features(config, level))


def _spaces(config: OnlineConfig, level: str, env: VectorEnv | None) -> tuple[Space, Space]:
    if env is not None:
        return env.observation_space, env.action_space
    return spaces_of(f"{config.env}/{level}")


def policy_features(config: OnlineConfig, level: str) -> jax.Array:
    """Features `f32[I, d]` of a level's texts, as policies read them."""
    kind, size = config.features, config.feature_size
    vectors = _features(config.env, level, kind, size, config.feature_components)
    return jnp.asarray(config.feature_scale * vectors)


@functools.lru_cache(maxsize=16)
def _features(env: str, level: str, kind: Any, size: int, components: int | None) -> np.ndarray:
    """Sentence vectors `f32[I, d]` of a level's texts: of unit length, or whitened components.

    Each text is read, and each level whitened, once.
    """
    if components is not None:
        levels = (level, FEATURE_LEVEL)
        vectors, reference = (_features(env, name, kind, size, None) for name in levels)
        return whiten(vectors, reference, components)
    texts = family_of(env).instructions(level).texts
    unique, index = np.unique(texts, return_inverse=True)
    dim = size if kind == "hashed" else MINILM_DIM
    return text_features(unique.tolist(), kind=kind, dim=dim)[index]


def _judged_env(config: OnlineConfig, level: str, episodes: int, members: int) -> VectorEnv:
    """All episodes at once, or a few at a time where each needs a simulation on the host."""
    options: dict[str, Any] = {"terminate_on_success": False}
    if config.on_host:
        options["members"] = members
        episodes = min(episodes, HOST_EPISODES)
    return level_env(config, level, episodes, **options)


BOTH = (True, False)
"""Greedy and sampled actions."""


def _report(results: EpisodeResults, modes: int) -> Numbers:
    """Means over episodes for every seed, from results `[S * modes, N]`, greedy ones first."""
    found = jax.tree.map(lambda x: np.asarray(x).reshape(-1, modes, x.shape[-1]), results)
    greedy = jax.tree.map(lambda x: x[:, 0], found)
    means = {
        "success": greedy.success,
        "return": greedy.returns,
        "length": greedy.length,
        "sampled_success": found.success[:, -1],
        "success_at_end": greedy.success_at_end,
    }
    return {name: x.mean(axis=-1).tolist() for name, x in means.items()}


def judge_policy(config: OnlineConfig, policy: PyTree, level: str) -> Numbers:
    """Final results of the policies of all seeds (leading axis) on a level."""
    with open_judge(config, level) as judge:
        return judge(policy)


@contextlib.contextmanager
def open_judge(config: OnlineConfig, level: str, curve: bool = False) -> Iterator[Judge]:
    """Judges policies on a level again and again.

    Args:
      config: its number of seeds is that of the policies.
      curve: use the fewer episodes of curves instead of the final ones, and greedy actions alone.
    """
    episodes = config.eval.curve_episodes if curve else config.eval.episodes
    modes = BOTH[:1] if curve else BOTH
    members = len(config.seeds) * len(modes)
    key, greedy = eval_key(level, curve), jnp.tile(jnp.array(modes), len(config.seeds))

    def judge_with(play: Player) -> Judge:
        def judge(policies: PyTree) -> Numbers:
            each = jax.tree.map(lambda x: jnp.repeat(x, len(modes), axis=0), policies)
            return _report(play((each, greedy), key), len(modes))

        return judge

    if not config.on_host:
        shared = dataclasses.replace(config, arm=config.algorithm, seeds=(0,), level="real")
        yield judge_with(_policy_player(shared, level, episodes))
        return
    with contextlib.closing(_judged_env(config, level, episodes, members)) as env:
        yield judge_with(_make_policy_player(config, level, env, episodes))


@functools.lru_cache(maxsize=8)
def _policy_player(config: OnlineConfig, level: str, episodes: int) -> Player:
    """One compiled program serves all arms that share everything but training."""
    env = _judged_env(config, level, episodes, 1)
    return _make_policy_player(config, level, env, episodes)


def make_act(
    config: OnlineConfig, level: str, env: VectorEnv | None = None
) -> Callable[..., tuple[PyTree, jax.Array]]:
    """`(policy, memory, key, obs [N, …], greedy=False) -> (memory, action [N, …])` of the arm.

    There is no memory, `{}` at the start.

    Args:
      env: of the level, if there is one already.
    """
    if config.algorithm == "sac":
        return functools.partial(sac.act, make_soft(config, level, env))
    return functools.partial(ppo.act, make_network(config, level, env))


def _make_policy_player(config: OnlineConfig, level: str, env: VectorEnv, episodes: int) -> Player:
    act = make_act(config, level, env)

    def choose(who: PyTree, memory: PyTree, key: jax.Array, obs: PyTree) -> Any:
        policy, greedy = who
        (memory, best), (_, drawn) = (
            act(policy, memory, key, obs, greedy=mode) for mode in (True, False)
        )
        return memory, jnp.where(greedy, best, drawn)

    return make_player(env, choose, episodes, config.horizon, {}, until_success=True)


def judge_random(config: OnlineConfig, level: str) -> Numbers:
    """Uniform random actions, each seed's its own; those of no policy, sampled or not."""
    seeds, episodes = jnp.asarray(config.seeds), config.eval.episodes
    with contextlib.closing(_judged_env(config, level, episodes, len(seeds))) as env:

        def choose(seed: jax.Array, memory: PyTree, key: jax.Array, obs: PyTree) -> Any:
            del obs
            return memory, uniform_action(env, jax.random.fold_in(key, seed))

        play = make_player(env, choose, episodes, config.horizon, until_success=True)
        return _report(play(seeds, eval_key(level)), 1)


def judge_prior(config: OnlineConfig, spec: PriorSpec, frozen: FrozenPrior, level: str) -> Numbers:
    """The prior as controller, step by step with a key-value cache; the same for every seed.

    Args:
      frozen: the prior with the texts of `level`.
    """
    episodes = config.eval.episodes
    with contextlib.closing(_judged_env(config, level, episodes, 2)) as env:

        def choose(who: PyTree, cache: PyTree, key: jax.Array, obs: PyTree) -> Any:
            frozen, greedy = who
            return act_by_prior(spec, frozen, cache, key, obs, greedy)

        cache = init_cache(spec, env.num_envs)
        steps = config.horizon
        play = make_player(env, choose, episodes, steps, cache, until_success=True, axes=(None, 0))
        found = _report(play((frozen, jnp.array(BOTH)), eval_key(level)), len(BOTH))
    return {name: values * len(config.seeds) for name, values in found.items()}


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

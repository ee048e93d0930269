"""Collects episodes of the scripted CLEVR-Robot expert (LaGO, arXiv 2606.24669)."""

import functools
import importlib.metadata
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.env import ACTION_MAP, make_clevr
from jaxrl_guided.envs.clevr.expert import expert_action
from jaxrl_guided.envs.clevr.goals import RewardName
from jaxrl_guided.envs.clevr.instructions import InstructionSet
from jaxrl_guided.envs.clevr.table import NUM_ACTIONS, NUM_BALLS
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.types import PyTree, VectorEnv

Policy = Callable[[jax.Array, PyTree], tuple[jax.Array, jax.Array]]
"""`(key, obs[N, …]) -> (action i32[N], is_expert bool[N])`."""

Progress = Callable[[int, int], None]
"""Called after every chunk with the episodes that are complete and those wanted."""

CHUNK_STEPS = 16


def collect(
    instructions: InstructionSet,
    num_episodes: int,
    key: jax.Array,
    *,
    num_envs: int = 512,
    reward: RewardName = "goal",
    horizon: int = 50,
    random_fraction: float = 0.2,
    progress: Progress | None = None,
) -> Episodes:
    """Whole episodes of the scripted expert with some random actions.

    Args:
      instructions: the level's instructions, drawn uniformly.
      num_episodes: how many episodes to keep.
      key: random key; the same key and arguments give the same episodes.
      num_envs: episodes that run side by side.
      reward: reward of the environment, `goal` or `distance`.
      horizon: longest episode.
      random_fraction: probability with which an action is replaced by a uniform one.
      progress: see `Progress`.

    Returns:
      `Episodes` with `observations` `f32[M, 10]`. The metadata has the environment, level, texts,
      settings, action map, key, versions, `success_rate` and `mean_length`.

    Raises:
      ValueError: an argument out of range.
    """
    if not 0.0 <= random_fraction <= 1.0:
        raise ValueError(f"random_fraction: {random_fraction} is not within 0 … 1")
    env = make_clevr(instructions, num_envs, reward=reward, horizon=horizon)
    metadata = {
        "env": env.name,
        "level": instructions.level,
        "texts": list(instructions.texts),
        "reward": reward,
        "horizon": horizon,
        "random_fraction": random_fraction,
        "action_map": ACTION_MAP,
        "key": np.asarray(jax.random.key_data(key)).tolist(),
        "num_envs": num_envs,
        "versions": {name: importlib.metadata.version(name) for name in ("jaxrl_guided", "jax")},
    }
    policy = expert_policy(instructions, random_fraction)
    return record(env, policy, num_episodes, key, metadata, progress)


def expert_policy(instructions: InstructionSet, random_fraction: float) -> Policy:
    """The scripted expert, each action replaced by a uniform one with `random_fraction`."""
    kind, relations = jnp.asarray(instructions.kind), jnp.asarray(instructions.relations)

    def act(key: jax.Array, obs: PyTree) -> tuple[jax.Array, jax.Array]:
        tie_key, choice_key, action_key = jax.random.split(key, 3)
        instruction = obs["instruction"]
        num_envs = instruction.shape[0]
        positions = obs["state"].reshape(num_envs, NUM_BALLS, 2)
        expert = expert_action(tie_key, positions, kind[instruction], relations[instruction])
        is_expert = jax.random.uniform(choice_key, (num_envs,)) >= random_fraction
        random = jax.random.randint(action_key, (num_envs,), 0, NUM_ACTIONS)
        return jnp.where(is_expert, expert, random), is_expert

    return act


def record(
    env: VectorEnv,
    policy: Policy,
    num_episodes: int,
    key: jax.Array,
    metadata: dict[str, Any],
    progress: Progress | None = None,
) -> Episodes:
    """Runs `policy` and keeps the first episodes of every slot, as many in each as in the others.

    Which episodes are kept does not depend on their length: taking those that end first would
    prefer short ones. Observations are `state` of the environment's observation dictionary.

    Args:
      env: an environment whose observations have `state` and `instruction`, and whose
        `info` has `success`.
      policy: see `Policy`.
      num_episodes: how many episodes to keep.
      key: random key.
      metadata: what `Episodes` shall say about itself; `success_rate` (episodes with
        success at their last step) and `mean_length` are added.
      progress: see `Progress`.

    Raises:
      ValueError: `num_episodes` below one.
    """
    if num_episodes < 1:
        raise ValueError(f"num_episodes: {num_episodes}, but at least 1 is needed")
    quota = np.full(env.num_envs, num_episodes // env.num_envs)
    quota[: num_episodes % env.num_envs] += 1
    reset_key, key = jax.random.split(key)
    state, obs = env.reset(reset_key)
    finished = np.zeros(env.num_envs, np.int64)
    chunks = []
    run = jax.jit(functools.partial(_run_chunk, env, policy))
    while np.any(finished < quota):
        key, chunk_key = jax.random.split(key)
        (state, obs), steps = run(state, obs, chunk_key)
        chunks.append(jax.tree.map(np.asarray, steps))
        finished += (chunks[-1]["terminated"] | chunks[-1]["truncated"]).sum(0)
        if progress is not None:
            progress(int(np.minimum(finished, quota).sum()), num_episodes)
    return _whole_episodes(chunks, quota, metadata)


def _run_chunk(
    env: VectorEnv, policy: Policy, state: PyTree, obs: PyTree, key: jax.Array
) -> tuple[tuple[PyTree, PyTree], dict[str, jax.Array]]:
    """`CHUNK_STEPS` steps; every recorded array is `[T, N, …]`."""

    def step(
        carry: tuple[PyTree, PyTree], step_key: jax.Array
    ) -> tuple[tuple[PyTree, PyTree], dict[str, jax.Array]]:
        state, obs = carry
        action, is_expert = policy(step_key, obs)
        state, result = env.step(state, action)
        recorded = {
            "observations": obs["state"],
            "actions": action,
            "rewards": result.reward,
            "terminated": result.terminated,
            "truncated": result.truncated,
            "is_expert": is_expert,
            "final_observations": result.final_obs["state"],
            "instruction": obs["instruction"],
            "success": result.info["success"],
        }
        return (state, result.obs), recorded

    return jax.lax.scan(step, (state, obs), jax.random.split(key, CHUNK_STEPS))


def _whole_episodes(
    chunks: list[dict[str, np.ndarray]], quota: np.ndarray, metadata: dict[str, Any]
) -> Episodes:
    """The first `quota[n]` episodes of slot n, slot after slot."""
    # [N, T, …], so that the flat order has each slot's episodes one behind another.
    steps = {
        name: np.concatenate([chunk[name].swapaxes(0, 1) for chunk in chunks], axis=1)
        for name in chunks[0]
    }
    done = steps["terminated"] | steps["truncated"]
    episode = np.cumsum(done, axis=1) - done
    kept = episode < quota[:, None]
    flat = {name: array[kept] for name, array in steps.items()}
    ends = np.flatnonzero(done[kept])
    lengths = np.diff(ends, prepend=-1).astype(np.int32)
    flat["final_observations"] = flat["final_observations"][ends]
    flat["instruction"] = flat["instruction"][ends].astype(np.int32)
    outcome = {
        "success_rate": float(flat.pop("success")[ends].mean()),
        "mean_length": float(lengths.mean()),
    }
    return Episodes(**flat, lengths=lengths, metadata=metadata | outcome)

"""Collects episodes of the scripted experts in several processes (LaGO, arXiv 2606.24669).

The processes import this module: no JAX here.
"""

import concurrent.futures
import dataclasses
import importlib.metadata
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jaxrl_guided.envs.bridge.slot import episode_seed
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.metaworld.env import MetaWorldEnv
from jaxrl_guided.envs.metaworld.expert import expert_action
from jaxrl_guided.envs.metaworld.instructions import instruction_set
from jaxrl_guided.envs.metaworld.tasks import ACTION_MAP
from jaxrl_guided.runtime import versions
from jaxrl_guided.runtime.errors import ForeignError
from jaxrl_guided.runtime.signals import end_with_parent

Progress = Callable[[int, int], None]
"""Called after every chunk with the episodes that are complete and those wanted."""

CHUNK_EPISODES = 20


@dataclasses.dataclass(frozen=True)
class _Job:
    """What all episodes of a collection have in common; see `collect`."""

    level: str
    seed: int
    horizon: int
    random_fraction: float


def collect(
    level: str,
    num_episodes: int,
    seed: int,
    *,
    horizon: int = 100,
    random_fraction: float = 0.0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Episodes:
    """Whole episodes of the scripted experts, the level's tasks in turn, without distractors.

    Args:
      level: see `instruction_set`.
      num_episodes: how many episodes.
      seed: the same seed and arguments give the same episodes, whatever the processes.
      horizon: longest episode.
      random_fraction: probability with which an action is replaced by a uniform one.
      workers: processes; 0 for none, all in this one; by default as many as there are cores.
      progress: see `Progress`.

    Returns:
      `Episodes` with `observations` `f32[M, 91]` and `actions` `f32[M, 4]`. The metadata has the
      environment, level, texts, settings, action map, seed, versions, `success_rate`,
      `success_by_task` and `mean_length`.

    Raises:
      ValueError: an argument out of range.
    """
    if not 0.0 <= random_fraction <= 1.0:
        raise ValueError(f"random_fraction: {random_fraction} is not within 0 … 1")
    if num_episodes < 1:
        raise ValueError(f"num_episodes: {num_episodes}, but at least 1 is needed")
    MetaWorldEnv(level, horizon=horizon)  # refuses bad ones
    job = _Job(level, seed, horizon, random_fraction)
    starts = range(0, num_episodes, CHUNK_EPISODES)
    chunks = [range(i, min(i + CHUNK_EPISODES, num_episodes)) for i in starts]
    rows: list[dict[str, np.ndarray]] = []
    for played in _play_all(job, chunks, workers):
        rows += played
        if progress is not None:
            progress(len(rows), num_episodes)
    return _episodes(job, rows)


def _play_all(
    job: _Job, chunks: list[range], workers: int | None
) -> Iterator[list[dict[str, np.ndarray]]]:
    """The episodes of each chunk, in order."""
    count = min(len(versions.cores()) if workers is None else workers, len(chunks))
    if count == 0:
        yield from (_play_chunk(job, chunk) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")  # JAX may have started here
    executor = concurrent.futures.ProcessPoolExecutor(count, context, initializer=_begin)
    try:
        yield from executor.map(_play_chunk, [job] * len(chunks), chunks)
    except concurrent.futures.process.BrokenProcessPool as error:
        raise ForeignError(f"metaworld/{job.level}: a process that collects has died") from error
    finally:
        executor.shutdown(cancel_futures=True)


def _begin() -> None:
    """A process of the collection: Ctrl-C is its parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    end_with_parent()


def _play_chunk(job: _Job, numbers: range) -> list[dict[str, np.ndarray]]:
    names = tuple(dict.fromkeys(instruction_set(job.level).tasks))
    return [_play(job, names[number % len(names)], number) for number in numbers]


def _play(job: _Job, task: str, number: int) -> dict[str, np.ndarray]:
    """One episode: arrays `[T, …]` of its steps, and of the episode what `Episodes` has of it."""
    env = MetaWorldEnv(job.level, (task,), distractor=False, horizon=job.horizon)
    rng = np.random.default_rng([job.seed, number])
    obs, _ = env.reset(seed=episode_seed(job.seed, number))
    steps: list[tuple[Any, ...]] = []
    done = False
    while not done:
        is_expert = rng.uniform() >= job.random_fraction
        drawn = rng.uniform(-1.0, 1.0, 4).astype(np.float32)
        action = expert_action(task, obs["state"]) if is_expert else drawn
        state = obs["state"]
        obs, reward, terminated, truncated, info = env.step(action)
        steps.append((state, action, np.float32(reward), terminated, truncated, is_expert))
        done = terminated or truncated
    env.close()
    fields = ("observations", "actions", "rewards", "terminated", "truncated", "is_expert")
    columns = zip(*steps, strict=True)
    recorded = {name: np.array(column) for name, column in zip(fields, columns, strict=True)}
    return recorded | {
        "final_observations": obs["state"],
        "instruction": np.int32(obs["instruction"]),
        "lengths": np.int32(len(steps)),
        "success": np.bool_(info["success"]),
    }


def _episodes(job: _Job, rows: list[dict[str, np.ndarray]]) -> Episodes:
    whole = ("final_observations", "instruction", "lengths", "success")
    arrays = {
        name: (np.stack if name in whole else np.concatenate)([row[name] for row in rows])
        for name in rows[0]
    }
    instructions, success = instruction_set(job.level), arrays.pop("success")
    task = np.array(instructions.tasks)[arrays["instruction"]]
    names = dict.fromkeys(task.tolist())
    packages = ("jaxrl_guided", "metaworld", "mujoco")
    metadata = {
        "env": f"metaworld/{job.level}",
        "texts": list(instructions.texts),
        "action_map": ACTION_MAP,
        **dataclasses.asdict(job),
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "success_rate": float(success.mean()),
        "success_by_task": {name: float(success[task == name].mean()) for name in names},
        "mean_length": float(arrays["lengths"].mean()),
    }
    return Episodes(**arrays, metadata=metadata)

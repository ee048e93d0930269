"""Finished runs of `experiments.train` and `sweep`: their policies, to be used again."""

import dataclasses
import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from etils import epath

from jaxrl_guided.envs.types import PyTree
from jaxrl_guided.learners.build import Job, prepare
from jaxrl_guided.learners.evaluate import Act
from jaxrl_guided.learners.job import POLICY
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.sweep import SweepConfig
from jaxrl_guided.runtime import files
from jaxrl_guided.runtime.checkpoint import Checkpointer
from jaxrl_guided.runtime.config import from_dict
from jaxrl_guided.runtime.errors import UserError


@dataclasses.dataclass(frozen=True)
class FinishedRun:
    """The final policies of a run.

    Attributes:
      job: environments and learner; `job.close()` ends the processes of those that the host steps.
      policies: members first.
      members: what they are called, as `seed 0`.
      alike: whether they differ in the seed alone.
    """

    job: Job
    policies: PyTree
    members: tuple[str, ...]
    alike: bool

    def act(self, member: int = 0, greedy: bool = True) -> Act:
        """`(memory, key, obs [N, …]) -> (memory, action [N, …])` of one member, for `evaluate`."""
        policy = jax.tree.map(lambda leaf: leaf[member], self.policies)
        return functools.partial(self.job.learner.act, policy, greedy=greedy)


def kind_of(path: files.PathLike) -> Literal["train", "sweep"] | None:
    """Which of the two scripts a run directory is of; None for neither.

    Raises:
      UserError: its configuration cannot be read.
    """
    file = epath.Path(path) / "config.json"
    config = files.read_json(file) if file.exists() else None
    if not isinstance(config, dict):
        return None
    if "vary" in config:
        return "sweep"
    return "train" if "evaluation" in config else None


def load_run(path: files.PathLike) -> FinishedRun:
    """The policies of a run directory, on one device.

    Raises:
      UserError: it is of another script, is not finished, or is damaged.
    """
    home = epath.Path(path)
    kind = kind_of(home)
    if kind is None:
        raise UserError(f"{home} is no run of train or sweep: name the directory of one")
    if not (home / POLICY).exists():
        raise UserError(f"{home} holds no policy: the run is not finished; start it again")
    file = home / "config.json"
    values = files.read_json(file)
    points: list[dict[str, float]] = [{}]
    if kind == "sweep":
        sweep = from_dict(SweepConfig, values, str(file))
        train, points = sweep.train, sweep.points()
    else:
        train = from_dict(TrainConfig, values, str(file))
    members = tuple(
        ", ".join([*(f"{name} {value:g}" for name, value in point.items()), f"seed {seed}"])
        for point in points
        for seed in train.seeds
    )
    job = prepare(train, len(members), devices=1, train=False)
    try:
        with Checkpointer(home / POLICY, values, read_only=True) as saved:
            policies, _ = saved.restore(_policies_like(job, train.seeds * len(points)))
    except BaseException:
        job.close()
        raise
    return FinishedRun(job, policies, members, alike=len(points) == 1)


def _policies_like(job: Job, seeds: tuple[int, ...]) -> PyTree:
    """Policies of all members, of zeros."""

    def start(seed: jax.Array) -> Any:
        return job.learner.init(jax.random.key(seed)).policy

    shapes = jax.eval_shape(jax.vmap(start), np.asarray(seeds, np.uint32))
    return jax.tree.map(lambda leaf: jnp.zeros(leaf.shape, leaf.dtype), shapes)

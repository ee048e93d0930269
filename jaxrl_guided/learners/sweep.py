"""Hyper-parameters side by side: every combination, with every seed, in one program."""

import dataclasses
import itertools
from typing import Any

import numpy as np

from jaxrl_guided.learners.build import Job, prepare
from jaxrl_guided.learners.job import draw_returns, judged_text, train_members
from jaxrl_guided.learners.job_config import TrainConfig
from jaxrl_guided.learners.ppo import Hyper as PPOHyper
from jaxrl_guided.learners.sac import Hyper as SACHyper
from jaxrl_guided.runtime.markdown import markdown_table
from jaxrl_guided.runtime.mesh import is_leader
from jaxrl_guided.runtime.rundir import RunDir
from jaxrl_guided.runtime.signals import StopFlag
from jaxrl_guided.runtime.stats import mean_text, middle_text

_MOST_CURVES = 8
"""In a picture: those of the best points."""


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """A training run for each combination of hyper-parameters.

    Attributes:
      train: what they have in common.
      vary: what they differ in, as `learning_rate=1e-4,1e-3`: a field of the algorithm's `Hyper`.
    """

    train: TrainConfig
    vary: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.vary:
            raise ValueError("vary must name a hyper-parameter, as learning_rate=1e-4,1e-3")
        names = [name for name, _ in self.axes()]
        if len(set(names)) < len(names):
            raise ValueError(f"vary must name a hyper-parameter once, not {', '.join(names)}")
        self._check_values()

    def axes(self) -> list[tuple[str, list[float]]]:
        """Names and values.

        Raises:
          ValueError: one of them is not a known `NAME=VALUE,…`.
        """
        kind = PPOHyper if self.train.algorithm == "ppo" else SACHyper
        known = [field.name for field in dataclasses.fields(kind)]
        found = []
        for axis in self.vary:
            name, _, values = axis.partition("=")
            if name not in known:
                raise ValueError(
                    f"vary must name one of {', '.join(known)} of {self.train.algorithm}, "
                    f"not '{axis}'"
                )
            try:
                numbers = [float(value) for value in values.split(",")]
            except ValueError as error:
                raise ValueError(f"vary must be NAME=VALUE,VALUE, not '{axis}'") from error
            if len(set(map(np.float32, numbers))) < len(numbers) or not np.isfinite(numbers).all():
                raise ValueError(
                    f"vary must have finite numbers, different in float32, not '{axis}'"
                )
            found.append((name, numbers))
        return found

    def points(self) -> list[dict[str, float]]:
        """All combinations, the last axis fastest."""
        names, values = zip(*self.axes(), strict=True)
        return [dict(zip(names, point, strict=True)) for point in itertools.product(*values)]

    def _check_values(self) -> None:
        """Lets the algorithm's configuration check each combination."""
        part = getattr(self.train, self.train.algorithm)
        for point in self.points():
            dataclasses.replace(part, **point)


def prepare_sweep(config: SweepConfig, devices: int = 0) -> Job:
    """All members as one population; see `prepare`."""
    return prepare(config.train, len(config.points()) * len(config.train.seeds), devices)


def run_sweep(config: SweepConfig, job: Job, run: RunDir, stop: StopFlag) -> dict[str, Any]:
    """Trains and evaluates all combinations; writes what `run_job` does.

    Returns:
      JSON data: as `train_members`, with the members of a point, its seeds, next to each other;
      and `points`.

    Raises:
      FloatingPointError, Stopped: as `run_job`.
    """
    points, seeds = config.points(), config.train.seeds
    members = [point for point in points for _ in seeds]
    hyper = {name: np.array([member[name] for member in members]) for name in points[0]}
    result = train_members(job, seeds * len(points), hyper, run, stop)
    result |= {"points": points}
    if not is_leader():
        return result
    run.write_summary(result, sweep_text(config, result))
    _draw(config, result, run)
    return result


def returns_of(config: SweepConfig, values: Any) -> np.ndarray:
    """Values of all members as `f[points, …, seeds]`."""
    array = np.asarray(values)
    split = array.reshape(*array.shape[:-1], len(config.points()), len(config.train.seeds))
    return np.moveaxis(split, -2, 0)


def sweep_text(config: SweepConfig, result: dict[str, Any]) -> str:
    """The result as Markdown: a row a point, the best first."""
    greedy = returns_of(config, result["final"]["return"])
    sampled = returns_of(config, result["final"]["sampled_return"])
    rows = []
    for i in np.argsort(-greedy.mean(axis=1), kind="stable"):
        shown = [f"{value:g}" for value in config.points()[i].values()]
        rows.append([*shown, *(mean_text(x[i]) for x in (greedy, sampled)), middle_text(greedy[i])])
    (floor,) = result["random"]["return"]
    train = config.train
    title = f"# {train.algorithm.upper()} on {train.env}, {result['steps']:,} steps, "
    title += f"seeds {', '.join(map(str, train.seeds))}\n\n"
    columns = [*config.points()[0], "return", "sampled return", "interquartile mean of return"]
    table = markdown_table(columns, rows)
    return f"{title}{table}\n{judged_text(train, result)} Uniform random: {floor:.4g}.\n"


def _draw(config: SweepConfig, result: dict[str, Any], run: RunDir) -> None:
    """Curves of the best points."""
    steps = np.asarray(result["curve"]["steps"])
    curves = returns_of(config, result["curve"]["return"])
    final = returns_of(config, result["final"]["return"]).mean(axis=1)
    best = np.argsort(-final, kind="stable")[:_MOST_CURVES]
    names = [", ".join(f"{k} {v:g}" for k, v in point.items()) for point in config.points()]
    draw_returns(config.train, {names[i]: (steps, curves[i].T) for i in best}, result, run)

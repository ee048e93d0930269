"""Evaluates the policies of a finished run, or a prior as controller.

python -m experiments.evaluate --run=runs/demo/cells/real-goal-lago-0_1_2_3_4 --levels=real,easy
python -m experiments.evaluate --run=runs/cartpole --episodes=500
python -m experiments.evaluate --prior=runs/demo/prior --levels=real-heldout

A run of `train_online` is judged on any levels of its family, one of `train` or `sweep` on its own
environment, always on episodes that no training sees.
"""

import contextlib
import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxrl_guided.lago import online
from jaxrl_guided.lago.config import check_level
from jaxrl_guided.lago.judge import judge_policy
from jaxrl_guided.lago.offline import load_trained
from jaxrl_guided.lago.presets import PRESETS
from jaxrl_guided.learners import finished
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.learners.judge import make_judge
from jaxrl_guided.runtime import app, config, files
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.markdown import markdown_table, measure

_RUN = flags.DEFINE_string("run", None, "Run directory of `train_online`, `train` or `sweep`.")
_PRIOR = flags.DEFINE_string("prior", None, "Prior directory, to let the prior act itself.")
_LEVELS = flags.DEFINE_list("levels", None, "Levels; default: those that the run reports.")
_EPISODES = flags.DEFINE_integer("episodes", 1000, "Episodes a level and seed.", lower_bound=1)
_OUT = flags.DEFINE_string("out", None, "JSON file to write.")
_CONFIG = config.define({name: preset.online for name, preset in PRESETS.items()})


def run() -> None:
    """Prints success, return and length; greedy and sampled."""
    if (_RUN.value is None) == (_PRIOR.value is None):
        raise UserError("give one of --run and --prior")
    if _OUT.value:
        files.check_new(_OUT.value, "out")
    if _RUN.value and (given := _CONFIG.given()):
        raise UserError(f"--run reads the run's configuration; leave out {', '.join(given)}")
    results = _of_job() if _RUN.value and finished.kind_of(_RUN.value) else _of_levels()
    if _OUT.value:
        files.write_json(_OUT.value, results)


def _of_job() -> dict[str, Any]:
    """A run of `train` or `sweep`."""
    if _LEVELS.value:
        raise UserError(f"--run={_RUN.value} is of train or sweep: leave out --levels")
    found = finished.load_run(str(_RUN.value))
    with contextlib.closing(found.job) as job:
        numbers = make_judge(job, _EPISODES.value)(found.policies)
    _show(job.config.env, found.members, numbers, mean=found.alike)
    return {job.config.env: numbers}


def _of_levels() -> dict[str, Any]:
    """A run of `train_online`, or a prior."""
    if _RUN.value:
        settings = online.load_settings(_RUN.value)
    else:
        for name in ("arm", "eval.episodes"):
            if f"--config.{name}" in _CONFIG.given():
                raise UserError(f"--prior acts itself in --episodes; leave out --config.{name}")
        settings = dataclasses.replace(_CONFIG.build(), arm="prior")
    with validation():
        levels = tuple(_LEVELS.value or settings.eval_levels)
        for level in levels:
            check_level(settings.env, level)
    judging = dataclasses.replace(settings, eval=EvaluationConfig(episodes=_EPISODES.value))
    results: dict[str, Any] = {}
    if _RUN.value:
        policy = online.load_policy(settings, _RUN.value)
        results = {level: judge_policy(judging, policy, level) for level in levels}
    else:
        prior = load_trained(str(_PRIOR.value), settings.env)
        online.check_inputs(judging, prior, None)
        results = {level: online.judge_trained_prior(judging, prior, level) for level in levels}
    for level, numbers in results.items():
        _show(f"{settings.env}/{level}", [f"seed {seed}" for seed in settings.seeds], numbers)
    return results


def _show(
    title: str, members: Sequence[str], numbers: dict[str, list[float]], mean: bool = True
) -> None:
    """A row a number, a column a member and, where it means something, their mean, as Markdown.

    A prior is one policy for all seeds, and has a single column.
    """
    one = all(len(values) == 1 for values in numbers.values())
    mean = mean and not one
    columns = ["", *(["value"] if one else members), *(["mean"] if mean else [])]
    rows = []
    for name, values in numbers.items():
        row, shown = measure(name, [*values, statistics.fmean(values)] if mean else values)
        rows.append([row, *(f"{value:.4g}" for value in shown)])
    print(f"\n{title}, {_EPISODES.value:,} episodes a seed\n\n{markdown_table(columns, rows)}")


if __name__ == "__main__":
    app.main(run)

"""Evaluates a finished online run, or a prior as controller, on any levels.

python -m experiments.evaluate --online=runs/demo/cells/real-goal-lago-0_1_2_3_4 --levels=real,easy
python -m experiments.evaluate --prior=runs/demo/prior --levels=real-heldout
"""

import dataclasses
import statistics
from collections.abc import Sequence
from typing import Any

from absl import flags

from jaxrl_guided.lago import online
from jaxrl_guided.lago.config import check_level
from jaxrl_guided.lago.judge import judge_policy
from jaxrl_guided.lago.presets import PRESETS
from jaxrl_guided.lago.stages import load_trained
from jaxrl_guided.learners.evaluate import EvaluationConfig
from jaxrl_guided.runtime import app, config, files
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.markdown import markdown_table

_ONLINE = flags.DEFINE_string("online", None, "Run directory of `train_online`.")
_PRIOR = flags.DEFINE_string("prior", None, "Prior directory, to let the prior act itself.")
_LEVELS = flags.DEFINE_list("levels", None, "Levels; default: those that the run reports.")
_EPISODES = flags.DEFINE_integer("episodes", 1000, "Episodes a level and seed.", lower_bound=1)
_OUT = flags.DEFINE_string("out", None, "JSON file to write.")
_CONFIG = config.define({name: preset.online for name, preset in PRESETS.items()})


def run() -> None:
    """Prints success, return and length; greedy and sampled."""
    if (_ONLINE.value is None) == (_PRIOR.value is None):
        raise UserError("give one of --online and --prior")
    if _OUT.value:
        files.check_new(_OUT.value, "out")
    if _ONLINE.value:
        if given := _CONFIG.given():
            raise UserError(f"--online reads the run's configuration; leave out {', '.join(given)}")
        settings = online.load_settings(_ONLINE.value)
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
    if _ONLINE.value:
        policy = online.load_policy(settings, _ONLINE.value)
        results = {level: judge_policy(judging, policy, level) for level in levels}
    else:
        prior = load_trained(str(_PRIOR.value), settings.env)
        online.check_inputs(judging, prior, None)
        results = {level: online.judge_trained_prior(judging, prior, level) for level in levels}
    for level, numbers in results.items():
        print(f"\n{settings.env}/{level}, {_EPISODES.value:,} episodes a seed\n")
        print(_table(settings.seeds, numbers))
    if _OUT.value:
        files.write_json(_OUT.value, results)


def _table(seeds: Sequence[int], numbers: dict[str, list[float]]) -> str:
    """A row a number, a column a seed and one for the mean, as Markdown.

    A prior is one policy for all seeds, and has a single column.
    """
    one = all(len(values) == 1 for values in numbers.values())
    columns = ["", "value"] if one else ["", *(f"seed {seed}" for seed in seeds), "mean"]
    rows = [
        [name, *(f"{x:.3f}" for x in (values if one else [*values, statistics.fmean(values)]))]
        for name, values in numbers.items()
    ]
    return markdown_table(columns, rows)


if __name__ == "__main__":
    app.main(run)

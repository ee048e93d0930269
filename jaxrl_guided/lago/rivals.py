"""Is LaGO above its rivals, and is the paper's margin reached? (LaGO, section 2)

Comparisons are paired by seed; against an arm that is one run, its number is a constant.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrl_guided.lago.config import ARMS
from jaxrl_guided.lago.families import Family
from jaxrl_guided.runtime.stats import Estimate, bootstrap, paired_difference

RIVALS = ("ppo", "ppo_same", "ppo_bc", "kickstart", "prior", "random")
"""What LaGO is compared with: same steps, all but the loss, same data, same prior, the prior, and
uniform random actions."""

HEADLINE_RIVAL = "ppo"
"""Compared on each level, too."""

WITH_SAC = ("lago_sac", "sac")
"""The guided arm with the other learner, and its one rival."""

ONE_RUN = ("prior",)
"""Arms that are one frozen policy, the same for every seed."""

FEW_SEEDS = 5
"""Fewer seeds decide nothing: their bootstrap interval is hardly wider than their range."""

Scores = dict[str, dict[str, dict[int, float]]]
"""Arm -> column -> seed -> number."""


def estimate(by_seed: Mapping[int, float], scale: float = 100.0) -> Estimate:
    """Mean, in per cent by default, with its interval (no interval from a single run)."""
    values = scale * np.array([by_seed[seed] for seed in sorted(by_seed)])
    if len(values) < 2:
        return Estimate(float(values[0]), float("nan"), float("nan"))
    return bootstrap(values)


def difference(
    ours: Mapping[int, float],
    theirs: Mapping[int, float],
    compare: Callable[[np.ndarray, np.ndarray], Estimate] = paired_difference,
) -> tuple[Estimate, int] | None:
    """Paired difference in points and the number of seeds, None with fewer than two in common."""
    seeds = sorted(set(ours) & set(theirs))
    if len(seeds) < 2:
        return None
    points = [np.array([100 * side[seed] for seed in seeds]) for side in (ours, theirs)]
    return compare(points[0], points[1]), len(seeds)


def excess(ours: Mapping[int, float], constant: float) -> tuple[Estimate, int] | None:
    """Difference from one run in points, and our number of seeds; None with fewer than two.

    The interval is that of a single sample: the one run has no seeds to resample.
    """
    if len(ours) < 2:
        return None
    points = np.array([100 * (ours[seed] - constant) for seed in sorted(ours)])
    return bootstrap(points), len(ours)


class Comparison(NamedTuple):
    """LaGO against a rival in one column.

    Attributes:
      ours: arm of LaGO.
      rival: its arm.
      column: level or mean.
      margin: LaGO − rival in points of success.
      seeds: that the margin is over.
    """

    ours: str
    rival: str
    column: str
    margin: Estimate
    seeds: int

    @property
    def judged(self) -> bool:
        """Whether there are enough seeds to tell."""
        return self.seeds >= FEW_SEEDS

    @property
    def above(self) -> bool:
        """Whether the whole interval is, and the comparison is judged."""
        return self.judged and self.margin.low > 0

    @property
    def verdict(self) -> str:
        """`above`, `below`, `not clearly above`, or that there are too few seeds."""
        if not self.judged:
            return "not judged against"
        if self.above:
            return "above"
        return "below" if self.margin.high < 0 else "not clearly above"

    def __str__(self) -> str:
        against = " against 1 run" if self.rival in ONE_RUN else ""
        few = "" if self.judged else f", fewer than {FEW_SEEDS}"
        return (
            f"{ARMS[self.ours].title} is {self.verdict} {ARMS[self.rival].title} on {self.column}: "
            f"{self.margin:+.1f} points, {self.seeds} seeds{against}{few}."
        )


def compare(scores: Scores, levels: Sequence[str]) -> list[Comparison]:
    """LaGO against each rival on `mean`, or on each of `levels` while there is no mean.

    Against PPO it is compared on all of them.
    """
    found = []
    for ours, rival in (*(("lago", rival) for rival in RIVALS), WITH_SAC):
        on_mean = _compare(scores, ours, rival, "mean")
        on_levels = [_compare(scores, ours, rival, level) for level in levels]
        if on_mean and rival == HEADLINE_RIVAL:
            on_levels = [on_mean, *on_levels]
        elif on_mean:
            on_levels = [on_mean]
        found += [item for item in on_levels if item is not None]
    return found


def _compare(scores: Scores, ours: str, rival: str, column: str) -> Comparison | None:
    mine, theirs = (scores.get(arm, {}).get(column, {}) for arm in (ours, rival))
    if rival in ONE_RUN and theirs:
        (constant,) = theirs.values()
        found = excess(mine, constant)
    else:
        found = difference(mine, theirs)
    return None if found is None else Comparison(ours, rival, column, *found)


def headline(found: Sequence[Comparison]) -> str:
    """What LaGO is below and what it is not clearly above, or else what it is above."""
    if not found:
        return "No comparison with LaGO is finished yet."
    judged = [item for item in found if item.judged and item.ours == "lago"]
    if not judged:
        return f"No comparison with LaGO is judged, all have fewer than {FEW_SEEDS} seeds."
    short = [item for item in judged if not item.above]
    sentences = []
    for verdict in ("below", "not clearly above", "above"):
        columns: dict[str, list[str]] = {}
        for item in short or judged:
            if item.verdict == verdict:
                columns.setdefault(ARMS[item.rival].title, []).append(item.column)
        if columns:
            rivals = "; ".join(f"{title} ({', '.join(names)})" for title, names in columns.items())
            sentences.append(f"LaGO is {verdict}: {rivals}.")
    return " ".join(sentences)


def goal(scores: Scores, family: Family) -> dict[str, Any]:
    """The goal in words, LaGO − PPO in points with its interval, and whether it is met.

    `met` is None while a level is missing or there are fewer seeds than it takes.
    """
    text = (
        f"Mean success of LaGO at least {family.goal_points} points above PPO at equal "
        "environment steps, interval above 0"
    )
    found = _compare(scores, "lago", "ppo", "mean")
    if found is None:
        return {"goal": text, "value": None, "interval": None, "seeds": 0, "met": None}
    margin, seeds = found.margin, found.seeds
    enough = seeds >= family.goal_seeds
    met = margin.value >= family.goal_points and found.above if enough else None
    interval = [margin.low, margin.high]
    return {"goal": text, "value": margin.value, "interval": interval, "seeds": seeds, "met": met}


def goal_text(found: Mapping[str, Any], family: Family) -> str:
    """What `goal` has found, in a sentence."""
    if found["value"] is None:
        outcome = "Not judged yet, the mean is incomplete"
    else:
        margin = f"{Estimate(found['value'], *found['interval']):+.1f} points"
        outcome = {
            True: f"Met: {margin}",
            False: f"Not met: {margin}",
            None: f"Not judged yet: {margin} with {found['seeds']} of {family.goal_seeds} seeds",
        }[found["met"]]
    return f"Goal: {found['goal']}. {outcome}."

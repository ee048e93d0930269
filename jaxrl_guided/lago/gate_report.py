"""What guidance by a wrong prior costs, with the gate and without: cells and table."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.presets import FULL
from jaxrl_guided.lago.rivals import difference, estimate
from jaxrl_guided.runtime.cells import revisions_of, stamp
from jaxrl_guided.runtime.stats import Estimate

LOWEST = -3.0
"""Points below PPO that a gated run may be, with its whole interval."""

SHARE = 0.8
"""Of the gain of a constant beta that the gate is to keep with the good prior."""

_LEVEL, _BLIND = "real", "distance"
_COLUMNS = ("prior", "arm", "reward", "success", "minus PPO", "guidance goes on", "seeds")

Key = tuple[str, str, str]
"""Reward, control, arm."""


def gate_cells() -> dict[str, OnlineConfig]:
    """Cells with spoilt priors by id; those with the good one are the main grid's."""
    found = {}
    for reward, controls in (("goal", ("reversed", "random")), (_BLIND, ("reversed",))):
        for control in controls:
            for arm in ("lago", "gated"):
                settings: dict[str, Any] = {"reward": reward, "control": control}
                base = dataclasses.replace(FULL.settings(arm), level=_LEVEL, **settings)
                for first in range(0, len(FULL.seeds), FULL.seeds_per_cell):
                    seeds = FULL.seeds[first : first + FULL.seeds_per_cell]
                    name = f"{reward}-{control}-{arm}-{'_'.join(map(str, seeds))}"
                    found[name] = dataclasses.replace(base, seeds=seeds)
    return found


def gate_record(
    own: Sequence[Mapping[str, Any]], main: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """The table.

    Args:
      own: finished records of `gate_cells`.
      main: those of the main grid, of which Real is read.
    """
    used = [r for r in (*own, *main) if r["config"]["level"] == _LEVEL]
    success: dict[Key, dict[int, float]] = {}
    chosen: dict[Key, list[str]] = {}
    for record in used:
        config = record["config"]
        key = (config["reward"], config.get("control", "none"), config["arm"])
        if key[2] in ("ppo", "lago", "gated"):
            values = record["final"][_LEVEL]["success"]
            success.setdefault(key, {}).update(zip(record["seeds"], values, strict=True))
            chosen.setdefault(key, []).extend(record.get("chosen", ()))
    rows = [_row(key, success, chosen) for key in sorted(success, key=_order)]
    return {
        "title": "Guidance by good, random and reversed priors on Real, with and without the gate",
        "first_line": " ".join(verdicts(success)),
        "columns": _COLUMNS,
        "rows": rows,
        "note": "Greedy success in per cent [95 % bootstrap interval]; differences are paired by "
        "seed. `random` shuffles the numbers of the prior's head, `reversed` exchanges every push "
        "with the opposite one. Under `distance` no return tells directions apart: what a gate "
        "reads there cannot show that a prior's are wrong.",
        **stamp(revisions_of(used)),
    }


def verdicts(success: Mapping[Key, Mapping[int, float]]) -> list[str]:
    """A sentence for each goal that can be judged."""
    found = []
    for control in ("none", "random", "reversed"):
        margin = _margin(("goal", control, "gated"), success)
        if margin is not None:
            met = "met" if margin.low > LOWEST else "not met"
            found.append(
                f"Gated − PPO with the {_NAMES[control]} prior: {margin:+.1f} points (whole "
                f"interval above {LOWEST:+.0f}: {met})."
            )
    gains = [_margin(("goal", "none", arm), success) for arm in ("gated", "lago")]
    if gains[0] is not None and gains[1] is not None and gains[1].value > 0:
        share = gains[0].value / gains[1].value
        met = "met" if share >= SHARE else "not met"
        found.append(
            f"The gate keeps {share:.2f} of the gain of constant beta (goal {SHARE}: {met})."
        )
    return found


_NAMES = {"none": "good", "random": "random", "reversed": "reversed"}


def _order(key: Key) -> tuple[int, ...]:
    reward, control, arm = key
    return ("goal", _BLIND).index(reward), list(_NAMES).index(control), list(ARMS).index(arm)


def _margin(key: Key, success: Mapping[Key, Mapping[int, float]]) -> Estimate | None:
    """Difference from PPO under the same reward in points."""
    found = difference(success.get(key, {}), success.get((key[0], "none", "ppo"), {}))
    return None if found is None else found[0]


def _row(
    key: Key,
    success: Mapping[Key, Mapping[int, float]],
    chosen: Mapping[Key, Sequence[str]],
) -> list[str]:
    reward, control, arm = key
    margin = None if arm == "ppo" else _margin(key, success)
    choices = chosen[key]
    kept = f"{sum(name == 'lago' for name in choices)} of {len(choices)}" if choices else ""
    return [
        "" if arm == "ppo" else _NAMES[control],
        ARMS[arm].title,
        reward,
        f"{estimate(success[key]):.1f}",
        "" if margin is None else f"{margin:+.1f}",
        kept,
        str(len(success[key])),
    ]

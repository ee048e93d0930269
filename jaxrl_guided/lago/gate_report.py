"""What guidance by a wrong prior costs, with the gate and without: cells and table."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.presets import FULL, METAWORLD
from jaxrl_guided.lago.rivals import difference, estimate
from jaxrl_guided.runtime.cells import revisions_of, stamp
from jaxrl_guided.runtime.stats import Estimate

LOWEST = -3.0
"""Points below PPO that a gated run may be, with its whole interval."""

SHARE = 0.8
"""Of the gain of a constant beta that the gate is to keep with the good prior."""

LEVEL, TASK = "real", "reach"
"""The level of CLEVR-Robot, and Meta-World's task."""

_BLIND = "distance"
_NOTES = {
    "clevr": "`reversed` exchanges every push with the opposite one. Under `distance` no return "
    "tells directions apart: what a gate reads there cannot show that a prior's are wrong.",
    "metaworld": "`reversed` turns the mean of every action round.",
}
_COLUMNS = ("prior", "arm", "reward", "success", "minus PPO", "guidance goes on", "seeds")

Key = tuple[str, str, str]
"""Reward, control, arm."""


def gate_cells() -> dict[str, OnlineConfig]:
    """Cells with spoilt priors by id; those with the good one are the main grid's."""
    found: dict[str, OnlineConfig] = {}
    for reward, controls in (("goal", ("reversed", "random")), (_BLIND, ("reversed",))):
        for control in controls:
            for arm in ("lago", "gated"):
                settings: dict[str, Any] = {"reward": reward, "control": control}
                base = dataclasses.replace(FULL.settings(arm), level=LEVEL, **settings)
                found |= _by_seeds(f"{reward}-{control}-{arm}", base)
    return found


def task_cells() -> dict[str, OnlineConfig]:
    """Cells of Meta-World's one task by id, with the good prior, too."""
    found: dict[str, OnlineConfig] = {}
    for control in ("none", "reversed", "random"):
        for arm in ("ppo", "lago", "gated") if control == "none" else ("lago", "gated"):
            settings = METAWORLD.settings(arm)
            ppo = dataclasses.replace(settings.ppo, total_steps=200_000)
            eval_ = dataclasses.replace(settings.eval, episodes=100)
            changes: dict[str, Any] = {"control": control, "ppo": ppo, "eval": eval_}
            base = dataclasses.replace(settings, level=TASK, **changes)
            found |= _by_seeds(f"{control}-{arm}", base)
    return found


def _by_seeds(name: str, base: OnlineConfig) -> dict[str, OnlineConfig]:
    """Cells of the ten seeds that the gate is judged on."""
    together = FULL.seeds_per_cell
    parts = [FULL.seeds[i : i + together] for i in range(0, len(FULL.seeds), together)]
    return {
        f"{name}-{'_'.join(map(str, seeds))}": dataclasses.replace(base, seeds=seeds)
        for seeds in parts
    }


def gate_record(records: Sequence[Mapping[str, Any]], level: str) -> dict[str, Any]:
    """The table.

    Args:
      records: finished cells of one family, of which those on `level` are read.
    """
    used = [r for r in records if r["config"]["level"] == level]
    success: dict[Key, dict[int, float]] = {}
    chosen: dict[Key, list[str]] = {}
    for record in used:
        config = record["config"]
        key = (config["reward"], config.get("control", "none"), config["arm"])
        if key[2] in ("ppo", "lago", "gated"):
            values = record["final"][level]["success"]
            success.setdefault(key, {}).update(zip(record["seeds"], values, strict=True))
            chosen.setdefault(key, []).extend(record.get("chosen", ()))
    rows = [_row(key, success, chosen) for key in sorted(success, key=_order)]
    (env,) = {record["config"]["env"] for record in used}
    return {
        "title": "Guidance by good, random and reversed priors, with and without the gate: "
        f"{env}/{level}",
        "first_line": " ".join(verdicts(success)),
        "columns": _COLUMNS,
        "rows": rows,
        "note": "Greedy success in per cent [95 % bootstrap interval]; differences are paired by "
        f"seed. `random` shuffles the numbers of the prior's head. {_NOTES[env]}",
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

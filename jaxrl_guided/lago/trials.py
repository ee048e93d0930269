"""Trials from which PPO's and LaGO's settings are chosen.

All train on Real with `reward="goal"` and seeds that no reported run uses, and are judged on the
goals and sentence patterns of Real that are held out for choosing. PPO has more trials than LaGO,
and the best setting of each serves all levels. PPO comes first (`grid lago_tune --only=ppo`): its
best setting stands in preset `full`, and LaGO's trials are made with it.
"""

import dataclasses
import itertools
from typing import Any

from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.presets import FULL

TUNING_SEEDS = tuple(range(1000, 1005))
_RATES = (3e-4, 1e-3, 3e-3, 1e-2)


def _trial(arm: str, guidance: dict[str, Any], ppo: dict[str, Any], **changes: Any) -> OnlineConfig:
    return dataclasses.replace(
        FULL.online,
        level="real",
        reward="goal",
        arm=arm,
        seeds=TUNING_SEEDS,
        judge_levels=("real-heldout",),
        ppo=dataclasses.replace(FULL.online.ppo, **ppo),
        guidance=dataclasses.replace(FULL.online.guidance, **guidance),
        **changes,
    )


def _ppo_trials() -> dict[str, OnlineConfig]:
    return {
        f"ppo-lr{lr}-entropy{entropy}-scale{scale}": _trial(
            "ppo", {}, {"learning_rate": lr, "entropy_weight": entropy}, feature_scale=scale
        )
        for lr, entropy, scale in itertools.product(_RATES, (0.0, 0.01), (1.0, 4.0))
    }


def _lago_trials() -> dict[str, OnlineConfig]:
    return {
        f"lago-{loss}-beta{beta}": _trial("lago", {"beta": beta, "loss": loss}, {})
        for loss, beta in itertools.product(("nll", "soft"), (0.1, 0.3, 1.0, 3.0))
    }


TRIALS = _ppo_trials() | _lago_trials()

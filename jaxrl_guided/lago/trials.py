"""Trials from which PPO's and LaGO's settings were chosen (section 2 of the reference).

All on Real with `reward="goal"` and seeds that no reported run uses; PPO has at least as many
trials as LaGO, and one setting serves all levels.
"""

import dataclasses
import itertools
from typing import Any

from jaxrl_guided.lago.config import FULL, OnlineConfig

TUNING_SEEDS = tuple(range(1000, 1005))


def _trial(arm: str, scale: float, guidance: dict[str, Any], **ppo: Any) -> OnlineConfig:
    return dataclasses.replace(
        FULL.online,
        arm=arm,
        seeds=TUNING_SEEDS,
        feature_scale=scale,
        ppo=dataclasses.replace(FULL.online.ppo, **ppo),
        guidance=dataclasses.replace(FULL.online.guidance, **guidance),
    )


def _ppo_trials() -> dict[str, OnlineConfig]:
    return {
        f"ppo-lr{lr}-entropy{entropy}-scale{scale}": _trial(
            "ppo", scale, {}, learning_rate=lr, entropy_weight=entropy
        )
        for lr, entropy, scale in itertools.product((3e-4, 1e-3), (0.0, 0.01), (1.0, 4.0))
    }


def _lago_trials() -> dict[str, OnlineConfig]:
    return {
        f"lago-{loss}-beta{beta}": _trial(
            "lago", FULL.online.feature_scale, {"beta": beta, "loss": loss}
        )
        for loss, beta in itertools.product(("nll", "soft"), (0.03, 0.1, 0.3, 1.0))
    }


TRIALS = _ppo_trials() | _lago_trials()

"""Trials from which the settings of PPO, LaGO and behaviour cloning are chosen.

All use Real with `reward="goal"` and seeds that no reported run uses, and are judged on the goals
and sentence patterns of Real that prior and cloned policies do not see. PPO has more trials than
LaGO; each has a setting of its own, which serves all levels. Those of Meta-World have three seeds;
SAC has none there, and PPO's features and networks.
"""

import dataclasses
import itertools
from typing import Any

from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.guidance import GuidanceConfig
from jaxrl_guided.lago.presets import FULL, METAWORLD
from jaxrl_guided.learners.ppo import PPOConfig

TUNING_SEEDS = tuple(range(1000, 1005))

_SMALL, _LARGE = (64, 64), (256, 256)
_FEATURES: dict[str, dict[str, Any]] = {
    "vectors": {"feature_components": None, "feature_scale": 4.0},
    "components": {"feature_scale": 0.3},
}
_SMALL_LOSSES = (("soft", 0.3), ("soft", 1.0), ("soft", 3.0), ("nll", 1.0))
_LARGE_LOSSES = (*_SMALL_LOSSES, ("soft", 10.0))  # 3 was the best, and the end of the range


def _trial(arm: str, hidden: tuple[int, int], **changes: Any) -> OnlineConfig:
    return dataclasses.replace(
        FULL.online,
        level="real",
        reward="goal",
        arm=arm,
        seeds=TUNING_SEEDS,
        judge_levels=("real-heldout",),
        network=dataclasses.replace(FULL.online.network, hidden=hidden),
        **changes,
    )


def _ppo_trials() -> dict[str, OnlineConfig]:
    def ppo(rate: float, scaled: bool) -> PPOConfig:
        return dataclasses.replace(FULL.online.ppo, learning_rate=rate, scale_reward=scaled)

    return {
        f"ppo-{hidden[0]}-lr{rate}-{name}{'' if scaled else '-unscaled'}": _trial(
            "ppo", hidden, ppo=ppo(rate, scaled), **features
        )
        for hidden, rate, (name, features), scaled in itertools.product(
            (_SMALL, _LARGE), (1e-3, 3e-3), _FEATURES.items(), (True, False)
        )
    }


def _lago_trials() -> dict[str, OnlineConfig]:
    def guidance(loss: Any, beta: float) -> GuidanceConfig:
        return dataclasses.replace(FULL.online.guidance, loss=loss, beta=beta)

    return {
        f"lago-{hidden[0]}-{loss}-beta{beta}": _trial("lago", hidden, guidance=guidance(loss, beta))
        for hidden, losses in ((_SMALL, _SMALL_LOSSES), (_LARGE, _LARGE_LOSSES))
        for loss, beta in losses
    }


def _bc_trials() -> dict[str, OnlineConfig]:
    features = {"vectors": _FEATURES["vectors"], "components": {}}
    return {
        f"bc-{hidden[0]}-{name}": _trial("bc", hidden, **features[name])
        for hidden, name in itertools.product((_SMALL, _LARGE), features)
    }


TRIALS = _ppo_trials() | _lago_trials() | _bc_trials()


def _metaworld_trials() -> dict[str, OnlineConfig]:
    def trial(arm: str) -> OnlineConfig:
        settings = METAWORLD.settings(arm)
        judged = dataclasses.replace(settings.eval, episodes=100)
        return dataclasses.replace(
            settings, seeds=TUNING_SEEDS[:3], judge_levels=("real-heldout",), eval=judged
        )

    found, plain, guided = {}, trial("ppo"), trial("lago")
    for rate, scaled in ((1e-4, True), (2e-4, True), (5e-4, True), (5e-4, False)):
        ppo = dataclasses.replace(plain.ppo, learning_rate=rate, scale_reward=scaled)
        name = f"ppo-lr{rate}{'' if scaled else '-unscaled'}"
        found[name] = dataclasses.replace(plain, ppo=ppo)
    for beta, rate in ((0.1, 5e-4), (0.3, 5e-4), (1.0, 5e-4), (0.3, 2e-4)):
        guidance = dataclasses.replace(guided.guidance, beta=beta)
        ppo = dataclasses.replace(guided.ppo, learning_rate=rate)
        name = f"lago-beta{beta}" + ("" if rate == guided.ppo.learning_rate else f"-lr{rate}")
        found[name] = dataclasses.replace(guided, guidance=guidance, ppo=ppo)
    return found


METAWORLD_TRIALS = _metaworld_trials()

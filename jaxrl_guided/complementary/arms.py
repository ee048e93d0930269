"""Arms of the comparison: what each leaves out of Complementary RL, or puts in its place."""

import dataclasses
import difflib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from jaxrl_guided.complementary.run_config import ComplementaryConfig


class Arm(NamedTuple):
    """An arm.

    Attributes:
      title: for tables.
      change: of the settings.
    """

    title: str
    change: Callable[[ComplementaryConfig], dict[str, Any]]


def settled(config: ComplementaryConfig) -> ComplementaryConfig:
    """The configuration with the settings that its arm has.

    Raises:
      ValueError: there is no such arm.
    """
    if config.arm not in ARMS:
        close = difflib.get_close_matches(config.arm, ARMS, 1)
        hint = f"did you mean {close[0]}?" if close else f"choose one of {', '.join(ARMS)}"
        raise ValueError(f"arm: unknown {config.arm!r}; {hint}")
    return dataclasses.replace(config, **ARMS[config.arm].change(config))


def _acting(**changes: Any) -> Callable[[ComplementaryConfig], dict[str, Any]]:
    return lambda config: {"acting": dataclasses.replace(config.acting, **changes)}


def _loop(**changes: Any) -> Callable[[ComplementaryConfig], dict[str, Any]]:
    return lambda config: {"loop": dataclasses.replace(config.loop, **changes)}


def _baseline(config: ComplementaryConfig) -> dict[str, Any]:
    acting = dataclasses.replace(config.acting, guided=0, questions=0, warm_up=0)
    return {"experience": False, "acting": acting}


def _offline(config: ComplementaryConfig) -> dict[str, Any]:
    """Its bank is full before the actor's first update; nobody answers questions."""
    acting = dataclasses.replace(config.acting, questions=0, warm_up=config.offline_steps)
    loop = dataclasses.replace(config.loop, train_extractor=False, fixed=True)
    return {"acting": acting, "loop": loop}


def _all_guided(config: ComplementaryConfig) -> dict[str, Any]:
    return {"acting": dataclasses.replace(config.acting, guided=config.acting.rollouts)}


def _no_merge(config: ComplementaryConfig) -> dict[str, Any]:
    return {"extractor": dataclasses.replace(config.extractor, merge=None)}


def _large_extractor(config: ComplementaryConfig) -> dict[str, Any]:
    """Twice as wide: four times the weights of a layer."""
    shape = config.extractor_model.scratch
    wider = dataclasses.replace(
        shape, hidden_size=2 * shape.hidden_size, intermediate_size=2 * shape.intermediate_size
    )
    return {"extractor_model": dataclasses.replace(config.extractor_model, scratch=wider)}


ARMS: Mapping[str, Arm] = {
    "baseline": Arm("Baseline: GRPO, no bank", _baseline),
    "static_online": Arm(
        "Static Online: the extractor does not learn", _loop(train_extractor=False)
    ),
    "offline_bank": Arm("Offline bank: filled before, then fixed", _offline),
    "exp_only": Arm("Exp. Only: the actor does not learn", _loop(train_actor=False)),
    "complementary": Arm("Complementary RL", lambda config: {}),
    "no_merge": Arm("without merge", _no_merge),
    "no_ask": Arm("without search_and_ask", _acting(questions=0)),
    "all_guided": Arm("all rollouts guided", _all_guided),
    "cross_half": Arm("advantages across halves", _loop(split=False)),
    "placebo_other": Arm("placebo: the entry of another question", _acting(placebo="other")),
    "placebo_shuffled": Arm("placebo: the entry's words shuffled", _acting(placebo="shuffled")),
    "large_extractor": Arm("extractor with 4 × the weights", _large_extractor),
}
"""By the name that `--arm` takes."""

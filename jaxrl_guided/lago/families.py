"""The environment families of the experiment: texts, experts and what is judged (sections 2 to 4).

What a family needs that is an extra is imported when it is used.
"""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import jax
import numpy as np

from jaxrl_guided.envs.clevr import collect as clevr
from jaxrl_guided.envs.clevr import instructions as clevr_texts
from jaxrl_guided.envs.clevr.env import ACTION_MAP as CLEVR_ACTIONS
from jaxrl_guided.envs.dataset import Episodes
from jaxrl_guided.envs.metaworld import instructions as metaworld_texts
from jaxrl_guided.envs.metaworld.tasks import ACTION_MAP as METAWORLD_ACTIONS
from jaxrl_guided.envs.metaworld.tasks import CATEGORIES

LEVELS = ("real", "rephrase", "easy", "hard")
"""Levels whose mean is the headline, of every family."""


class Instructions(Protocol):
    """The texts of a level."""

    @property
    def texts(self) -> tuple[str, ...]:
        """`I` sentences."""

    @property
    def held_out(self) -> np.ndarray:
        """`bool[I]`: kept for choosing."""


@dataclasses.dataclass(frozen=True)
class Family:
    """One of them.

    Attributes:
      title: its name in tables.
      horizon: longest episode.
      rewards: what the environments' option `reward` may be; with a single one there is no option.
      parts: levels on which a level is judged, where that is not itself; each counts the same.
      instructions: of a level.
      action_map: what an action means.
      collect: `(level, episodes, seed, *, horizon, random_fraction, progress) -> Episodes` of the
        scripted expert.
      goal_points: the paper's margin of LaGO over PPO, in points of mean success.
      goal_seeds: fewest seeds that the goal is judged on.
      steps_per_minute: environment steps of PPO on one core, to tell how long a run takes.
    """

    title: str
    horizon: int
    rewards: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]]
    instructions: Callable[[str], Instructions]
    action_map: Mapping[str, Any]
    collect: Callable[..., Episodes]
    goal_points: float
    goal_seeds: int
    steps_per_minute: int

    def parts_of(self, level: str) -> tuple[str, ...]:
        """Levels on which a level is judged."""
        return self.parts.get(level, (level,))


def _collect_clevr(
    level: str, episodes: int, seed: int, *, horizon: int, random_fraction: float, progress: Any
) -> Episodes:
    return clevr.collect(
        clevr_texts.instruction_set(level),
        episodes,
        jax.random.key(seed),
        num_envs=min(512, episodes),
        horizon=horizon,
        random_fraction=random_fraction,
        progress=progress,
    )


def _collect_metaworld(level: str, episodes: int, seed: int, **options: Any) -> Episodes:
    from jaxrl_guided.envs.metaworld.collect import collect  # an extra

    return collect(level, episodes, seed, **options)


FAMILIES: dict[str, Family] = {
    "clevr": Family(
        title="CLEVR-Robot",
        horizon=50,
        rewards=("goal", "distance"),
        parts={"hard": ("hard-two", "hard-three", "hard-order", "hard-sort")},
        instructions=clevr_texts.instruction_set,
        action_map=CLEVR_ACTIONS,
        collect=_collect_clevr,
        goal_points=12.1,
        goal_seeds=10,
        steps_per_minute=750_000,
    ),
    "metaworld": Family(
        title="Meta-World",
        horizon=100,
        rewards=("goal",),
        parts={
            level: tuple(f"{level}-{task}" for task in tasks) for level, tasks in CATEGORIES.items()
        },
        instructions=metaworld_texts.instruction_set,
        action_map=METAWORLD_ACTIONS,
        collect=_collect_metaworld,
        goal_points=12.5,
        goal_seeds=5,
        steps_per_minute=75_000,
    ),
}
"""By the name that stands before the slash in an environment's."""


def family_of(env: str) -> Family:
    """The family of `FAMILY` or `FAMILY/LEVEL`.

    Raises:
      ValueError: it has no instructions.
    """
    name = env.partition("/")[0]
    if name not in FAMILIES:
        raise ValueError(f"env must be out of {', '.join(FAMILIES)}, not '{name}'")
    return FAMILIES[name]

"""A task of MiniHack as a gymnasium environment whose seed decides the game.

JAX-free, for the workers.
"""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any, Literal, get_args

import gymnasium
import numpy as np

from jaxrl_guided.envs.minihack.observe import PARTS, Observer
from jaxrl_guided.envs.minihack.tasks import KEYS, MAX_STEPS, actions_of, gymnasium_id

Reward = Literal["sparse", "minihack"]


@dataclasses.dataclass(frozen=True)
class HostConfig:
    """How a task is played.

    Attributes:
      observe: what the agent sees, names of `observe.PARTS`.
      actions: names of `tasks.KEYS`; None for those of the task.
      reward: `sparse`: 1 in the step that solves the task, else 0; `minihack`: its own, with a
        penalty for steps in which no time passes.
      max_steps: longest episode; None for the task's own.

    Raises:
      ValueError: an unknown name, one given twice, none at all, or a number out of range.
    """

    observe: Sequence[str] = ("symbols_crop", "stats", "inventory")
    actions: Sequence[str] | None = None
    reward: Reward = "sparse"
    max_steps: int | None = None

    def __post_init__(self) -> None:
        _check("observe", self.observe, PARTS)
        if self.actions is not None:
            _check("actions", self.actions, KEYS)
        if self.reward not in get_args(Reward):
            raise ValueError(f"reward must be 'sparse' or 'minihack', not {self.reward!r}")
        if self.max_steps is not None and self.max_steps < 1:
            raise ValueError(f"max_steps must be positive, not {self.max_steps}")


def _check(option: str, names: Sequence[str], known: Any) -> None:
    texts = isinstance(names, list | tuple) and all(isinstance(name, str) for name in names)
    if not texts or not names or len(set(names)) < len(names) or not set(names) <= set(known):
        raise ValueError(
            f"{option} must be a list of different names out of {', '.join(known)}, not {names!r}"
        )


class Host(gymnasium.Wrapper[dict[str, np.ndarray], Any, dict[str, np.ndarray], Any]):
    """One game after the other.

    `terminated` is the task solved or the agent's death, and NetHack is left then: the observation
    of that step is of no use. `truncated` is the time limit; `info["success"]` is 1.0 in the step
    that solves the task, else 0.0.

    Attributes:
      actions: names, an action is a place in them.
      max_steps: longest episode.
    """

    def __init__(self, task: str, config: HostConfig):
        """Starts NetHack.

        Args:
          task: one of `tasks.MAX_STEPS`.
        """
        self.actions = tuple(config.actions or actions_of(task))
        self.max_steps = config.max_steps or MAX_STEPS[task]
        self._observer = Observer(config.observe)
        super().__init__(_make_game(task, self.max_steps, self.actions, self._observer.needs))
        self.observation_space = self._observer.space(self.env.observation_space)
        game: Any = self.env.unwrapped
        self._seed_next, self._solved = game.seed, game.StepStatus.TASK_SUCCESSFUL
        self._sparse = config.reward == "sparse"
        self._time = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
        """Starts the game of that seed: its level, and all that happens by chance."""
        # `reset(seed)` alone does not reach NetHack, and its seeds serve for one game only.
        core, display = map(int, np.random.SeedSequence(seed).generate_state(2))
        self._seed_next(core, display, reseed=False)
        obs, info = self.env.reset(options=options)
        self._time = 0
        return self._observe(obs), info

    def step(self, action: Any) -> tuple[dict[str, np.ndarray], float, bool, bool, dict[str, Any]]:
        """One action."""
        obs, reward, terminated, truncated, info = self.env.step(action)
        self._time += 1
        success = float(info["end_status"] == self._solved)
        if self._sparse:
            reward = success
        return self._observe(obs), float(reward), terminated, truncated, info | {"success": success}

    def _observe(self, obs: Any) -> dict[str, np.ndarray]:
        return self._observer(obs, self._time / self.max_steps)


def _make_game(
    task: str, max_steps: int, actions: Sequence[str], needs: Sequence[str]
) -> gymnasium.Env[Any, Any]:
    """MiniHack's own environment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about pkg_resources, which minihack uses
        import minihack  # noqa: F401  registers the tasks
    spec = gymnasium.spec(gymnasium_id(task))
    # MiniHack quits the game at its own limit, and the last observation is of the end screen: so
    # that limit lies beyond the one of gymnasium, which leaves the game as it is.
    longer = {**spec.kwargs, "max_episode_steps": max_steps + 1}
    return gymnasium.make(
        dataclasses.replace(spec, max_episode_steps=max_steps, kwargs=longer),
        disable_env_checker=True,
        observation_keys=needs,
        actions=tuple(KEYS[name] for name in actions),
        fix_moon_phase=True,  # else the day on which it is played changes the agent's luck
    )

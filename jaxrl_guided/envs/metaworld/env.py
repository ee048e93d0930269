"""Meta-World's tasks under instructions as an environment of gymnasium (LaGO, arXiv 2606.24669)."""

from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

from jaxrl_guided.envs.metaworld.distractors import load_distractors
from jaxrl_guided.envs.metaworld.instructions import instruction_set
from jaxrl_guided.envs.metaworld.scene import Scene, borrow, give_back
from jaxrl_guided.envs.metaworld.tasks import ENTITIES, STATE_SIZE, pose

SUCCESS_REWARD = 10.0
MAX_HORIZON = 500
"""Meta-World refuses a further step."""


class MetaWorldEnv(gymnasium.Env[dict[str, Any], np.ndarray]):
    """One table, on which every episode has an instruction drawn uniformly, and so a task.

    (The paper has its tasks in turn; drawn from the seed alone, an episode can be played again.)

    An observation is a dictionary: `state`, `f32[91]` (see `tasks`), and `instruction`, an index
    into the level's texts. An action is `f32[4]` in ±1. The reward is the difference of two
    successive dense rewards of Meta-World, 10 on success. `info` has `success`: the task is solved
    in this step. An episode is decided by the seed of its reset.
    """

    def __init__(
        self,
        level: str,
        tasks: Sequence[str] = (),
        distractor: bool = True,
        horizon: int = 100,
        terminate_on_success: bool = True,
    ):
        """Makes an environment; simulations are made when a task is first drawn.

        Args:
          level: see `instruction_set`.
          tasks: those of the level that are drawn; all of them by default.
          distractor: show in each episode one entity that is not there, redrawn every step from
            where it was in recorded episodes.
          horizon: longest episode.
          terminate_on_success: whether success ends the episode.

        Raises:
          ValueError: an argument out of range.
        """
        if not 1 <= horizon <= MAX_HORIZON:
            raise ValueError(f"horizon: must be within 1 … {MAX_HORIZON}, got {horizon}")
        instructions = instruction_set(level)
        self._tasks = instructions.tasks
        self._choices = instructions.of(tasks)
        self._horizon, self._terminates = horizon, terminate_on_success
        self._distractors = load_distractors() if distractor else None
        self.observation_space = spaces.Dict(
            {
                "state": spaces.Box(-np.inf, np.inf, (STATE_SIZE,), np.float32),
                "instruction": spaces.Discrete(len(instructions)),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self._scene: Scene | None = None
        self._instruction = self._absent = self._time = 0
        self._dense = 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Begins the episode of that seed."""
        super().reset(seed=seed)
        self.close()
        self._instruction = int(self.np_random.choice(self._choices))
        self._scene = borrow(self._tasks[self._instruction])
        shown = self._scene.task.entities
        absent = [i for i, entity in enumerate(ENTITIES) if entity not in shown]
        self._absent, self._time = int(self.np_random.choice(absent)), 0
        self._dense = self._scene.start(self.np_random)
        return self._observe(self._scene), {}

    def step(self, action: np.ndarray) -> tuple[dict[str, Any], float, bool, bool, dict[str, Any]]:
        """One step of .0125 s."""
        assert self._scene is not None, "reset comes first"
        dense, success = self._scene.step(action)
        reward = SUCCESS_REWARD if success else dense - self._dense
        self._dense, self._time = dense, self._time + 1
        terminated = success and self._terminates
        truncated = self._time >= self._horizon and not terminated
        return self._observe(self._scene), reward, terminated, truncated, {"success": success}

    def close(self) -> None:
        """Gives the simulation back."""
        if self._scene is not None:
            give_back(self._scene)
            self._scene = None

    def _observe(self, scene: Scene) -> dict[str, Any]:
        state = scene.state()
        if self._distractors is not None:
            recorded = self._distractors[self._absent]
            state[pose(ENTITIES[self._absent])] = recorded[self.np_random.integers(len(recorded))]
        return {"state": state, "instruction": self._instruction}

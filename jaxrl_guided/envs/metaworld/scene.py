"""A task's simulation and what a state shows of it, lent to one episode at a time."""

import collections
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np

from jaxrl_guided.envs.metaworld import parts
from jaxrl_guided.envs.metaworld.tasks import (
    GRIPPER,
    POSE_SIZE,
    STATE_SIZE,
    TARGET,
    TASKS,
    Task,
    pose,
    seen,
)

PART_REWARD = 10.0
"""Meta-World's dense reward where a part is done; what follows counts from there."""


class Scene:
    """The simulation of a task.

    Attributes:
      task: what is to be done.
      observation: Meta-World's, `f64[39]`, of the part that is open.
    """

    def __init__(self, task: Task):
        self.task = task
        self._parts = parts.make_parts(task)
        self._open = 0
        model = self._parts[0].model
        self._others = {name: _FINDERS[name](model) for name in task.entities if name in _FINDERS}
        self._layout: tuple[np.ndarray, np.ndarray]
        self.observation: np.ndarray

    def start(self, rng: np.random.Generator) -> float:
        """Begins an episode where `rng` says.

        Returns:
          The dense reward there.
        """
        self._open = 0
        part = self._parts[0]
        _LAID_OUT[id(part.model)] = self
        self.observation = parts.start(part, rng)
        self._layout = part.model.body_pos.copy(), part.model.site_pos.copy()
        return parts.judge(part, self.observation)[0]

    def step(self, action: np.ndarray) -> tuple[float, bool]:
        """One step of .0125 s.

        Args:
          action: `f32[4]` in ±1.

        Returns:
          The dense reward, which goes on over the parts, and whether the last part is done.
        """
        part = self._parts[self._open]
        self._lay_out(part.model)
        self.observation, dense, _, _, info = part.step(action)
        dense, done = float(dense) + PART_REWARD * self._open, bool(info["success"])
        if done and part is not self._parts[-1]:
            self._open += 1
            following = self._parts[self._open]
            self.observation = parts.take_over(self.task, part, following)
            dense = PART_REWARD * self._open + parts.judge(following, self.observation, action)[0]
            done = False
        return dense, done

    def state(self) -> np.ndarray:
        """What the scene shows now, `f32[91]`, without a distractor."""
        part, obs = self._parts[self._open], self.observation
        state = np.zeros(STATE_SIZE, np.float32)
        state[GRIPPER], state[TARGET] = obs[GRIPPER], obs[-3:]
        shown = seen(self.task.parts[self._open])
        for number, entity in enumerate(shown):
            first = GRIPPER.stop + POSE_SIZE * number
            state[pose(entity)] = obs[first : first + POSE_SIZE]
        for entity, find in self._others.items():
            if entity not in shown:
                state[pose(entity)] = find(part.data)
        return state

    def _lay_out(self, model: Any) -> None:
        """Puts bodies where this episode has them, if another one has used the model since."""
        if _LAID_OUT[id(model)] is not self:
            model.body_pos[:], model.site_pos[:] = self._layout
            _LAID_OUT[id(model)] = self


_LAID_OUT: dict[int, Scene] = {}
"""Whose layout each model has; models live as long as the process."""

_FREE: dict[str, list[Scene]] = collections.defaultdict(list)


def borrow(task: str) -> Scene:
    """A scene of that task which nobody uses, made if there is none."""
    free = _FREE[task]
    return free.pop() if free else Scene(TASKS[task])


def give_back(scene: Scene) -> None:
    """Ends the use of a borrowed scene."""
    _FREE[scene.task.name].append(scene)


Find = Callable[[Any], tuple[float, ...]]
"""`MjData -> ` position and quaternion."""


def _find_wall(model: Any) -> Find:
    body = model.body("wall").id
    return lambda data: (*data.xpos[body], *data.xquat[body])


def _find_mug(model: Any) -> Find:
    body, geom = model.body("obj").id, model.geom("mug").id
    return lambda data: (*data.xpos[body], *_rotation(data.geom_xmat[geom]))


def _find_coffee_button(model: Any) -> Find:
    site = model.site("buttonStart").id
    return lambda data: (*data.site_xpos[site], 1.0, 0.0, 0.0, 0.0)


def _find_lock(model: Any) -> Find:
    site, body = model.site("lockStartUnlock").id, model.body("door_link").id
    return lambda data: (*data.site_xpos[site], *data.xquat[body])


def _find_handle(model: Any) -> Find:
    """By its mesh, since on a door with a lock Meta-World gives it no name."""
    (geom,) = np.flatnonzero(model.geom_dataid == model.mesh("door_handle").id)
    return lambda data: (*data.geom_xpos[geom], *_rotation(data.geom_xmat[geom]))


def _rotation(matrix: np.ndarray) -> np.ndarray:
    """Quaternion x, y, z, w, its largest number positive, as Meta-World has it of geometries."""
    quaternion = np.empty(4)
    mujoco.mju_mat2Quat(quaternion, matrix)
    sign = 1.0 if quaternion.max() >= -quaternion.min() else -1.0
    return sign * quaternion[[1, 2, 3, 0]]


_FINDERS: dict[str, Callable[[Any], Find]] = {
    "wall": _find_wall,
    "coffee": _find_mug,
    "coffee button": _find_coffee_button,
    "lock": _find_lock,
    "handle": _find_handle,
}
"""Of entities that Meta-World does not show in each of its tasks."""

"""Scripted experts: Meta-World's, and sequences of them for the tasks that it lacks.

They see a state as a policy does, and nothing else.
"""

import functools
import warnings
from typing import Any

import numpy as np
from metaworld.policies import ENV_POLICY_MAP

from jaxrl_guided.envs.metaworld.tasks import GRIPPER, POSE_SIZE, TARGET, TASKS, pose, seen

_PULL = np.array([-1.0, -1.0, 0.0, 1.0], np.float32)
"""Left and forward: a hand that has turned the lock stands behind its bar and takes the door along.
To let go and go round to the handle, as Meta-World's expert, would take longer than an episode."""


def expert_action(task: str, state: np.ndarray) -> np.ndarray:
    """The scripted action.

    Args:
      task: name of the task.
      state: `f32[91]`.

    Returns:
      `f32[4]` in ±1.
    """
    part = open_part(task, state)
    if task == "locked-door-open" and part == "door-open":
        return _PULL.copy()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that actions are clipped
        action = _policy(part).get_action(_observation(part, state))
    return np.clip(action, -1.0, 1.0).astype(np.float32)


def open_part(task: str, state: np.ndarray) -> str:
    """The part of a task that is to be done next, as its target shows."""
    parts = TASKS[task].parts
    _, depth, height = state[TARGET]
    if task == "make-coffee":  # the mug's place is on the table, the button's above
        return parts[int(height > 0.15)]
    if task == "locked-door-open":  # the lock's place is at the door, the handle's in front of it
        return parts[int(depth < 0.5)]
    return parts[0]


@functools.cache
def _policy(part: str) -> Any:
    policies: dict[str, Any] = ENV_POLICY_MAP
    return policies[f"{part}-v3"]()


def _observation(part: str, state: np.ndarray) -> np.ndarray:
    """Meta-World's observation `f64[39]`; its policies may write to it."""
    now = np.zeros(GRIPPER.stop + 2 * POSE_SIZE)
    now[GRIPPER] = state[GRIPPER]
    for number, entity in enumerate(seen(part)):
        first = GRIPPER.stop + POSE_SIZE * number
        now[first : first + POSE_SIZE] = state[pose(entity)]
    return np.concatenate([now, now, state[TARGET]])

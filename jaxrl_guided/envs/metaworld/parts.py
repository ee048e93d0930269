"""Meta-World's own environments, and how two of them follow each other in one simulation.

Models are shared within a process: one of Meta-World takes 21 MB, nearly all of it meshes
and textures. Two tasks that Meta-World lacks are composed here (LaGO, arXiv 2606.24669).
"""

import functools
import pickle
from collections.abc import Callable
from typing import Any

import mujoco
import numpy as np
from gymnasium.spaces import Box
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.envs import SawyerDoorUnlockEnvV3
from metaworld.types import Task as Placement

from jaxrl_guided.envs.metaworld.lean import make_lean
from jaxrl_guided.envs.metaworld.tasks import Task

_MIN_WAY = 0.15
"""Metres that Meta-World asks for between where an object is and where it shall be."""

_Simulation = tuple[mujoco.MjModel, mujoco.MjData]
_NO_ACTION = np.zeros(4, np.float32)
_LOCKED = "locked"


def make_parts(task: Task) -> tuple[Any, ...]:
    """Meta-World's environments of a task's parts, which act in one simulation."""
    kinds = [ALL_V3_ENVIRONMENTS[f"{part}-v3"] for part in task.parts]
    if task.name == "locked-door-open":
        first = _make(_LockedDoor, _simulate_locked_door)
    else:
        first = _make(kinds[0], _simulate)
    others = [_make(kind, lambda _: (first.model, first.data)) for kind in kinds[1:]]
    for other in others:
        # Meta-World cuts goals to where its own tasks have them.
        other.goal_space = Box(-np.inf, np.inf, (3,), np.float64)
        _place(other, np.zeros(3))
    return first, *others


def start(part: Any, rng: np.random.Generator) -> np.ndarray:
    """Begins an episode where `rng` says; Meta-World itself takes no seed for that.

    Returns:
      Meta-World's observation `f64[39]`.
    """
    _place(part, _draw(part, rng))
    part.reset()
    # Meta-World moves bodies last and shows where they were: a window to be closed as if it were.
    mujoco.mj_kinematics(part.model, part.data)
    return part._get_obs()


def judge(
    part: Any, observation: np.ndarray, action: np.ndarray = _NO_ACTION
) -> tuple[float, bool]:
    """Meta-World's dense reward, and whether the part is done."""
    reward, info = part.evaluate_state(observation, action)
    return float(reward), bool(info["success"])


def take_over(task: Task, first: Any, second: Any) -> np.ndarray:
    """Begins a task's second part where its first has ended.

    Returns:
      Meta-World's observation `f64[39]` of the second.
    """
    if task.name == "make-coffee":
        machine = first._target_pos + np.array([0.0, 0.22, 0.0])
        second.obj_init_pos = machine
        second._target_pos = machine + np.array([0.0, second.max_dist - 0.22, 0.3])
        second.init_tcp = second.tcp_center
    else:
        second.data.eq_active[second.model.equality(_LOCKED).id] = 0
        second.obj_init_pos = second.model.body("door").pos.copy()
        second._target_pos = second.obj_init_pos + np.array([-0.3, -0.45, 0.0])
    second.curr_path_length = first.curr_path_length
    return second._get_obs()


def _make(upstream: Any, simulate: Callable[[str], _Simulation]) -> Any:
    """An environment of Meta-World in the simulation that `simulate` gives of its file."""
    return make_lean(upstream, {"_initialize_simulation": lambda part: simulate(part.fullpath)})


class _LockedDoor(SawyerDoorUnlockEnvV3):
    """Door-unlock whose door has a joint of its own, in front of the lock's."""

    def _set_obj_xyz(self, pos: np.ndarray) -> None:
        """Turns the lock."""
        joint = self.model.body("lock_link").jntadr[0]
        qpos, qvel = self.data.qpos.copy(), self.data.qvel.copy()
        qpos[self.model.jnt_qposadr[joint]] = pos
        qvel[self.model.jnt_dofadr[joint]] = 0
        self.set_state(qpos, qvel)


def _simulate(path: str) -> _Simulation:
    model = _load(path)
    return model, mujoco.MjData(model)


def _simulate_locked_door(path: str) -> _Simulation:
    model = _load_locked_door(path)
    return model, mujoco.MjData(model)


@functools.cache
def _load(path: str) -> mujoco.MjModel:
    return mujoco.MjModel.from_xml_path(path)


@functools.cache
def _load_locked_door(path: str) -> mujoco.MjModel:
    """The scene of door-unlock, its door with the hinge and the names of door-open's."""
    spec = mujoco.MjSpec.from_file(path)
    door = spec.body("door_link")
    door.add_joint(
        name="doorjoint",
        type=mujoco.mjtJoint.mjJNT_HINGE,
        axis=[0, 0, 1],
        range=[-2, 0],
        limited=True,
        armature=0.001,
        damping=2,
    )
    (handle,) = (geom for geom in door.geoms if geom.meshname == "door_handle")
    handle.name = "handle"
    held = spec.add_equality(name=_LOCKED, type=mujoco.mjtEq.mjEQ_JOINT)
    held.name1 = "doorjoint"
    # The fixed door is too wide to turn past its frame.
    spec.add_exclude(bodyname1="doorlockA", bodyname2="door_link")
    return spec.compile()


def _place(part: Any, drawn: np.ndarray) -> None:
    """Says where things are from the next reset on, and that the target is shown."""
    upstream = type(part).__mro__[1]  # what Meta-World unpickles must be a module's own
    data = {"rand_vec": drawn, "env_cls": upstream, "partially_observable": False}
    part.set_task(Placement("", pickle.dumps(data)))


def _draw(part: Any, rng: np.random.Generator) -> np.ndarray:
    """Where things are, uniform in Meta-World's space and refused as there."""
    space = part._random_reset_space
    while True:
        drawn = rng.uniform(space.low, space.high)
        if len(drawn) == 3 or np.linalg.norm(drawn[:2] - drawn[3:5]) >= _MIN_WAY:
            return drawn

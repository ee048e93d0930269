"""Meta-World's environments with the same numbers, to the bit, in less time.

Most of a step of Meta-World is Python around the simulation. What costs most there, objects for
single rotations and contacts, is done here by plain arithmetic in the same order.
"""

import math
import types
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.envs.mujoco import MujocoEnv


class _Rotation:
    """As much of SciPy's class as Meta-World uses, for one matrix that is orthogonal."""

    def __init__(self, quaternion: np.ndarray):
        self._quaternion = quaternion

    @classmethod
    def from_matrix(cls, matrix: np.ndarray) -> "_Rotation":
        return cls(quaternion_of(matrix))

    def as_quat(self) -> np.ndarray:
        return self._quaternion


def quaternion_of(matrix: np.ndarray) -> np.ndarray:
    """The quaternion `f64[4]` (x, y, z, w) of a rotation `f64[3, 3]`, as SciPy has it.

    (Markley, "Unit quaternion from rotation matrix", 2008: from the largest of the diagonal's
    numbers and their sum.)
    """
    (xx, xy, xz), (yx, yy, yz), (zx, zy, zz) = matrix.tolist()
    trace = xx + yy + zz
    largest = max(xx, yy, zz, trace)
    if largest == xx:
        found = (1 - trace + 2 * xx, yx + xy, zx + xz, zy - yz)
    elif largest == yy:
        found = (yx + xy, 1 - trace + 2 * yy, zy + yz, xz - zx)
    elif largest == zz:
        found = (zx + xz, zy + yz, 1 - trace + 2 * zz, yx - xy)
    else:
        found = (zy - yz, xz - zx, yx - xy, 1 + trace)
    x, y, z, w = found
    return np.array(found) / math.sqrt(x * x + y * y + z * z + w * w)


def make_lean(upstream: Any, methods: dict[str, Callable[..., Any]]) -> Any:
    """An environment of the class `upstream` of Meta-World, with `methods` in place of its own."""
    lean = {
        "_get_curr_obs_combined_no_goal": _observe,
        "touching_object": _touches,
        "reset": _reset,
        "_get_quat_objects": _without_scipy(upstream._get_quat_objects),
    }
    return type(upstream.__name__, (upstream,), lean | methods)()


def _without_scipy(method: Any) -> Any:
    """The same function, to which `Rotation` is the one above."""
    names = {**method.__globals__, "Rotation": _Rotation}
    return types.FunctionType(method.__code__, names, method.__name__)


def _reset(self: Any) -> None:
    """Lays everything out, twice as Meta-World does it: the second time sees what the first moved.

    The hand's way to its place is simulated the second time alone, since the state is then wiped.
    """
    self.curr_path_length = 0
    self._reset_hand = lambda: setattr(self, "init_tcp", self.tcp_center)
    self.reset_model()
    del self._reset_hand
    MujocoEnv.reset(self)


def _observe(self: Any) -> np.ndarray:
    """The hand, how far its fingers are apart, and the poses of one or two objects: `f64[18]`."""
    data = self.data
    apart = data.body("rightclaw").xpos - data.body("leftclaw").xpos
    positions, quaternions = self._get_pos_objects(), self._get_quat_objects()
    shown = len(positions) // 3
    obs = np.zeros(18)
    obs[:3] = data.body("hand").xpos
    obs[3] = min(math.sqrt(apart.dot(apart)) / 0.1, 1.0)
    poses = obs[4 : 4 + 7 * shown].reshape(shown, 7)
    poses[:, :3] = positions.reshape(shown, 3)
    poses[:, 3:] = quaternions.reshape(shown, 4)
    return obs


def _touches(self: Any, object_geom_id: int) -> bool:
    """Whether both fingers press the object."""
    data = self.data
    first, second = data.contact.geom.T
    touched = (first == object_geom_id) | (second == object_geom_id)
    if not touched.any():
        return False
    for pad in ("leftpad_geom", "rightpad_geom"):
        geom = data.geom(pad).id
        between = touched & ((first == geom) | (second == geom))
        if not sum(data.efc_force[data.contact.efc_address[between]]) > 0:
            return False
    return True

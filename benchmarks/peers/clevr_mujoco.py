"""CLEVR-Robot's dynamics in MuJoCo: what `jaxrl_guided.envs.clevr.push` is measured against.

The model is rebuilt from the published constants; needs `mujoco` (extra `bench`). One environment,
one thread, full three-dimensional state.
"""

import functools

import mujoco
import numpy as np

NUM_BALLS = 5
SUBSTEPS = 40
PUSHER_OFFSET = 0.15
DIRECTIONS = np.array(
    [[1, 0], [0, 1], [-1, 0], [0, -1], [0.8, 0.8], [-0.8, 0.8], [0.8, -0.8], [-0.8, -0.8]]
)

# Collisions: balls meet everything, all else meets balls only.
_BALL = """
<body name="ball{index}" pos="0 0 -0.195">
  <joint type="free" armature="0.04" damping="0.75"/>
  <geom type="sphere" size="0.13" density="1" contype="1" conaffinity="3"/>
</body>"""

_MODEL = """
<mujoco>
  <option timestep="0.01" integrator="Euler" iterations="20" gravity="0 0 -9.81"/>
  <default>
    <geom condim="3" margin="0.002" friction="0.8 0.1 0.1"/>
  </default>
  <worldbody>
    <geom type="plane" pos="0 0 -0.325" size="2 2 0.1" contype="2" conaffinity="0"/>
    <geom type="plane" pos="0.6 0 0" zaxis="-1 0 0" size="2 2 0.1" contype="2" conaffinity="0"/>
    <geom type="plane" pos="-0.6 0 0" zaxis="1 0 0" size="2 2 0.1" contype="2" conaffinity="0"/>
    <geom type="plane" pos="0 0.7 0" zaxis="0 -1 0" size="2 2 0.1" contype="2" conaffinity="0"/>
    <geom type="plane" pos="0 -0.3 0" zaxis="0 1 0" size="2 2 0.1" contype="2" conaffinity="0"/>
    <body name="pusher" pos="0 0 -0.2">
      <joint name="x" type="slide" axis="1 0 0" armature="0.04" damping="0.5"/>
      <joint name="y" type="slide" axis="0 1 0" armature="0.04" damping="0.5"/>
      <geom type="sphere" size="0.05" density="0.5" contype="2" conaffinity="0"/>
    </body>
    {balls}
  </worldbody>
  <actuator>
    <motor joint="x" ctrllimited="true" ctrlrange="-2 2"/>
    <motor joint="y" ctrllimited="true" ctrlrange="-2 2"/>
  </actuator>
</mujoco>"""


@functools.cache
def _model() -> mujoco.MjModel:
    balls = "".join(_BALL.format(index=i) for i in range(NUM_BALLS))
    return mujoco.MjModel.from_xml_string(_MODEL.format(balls=balls))


class ClevrMujoco:
    """One MuJoCo scene of five balls and a pusher."""

    def __init__(self) -> None:
        self.model = _model()
        self.data = mujoco.MjData(self.model)
        # Coordinates: two of the pusher, then seven per ball (speeds: six).
        ball = np.arange(NUM_BALLS)[:, None]
        self._qpos = 2 + 7 * ball + np.arange(2)
        self._qvel = 2 + 6 * ball + np.arange(2)

    @property
    def positions(self) -> np.ndarray:
        """`f64[5, 2]`: ball centres in metres."""
        return self.data.qpos[self._qpos]

    @property
    def velocities(self) -> np.ndarray:
        """`f64[5, 2]`: ball velocities in metres per second."""
        return self.data.qvel[self._qvel]

    def set_state(self, positions: np.ndarray, velocities: np.ndarray | None = None) -> None:
        """Puts the balls, unrotated and on the table, at `positions[5, 2]`; at rest by default."""
        mujoco.mj_resetData(self.model, self.data)
        self.data.qpos[self._qpos] = positions
        if velocities is not None:
            self.data.qvel[self._qvel] = velocities

    def push(self, action: int) -> None:
        """One environment step: places the pusher behind the ball and drives it for 0.4 s."""
        ball, direction = divmod(int(action), len(DIRECTIONS))
        force = DIRECTIONS[direction]
        self.data.qpos[:2] = self.positions[ball] - PUSHER_OFFSET * force
        self.data.qvel[:2] = 0.0
        self.data.ctrl[:] = force
        for _ in range(SUBSTEPS):
            mujoco.mj_step(self.model, self.data)

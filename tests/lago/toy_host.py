"""The toy environment with real actions, stepped by the host in this process."""

import functools

import gymnasium
import numpy as np
from gymnasium import spaces

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import Pool
from jaxrl_guided.envs.clevr.instructions import instruction_set
from tests.lago.toy_env import REACH, STATE, right_aim


class Held(gymnasium.Env):
    """Success is an action of two numbers near the right one, in an even step (0, 2, …)."""

    def __init__(self, level, reward="goal", horizon=5, terminate_on_success=True):
        self._texts = len(instruction_set(level).texts)
        self._value = {"goal": 1.0, "distance": 0.5}[reward]
        self._horizon, self._ends = horizon, terminate_on_success
        self.observation_space = spaces.Dict(
            {
                "state": spaces.Box(0.0, 100.0, (STATE,), np.float32),
                "instruction": spaces.Discrete(self._texts),
            }
        )
        self.action_space = spaces.Box(-1.0, 1.0, (2,), np.float32)

    def _observe(self):
        state = self.np_random.uniform(size=STATE).astype(np.float32)
        state[0] = self._time
        return {"state": state, "instruction": self._instruction}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._time, self._instruction = 0, int(self.np_random.integers(self._texts))
        return self._observe(), {}

    def step(self, action):
        near = np.abs(action - right_aim(self._instruction)) < REACH
        success = bool(near.all() and self._time % 2 == 0)
        self._time += 1
        terminated = success and self._ends
        truncated = self._time >= self._horizon and not terminated
        reward = self._value * success
        return self._observe(), reward, terminated, truncated, {"success": success}


def make_held(level, num_envs, *, members=1, **options):
    """`held/LEVEL`."""
    pool = Pool(
        f"held/{level}",
        functools.partial(Held, level, **options),
        num_envs * members,
        workers=0,
        info=("success",),
        max_steps=options.get("horizon", 5),
    )
    return make_bridge(pool, members)

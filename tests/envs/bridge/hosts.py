"""Small gymnasium environments, well-behaved and not."""

import ctypes
import os
import tempfile
import time

import gymnasium
import numpy as np
from gymnasium import spaces


class Counter(gymnasium.Env):
    """Observations are the seed's draw and the sum of actions; it ends at `end`.

    `fault` is done at the step `at` of an episode (0: in reset) if the flag file, where one is
    given, is there to be removed: so it happens once. `closing` is a file that closing adds to.
    """

    def __init__(self, fault="", at=2, end=5, once=None, closing=None):
        self.observation_space = spaces.Dict(
            {
                "draw": spaces.Box(0.0, 1.0, (), np.float64),
                "inner": spaces.Dict({"sum": spaces.Box(-99, 99, (2,), np.float32)}),
                "kind": spaces.Discrete(3, start=1),
            }
        )
        self.action_space = spaces.Discrete(4, start=-1)
        self._fault, self._at, self._end, self._once = fault, at, end, once
        self._closing = closing

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self._draw, self._time, self._sum = self.np_random.uniform(), 0, 0
        self._do_fault()
        return self._observation(), {}

    def step(self, action):
        assert action.dtype == np.int64
        self._time += 1
        self._sum += int(action)
        obs = self._observation() | self._do_fault()
        if self._fault == "rich" and self._time == self._at:
            return obs, 1e39, False, False, {}
        info = {"success": self._time >= self._end, "text": "no number"}
        return obs, float(self._sum), self._time >= self._end, False, info

    def close(self):
        if self._closing is not None:
            with open(self._closing, "a") as file:
                file.write("closed\n")

    def _observation(self):
        total = np.array([self._sum, -self._sum], np.float32)
        return {"draw": np.float64(self._draw), "inner": {"sum": total}, "kind": 1 + self._time % 3}

    def _do_fault(self):
        if self._fault in ("", "rich") or self._time != self._at:
            return {}
        if self._once is not None:
            try:
                os.remove(self._once)
            except FileNotFoundError:
                return {}
        if self._fault == "raise":
            raise KeyError("lost the key")
        if self._fault == "die":
            os._exit(7)
        if self._fault == "hang":
            time.sleep(3600)
        if self._fault == "hold":  # in a library that keeps Python's lock
            ctypes.PyDLL(None).sleep(3600)
        return {"draw": np.zeros(3) if self._fault == "shape" else np.float64("nan")}


class Unseeded(Counter):
    """Every episode is another, whatever the seed."""

    def reset(self, *, seed=None, options=None):
        del seed
        return super().reset(seed=int.from_bytes(os.urandom(4), "little"))


class Slow(Counter):
    """Takes so many seconds for a step."""

    def __init__(self, seconds):
        super().__init__()
        self._seconds = seconds

    def step(self, action):
        time.sleep(self._seconds)
        return super().step(action)


def cartpole():
    return gymnasium.make("CartPole-v1")


class Littering(Counter):
    """Leaves a directory behind at every start."""

    def reset(self, *, seed=None, options=None):
        tempfile.mkdtemp()
        return super().reset(seed=seed)

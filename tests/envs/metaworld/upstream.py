"""Meta-World's own environments, stepped by hand, and the numbers that are expected of them."""

import pickle

import mujoco
import numpy as np
from metaworld.env_dict import ALL_V3_ENVIRONMENTS
from metaworld.types import Task

POSES = {  # where a state has an entity's seven numbers, counted by hand
    "target object": 7,
    "button": 14,
    "lock": 21,
    "handle": 28,
    "window": 35,
    "faucet": 42,
    "wall": 49,
    "coffee": 56,
    "coffee button": 63,
    "hammer": 70,
    "nail": 77,
    "soccer": 84,
}
OBJECTS = {
    "reach": ["target object"],
    "push": ["target object"],
    "pick-place": ["target object"],
    "button-press": ["button"],
    "door-unlock": ["lock"],
    "door-open": ["handle"],
    "window-open": ["window"],
    "faucet-open": ["faucet"],
    "coffee-push": ["coffee"],
    "coffee-button": ["coffee button"],
    "reach-wall": ["target object"],
    "push-wall": ["target object"],
    "pick-place-wall": ["target object"],
    "button-press-wall": ["button"],
    "door-lock": ["lock"],
    "door-close": ["handle"],
    "window-close": ["window"],
    "faucet-close": ["faucet"],
    "hammer": ["hammer", "nail"],
    "soccer": ["soccer"],
}
"""What Meta-World's observation shows in each of its tasks."""


class ByHand:
    """A new environment of Meta-World in the episode that `drawn` places."""

    def __init__(self, name, drawn):
        kind = ALL_V3_ENVIRONMENTS[f"{name}-v3"]
        self.name, self.env = name, kind()
        data = {"rand_vec": drawn, "env_cls": kind, "partially_observable": False}
        self.env.set_task(Task(f"{name}-v3", pickle.dumps(data)))
        self.env.reset()
        # Positions of what a reset has moved last, which changes nothing that follows.
        mujoco.mj_kinematics(self.env.model, self.env.data)
        obs = self.env._get_obs()
        self.dense = float(self.env.evaluate_state(obs, np.zeros(4))[0])
        self.numbers = self._numbers(obs)

    def step(self, action):
        """Reward and success; the numbers of a state where it has them."""
        obs, dense, _, _, info = self.env.step(action)
        success = bool(info["success"])
        reward = 10.0 if success else float(dense) - self.dense
        self.dense, self.numbers = float(dense), self._numbers(obs)
        return reward, success

    def _numbers(self, obs):
        """`(expected, index)` of the state's numbers that Meta-World gives."""
        index = [*range(4), 4, 5, 6]
        expected = [*obs[:4], *obs[36:]]
        for number, entity in enumerate(OBJECTS[self.name]):
            index += range(POSES[entity], POSES[entity] + 7)
            expected += list(obs[4 + 7 * number : 11 + 7 * number])
        return np.float32(expected), index


def placed(env):
    """Where the open episode of one of our environments was placed."""
    return env._scene._parts[0]._last_rand_vec.copy()

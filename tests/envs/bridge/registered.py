"""Registers an environment with gymnasium when it is imported."""

import gymnasium

gymnasium.register(
    "Counter-v0", entry_point="tests.envs.bridge.hosts:Counter", max_episode_steps=20
)

"""Environments with observations that tell episodes and steps apart, for tests of bookkeeping."""

import jax.numpy as jnp

from jaxrl_guided.envs.types import Box, Dict, Discrete, TimeStep, VectorEnv


def make_counting_env(limits, instructions=None, actions_are_rewards=False):
    """Environment n ends after `limits[n]` steps; `obs` = (step in the episode, episode number).

    Episodes are truncated. Rewards are the step's number 1, 2, …, or the action; `success` is true
    in step 2 only. The state is (steps, episodes). With `instructions` the observation is a
    dictionary that has an id of that many: the episode's number.
    """
    limits = jnp.asarray(limits, jnp.int32)

    def observe(state):
        pair = jnp.stack(state, axis=1).astype(jnp.float32)
        if instructions is None:
            return pair
        return {"state": pair, "instruction": state[1] % instructions}

    def reset(key):
        del key
        state = (jnp.zeros_like(limits), jnp.zeros_like(limits))
        return state, observe(state)

    def step(state, action):
        steps, episodes = state[0] + 1, state[1]
        over = steps >= limits
        after = (jnp.where(over, 0, steps), episodes + over)
        reward = action if actions_are_rewards else steps
        return after, TimeStep(
            obs=observe(after),
            reward=reward.astype(jnp.float32),
            terminated=jnp.zeros_like(over),
            truncated=over,
            final_obs=observe((steps, episodes)),
            info={"success": steps == 2},
        )

    space = Box((2,), 0.0)
    if instructions is not None:
        space = Dict({"state": space, "instruction": Discrete(instructions)})
    return VectorEnv("counting", len(limits), space, Discrete(3), reset, step)

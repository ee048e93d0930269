"""A cheap environment family with known outcomes, in the shape of CLEVR-Robot's observations."""

import jax
import jax.numpy as jnp

from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.types import Box, Dict, Discrete, TimeStep, VectorEnv

NUM_ACTIONS = 40
STATE = 10


def right_action(instruction):
    """What solves an instruction."""
    return instruction % NUM_ACTIONS


def make_toy(level, num_envs, *, reward="goal", horizon=5, terminate_on_success=True):
    """Success is the right action in an even step (0, 2, …); reward 1 then (`distance`: .5).

    The state is uniform noise, except that its first number is the step's number.
    """
    num_texts = len(instruction_set(level).texts)
    value = {"goal": 1.0, "distance": 0.5}[reward]

    def observe(state):
        key, instruction, steps = state
        noise = jax.vmap(lambda k, t: jax.random.uniform(jax.random.fold_in(k, t), (STATE,)))
        x = noise(key, steps).at[:, 0].set(steps)
        return {"state": x, "instruction": instruction}

    def begin(key):
        key, drawn = jax.vmap(lambda k: jax.random.split(k, 2), out_axes=1)(key)
        instruction = jax.vmap(lambda k: jax.random.randint(k, (), 0, num_texts))(drawn)
        return key, instruction, jnp.zeros(num_envs, jnp.int32)

    def reset(key):
        state = begin(jax.random.split(key, num_envs))
        return state, observe(state)

    def step(state, action):
        key, instruction, steps = state
        success = (action == right_action(instruction)) & (steps % 2 == 0)
        terminated = success & terminate_on_success
        truncated = (steps + 1 >= horizon) & ~terminated
        after = (key, instruction, steps + 1)
        done = terminated | truncated
        fresh = begin(key)
        following = (
            jnp.where(done, fresh[0], key),
            jnp.where(done, fresh[1], instruction),
            jnp.where(done, 0, steps + 1),
        )
        rewards = jnp.where(success, value, 0.0)
        info = {"success": success}
        return following, TimeStep(
            observe(following), rewards, terminated, truncated, observe(after), info
        )

    space = Dict({"state": Box((STATE,), 0.0, 100.0), "instruction": Discrete(num_texts)})
    return VectorEnv(
        f"toy/{level}", num_envs, space, Discrete(NUM_ACTIONS), jax.jit(reset), jax.jit(step)
    )

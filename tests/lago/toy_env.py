"""Cheap environment families with known outcomes, in the shape of CLEVR-Robot's observations."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.types import Box, Dict, Discrete, TimeStep, VectorEnv

NUM_ACTIONS = 40
STATE = 10

AIMS = np.float32([[1.0, 0.6], [-0.6, 1.0], [-1.0, -0.6], [0.6, -1.0]])
"""Directions that instructions ask for; one number of each is at its bound."""
REACH = 0.3
AIM_MAP = {"kind": "continuous", "size": 2, "low": -1.0, "high": 1.0}


def right_action(instruction):
    """What solves an instruction of `make_toy`."""
    return instruction % NUM_ACTIONS


def right_aim(instruction):
    """What solves an instruction of `make_aim`."""
    return AIMS[instruction % len(AIMS)]


def make_toy(level, num_envs, **options):
    """Success is the right one of 40 actions, in an even step."""
    return _make(
        f"toy/{level}",
        num_envs,
        Discrete(NUM_ACTIONS),
        lambda action, instruction: action == right_action(instruction),
        **options,
    )


def make_aim(level, num_envs, **options):
    """Success is an action of two numbers near the right one, in an even step."""

    def near(action, instruction):
        return jnp.all(jnp.abs(action - jnp.asarray(AIMS)[instruction % len(AIMS)]) < REACH, -1)

    return _make(f"aim/{level}", num_envs, Box((2,), -1.0, 1.0), near, **options)


def _make(
    name, num_envs, action_space, is_right, *, reward="goal", horizon=5, terminate_on_success=True
):
    """Success is what is right in an even step (0, 2, …); reward 1 then (`distance`: .5).

    The state is uniform noise, except that its first number is the step's number.
    """
    num_texts = len(instruction_set(name.partition("/")[2]).texts)
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
        success = is_right(action, instruction) & (steps % 2 == 0)
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
    return VectorEnv(name, num_envs, space, action_space, jax.jit(reset), jax.jit(step))

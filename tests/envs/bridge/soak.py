"""Steps host environments while other programs are pending: `… FORM NUMBERS SECONDS CORES`.

FORM is `callbacks`, `in_turn` (callbacks, programs never wait for each other) or `loop`; NUMBERS
are those of an action. Prints the steps that were done.
"""

import functools
import os
import sys
import time

import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
from gymnasium import spaces

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import Pool

NUM_ENVS = 4
STEPS = 50


class Wide(gymnasium.Env):
    """Observes the mean of its last action; an episode has 20 steps."""

    def __init__(self, numbers):
        self.action_space = spaces.Box(-1.0, 1.0, (numbers,))
        self.observation_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action):
        return np.array([action.mean()], np.float32), 1.0, False, False, {}


def main():
    form, numbers, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
    os.sched_setaffinity(0, {int(core) for core in sys.argv[4].split(",")})
    if form == "in_turn":
        jax.config.update("jax_cpu_enable_async_dispatch", False)
    pool = Pool("soak", functools.partial(Wide, numbers), NUM_ENVS, workers=2, max_steps=20)
    env = make_bridge(pool)
    state, obs = jax.jit(env.reset)(jax.random.key(0))

    def decide(obs):
        return jnp.broadcast_to(0.5 * obs + 0.25, (NUM_ENVS, numbers))

    def step(now, _):
        state, obs = now
        state, after = env.step(state, decide(obs))
        return (state, after.obs), after.obs

    program = jax.jit(lambda state, obs: jax.lax.scan(step, (state, obs), length=STEPS))
    decide_alone, advance = jax.jit(decide), jax.jit(env.host.advance)
    other = jax.jit(lambda x: jax.lax.fori_loop(0, 100, lambda _, x: jnp.tanh(x @ x), x))
    pending, done, end = jnp.ones((128, 128)) / 128, 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(4):
            pending = other(pending)
        if form != "loop":
            (state, obs), _ = program(state, obs)
        else:
            clock = env.host.clock(state)
            for i in range(STEPS):
                action = decide_alone(obs)
                state, after = advance(state, action, env.host.step(clock + i, action))
                obs = after.obs
                pending = other(pending)
        done += STEPS
    # From zero halfway to .5 in each step, for twenty steps, then anew.
    np.testing.assert_allclose(obs, 0.5 - 0.5 ** (done % 20 + 1), rtol=1e-6)
    assert env.host.clock(state) == done
    env.close()
    print("steps", done)


if __name__ == "__main__":
    main()

"""Probe environments: tasks of a few steps whose values and best actions are known exactly.

A learner that misses one of them within seconds is broken, and which one it misses says where. They
share their spaces, and the task is data in the state, so one program trains on all of them.
"""

import dataclasses

import jax
import jax.numpy as jnp
from flax import struct

from jaxrl_guided.envs.types import Box, Discrete, TimeStep, VectorEnv

TASKS = ("constant", "observation", "discount", "action", "joint", "limit", "end", "recall")
HORIZONS = (1, 1, 2, 1, 1, 5, 5, 3)
PHASES = 5


@struct.dataclass
class ProbeState:
    """State of N episodes.

    Attributes:
      task: `i32[]`, index into `TASKS`.
      time: `i32[N]`, steps done in the episode.
      signal: `f32[N]`, -1 or 1, drawn anew in every episode.
      key: draws the signals.
    """

    task: jax.Array
    time: jax.Array
    signal: jax.Array
    key: jax.Array


def make_probe(task: str, num_envs: int, continuous: bool = False) -> VectorEnv:
    """One of the probes; the observation is `f32[6]`: the signal, and the time one-hot modulo 5.

    | task | episode | reward | value |
    |---|---|---|---|
    | constant | 1 step, nothing seen | 1 | 1 |
    | observation | 1 step, signal seen | signal | signal |
    | discount | 2 steps, time seen | 0, then 1 | γ, then 1 |
    | action | 1 step, nothing seen | match with 1 | 1 for the best action |
    | joint | 1 step, signal seen | match with the signal | 1 for the best action |
    | limit | cut after 5 steps, time seen | 1 | 1 / (1 - γ) |
    | end | ends after 5 steps, time seen | 1 | (1 - γ^(5 - time)) / (1 - γ) |
    | recall | 3 steps, signal seen at first, time always | 0, 0, match with the signal |
      γ^(2 - time) for the best actions of those who remember |

    Match with m: discrete, 1 where action = [m > 0] and -1 elsewhere; continuous, actions in
    [-1, 2], 1 - (action - m / 2)².

    Raises:
      ValueError: `task` is unknown.
    """
    if task not in TASKS:
        raise ValueError(f"probe {task!r} is unknown; there are {', '.join(TASKS)}")

    def reset(key: jax.Array) -> tuple[ProbeState, jax.Array]:
        key, signal_key = jax.random.split(key)
        state = ProbeState(
            task=jnp.int32(TASKS.index(task)),
            time=jnp.zeros(num_envs, jnp.int32),
            signal=_draw(signal_key, num_envs),
            key=key,
        )
        return state, _observe(state)

    def step(state: ProbeState, action: jax.Array) -> tuple[ProbeState, TimeStep]:
        key, signal_key = jax.random.split(state.key)
        reward = _reward(state, action[:, 0] if continuous else action, continuous)
        stepped = dataclasses.replace(state, time=state.time + 1, key=key)
        over = stepped.time >= jnp.asarray(HORIZONS)[state.task]
        cut = state.task == TASKS.index("limit")
        restarted = dataclasses.replace(
            stepped,
            time=jnp.where(over, 0, stepped.time),
            signal=jnp.where(over, _draw(signal_key, num_envs), state.signal),
        )
        return restarted, TimeStep(
            obs=_observe(restarted),
            reward=reward,
            terminated=over & ~cut,
            truncated=over & cut,
            final_obs=_observe(stepped),
            info={"success": reward > 0.9},
        )

    kind = "continuous" if continuous else "discrete"
    return VectorEnv(
        name=f"probe/{task}-{kind}",
        num_envs=num_envs,
        observation_space=Box((1 + PHASES,), -1.0, 1.0),
        action_space=Box((1,), -1.0, 2.0) if continuous else Discrete(2),
        reset=reset,
        step=step,
    )


def _draw(key: jax.Array, num_envs: int) -> jax.Array:
    return jax.random.rademacher(key, (num_envs,), jnp.float32)


def _observe(state: ProbeState) -> jax.Array:
    """`f32[N, 6]`; what the task does not show is zero."""
    seen = [state.task == TASKS.index(task) for task in ("observation", "joint")]
    shows_signal = seen[0] | seen[1] | (state.task == TASKS.index("recall")) & (state.time == 0)
    shows_time = jnp.asarray(HORIZONS)[state.task] > 1
    phase = jax.nn.one_hot(state.time % PHASES, PHASES) * shows_time
    return jnp.concatenate([(state.signal * shows_signal)[:, None], phase], axis=1)


def _reward(state: ProbeState, action: jax.Array, continuous: bool) -> jax.Array:
    """`f32[N]`."""

    def match(m: jax.Array) -> jax.Array:
        if continuous:
            return 1 - (action - m / 2) ** 2
        return jnp.where(action == (m > 0), 1.0, -1.0)

    one = jnp.ones_like(state.signal)
    rewards = {
        "constant": one,
        "observation": state.signal,
        "discount": (state.time == 1).astype(jnp.float32),
        "action": match(one),
        "joint": match(state.signal),
        "limit": one,
        "end": one,
        "recall": jnp.where(state.time == 2, match(state.signal), 0.0),
    }
    return jnp.stack([rewards[task] for task in TASKS])[state.task]

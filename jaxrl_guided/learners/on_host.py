"""Environments that the host steps, between programs that act for them and learn from them.

The numbers are those of the same functions with callbacks in one program; without callbacks a step
is faster. Everything here is of a population: states have members on the first axis.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl_guided.envs.population import write
from jaxrl_guided.envs.types import PyTree, TimeStep, VectorEnv
from jaxrl_guided.learners.evaluate import (
    Act,
    EpisodeResults,
    choose_action,
    count_step,
    start_evaluation,
)
from jaxrl_guided.learners.ppo import PPO
from jaxrl_guided.learners.sac import SAC
from jaxrl_guided.learners.train import Chunk, count_nonfinite

Decide = Callable[[PyTree, PyTree], tuple[PyTree, jax.Array]]
Record = Callable[[PyTree, PyTree, PyTree, TimeStep], tuple[PyTree, PyTree]]
Stepper = Callable[[int, PyTree, PyTree, PyTree, PyTree], tuple[PyTree, PyTree, PyTree]]


def make_chunk_on_host(env: VectorEnv, learner: PPO | SAC, max_iterations: int = 256) -> Chunk:
    """What `make_chunk` gives for environments in JAX, of states with an axis of members.

    `frozen` are the update's last arguments, a tuple; None for none.
    """
    assert env.host is not None
    host, parts = env.host, learner.interaction

    def begin(state: Any) -> tuple[Any, PyTree, PyTree, PyTree]:
        state, fixed, carry, keys = parts.begin(state)

        def one(outcome: PyTree) -> PyTree:
            now, action = parts.decide(fixed, carry, keys[0])
            _, after = host.advance(state.env_state, action, outcome)
            return parts.record(fixed, now, after)[1]

        shapes = jax.eval_shape(one, host.outcome)
        rows = jax.tree.map(lambda x: jnp.zeros((len(keys), *x.shape), x.dtype), shapes)
        return state, (fixed, keys), (carry, jnp.int32(0)), rows

    def decide(fixed: PyTree, carry: PyTree) -> tuple[PyTree, jax.Array]:
        (fixed, keys), (carry, row) = fixed, carry
        carry, action = parts.decide(fixed, carry, keys[row])
        return (carry, row), action

    def record(
        fixed: PyTree, carry: PyTree, rows: PyTree, after: TimeStep
    ) -> tuple[PyTree, PyTree]:
        (fixed, _), (carry, row) = fixed, carry
        carry, seen = parts.record(fixed, carry, after)
        rows = jax.tree.map(lambda array, new: write(array, new[None], row), rows, seen)
        return (carry, row + 1), rows

    def end(state: Any, env_state: PyTree, carry: PyTree, rows: PyTree, frozen: PyTree) -> Any:
        more = () if frozen is None else frozen
        return learner.update(*parts.end(state, env_state, carry[0], rows), *more)

    begin_all = jax.jit(jax.vmap(begin))
    end_all = jax.jit(jax.vmap(end, in_axes=(0, 0, 0, 0, None)), donate_argnums=0)
    step = make_stepper(env, decide, record)
    broken = jax.jit(lambda state: count_nonfinite(state.trained))

    def iterate(state: Any, frozen: PyTree) -> tuple[Any, PyTree]:
        state, fixed, carry, rows = begin_all(state)
        env_state = state.env_state
        clock = host.clock(env_state)
        for row in range(fixed[1].shape[1]):
            env_state, carry, rows = step(clock + row, fixed, env_state, carry, rows)
        return end_all(state, env_state, carry, rows, frozen)

    def run(state: Any, frozen: PyTree, count: Any) -> tuple[Any, dict[str, Any]]:
        found = []
        for _ in range(int(count)):
            state, metrics = iterate(state, frozen)
            found.append(metrics)
        rows: dict[str, Any] = {name: np.stack([m[name] for m in found]) for name in found[0]}
        rows["nonfinite_params"] = np.append(np.zeros(len(found) - 1), broken(state))
        return state, rows

    return Chunk(run, max_iterations)


def make_stepper(env: VectorEnv, decide: Decide, record: Record, axes: PyTree = 0) -> Stepper:
    """A step of the environments of all members.

    Args:
      decide: `(fixed, carry) -> (carry, action [N, …])`, of one member.
      record: `(fixed, carry, kept, TimeStep) -> (carry, kept)`.
      axes: of the members in `fixed`, as `vmap` has it.

    Returns:
      `(clock, fixed, env_state, carry, kept) -> (env_state, carry, kept)`; `kept` is donated.
    """
    assert env.host is not None
    host = env.host

    def after(
        fixed: PyTree, env_state: PyTree, action: Any, carry: PyTree, kept: PyTree, outcome: PyTree
    ) -> tuple[PyTree, PyTree, PyTree]:
        env_state, step = host.advance(env_state, action, outcome)
        return env_state, *record(fixed, carry, kept, step)

    decide_all = jax.jit(jax.vmap(decide, in_axes=(axes, 0)))
    after_all = jax.jit(jax.vmap(after, in_axes=(axes, 0, 0, 0, 0, 0)), donate_argnums=4)

    def step(
        clock: int, fixed: PyTree, env_state: PyTree, carry: PyTree, kept: PyTree
    ) -> tuple[PyTree, PyTree, PyTree]:
        carry, action = decide_all(fixed, carry)
        outcome = host.step(clock, np.asarray(action))
        return after_all(fixed, env_state, action, carry, kept, outcome)

    return step


def make_evaluation_on_host(
    env: VectorEnv,
    act: Act,
    max_steps: int,
    memory: PyTree = (),
    until_success: bool = False,
    axes: PyTree = 0,
) -> Callable[[PyTree, jax.Array], EpisodeResults]:
    """`(policies [members, …], key) -> EpisodeResults [members, N]`, those of `evaluate`.

    Args:
      act: `(policy, memory, key, obs [N, …]) -> (memory, action [N, …])`, of one member.
      max_steps, memory, until_success: see `evaluate`.
      axes: of the members in `policies`, as `vmap` has it.
    """
    assert env.host is not None
    host = env.host

    def decide(policy: PyTree, carry: PyTree) -> tuple[PyTree, jax.Array]:
        return choose_action(functools.partial(act, policy), carry)

    def record(
        policy: PyTree, carry: PyTree, results: EpisodeResults, after: TimeStep
    ) -> tuple[PyTree, EpisodeResults]:
        del policy
        return count_step(carry, results, after, until_success)

    def start(key: jax.Array) -> PyTree:
        # Each member its own: what vmap does not see as theirs would be done once for all.
        keys = jnp.broadcast_to(key, (host.members,))
        return jax.vmap(lambda key: start_evaluation(env, key, memory))(keys)

    start_all = jax.jit(start)
    step = make_stepper(env, decide, record, axes)

    def run(policies: PyTree, key: jax.Array) -> EpisodeResults:
        env_state, carry, results = start_all(key)
        for clock in range(max_steps):
            env_state, carry, results = step(clock, policies, env_state, carry, results)
            if np.asarray(results.finished).all():
                break
        return results

    return run

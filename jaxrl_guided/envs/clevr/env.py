"""CLEVR-Robot as a vector environment: scene, push, reward (LaGO, arXiv 2606.24669)."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxrl_guided.envs.clevr import goals
from jaxrl_guided.envs.clevr.instructions import InstructionSet, Kind
from jaxrl_guided.envs.clevr.physics import push
from jaxrl_guided.envs.clevr.scene import sample_scenes
from jaxrl_guided.envs.clevr.table import NUM_ACTIONS, NUM_BALLS, WALL_HIGH, WALL_LOW
from jaxrl_guided.envs.types import Box, Dict, Discrete, TimeStep, VectorEnv

ACTION_MAP = {"kind": "discrete", "n": NUM_ACTIONS, "action": "ball * 8 + direction"}
"""What an action means; a prior and its learner must agree on it."""


@struct.dataclass
class EnvState:
    """State of `N` environments.

    Attributes:
      key: `key[N]`.
      positions: `f32[N, 5, 2]`, ball centres in metres.
      velocities: `f32[N, 5, 2]`, in metres per second.
      instruction: `i32[N]`, index into the instruction set.
      steps: `i32[N]`, steps since the restart.
    """

    key: jax.Array
    positions: jax.Array
    velocities: jax.Array
    instruction: jax.Array
    steps: jax.Array


@dataclasses.dataclass(frozen=True)
class _Game:
    """What stays fixed while environments run; `kind` and `relations` as in `InstructionSet`."""

    kind: jax.Array
    relations: jax.Array
    num_envs: int
    reward: goals.RewardName
    horizon: int
    expose_velocity: bool
    terminate_on_success: bool


def make_clevr(
    instructions: InstructionSet,
    num_envs: int,
    reward: goals.RewardName = "goal",
    horizon: int = 50,
    expose_velocity: bool = False,
    terminate_on_success: bool = True,
    name: str | None = None,
) -> VectorEnv:
    """`num_envs` scenes, each with an instruction drawn uniformly at every restart.

    An observation is a dictionary: `state`, `f32[N, 10]` (x and y of red, blue, green, purple,
    cyan; their velocities behind them if exposed), and `instruction`, `i32[N]`. Actions are ball ·
    8 + direction. Success is tested after every step and terminates; the horizon truncates.
    ONE_STEP instructions (Easy) end after one step and are then terminated, solved or not: nothing
    that follows could change their return. `info` has `success`, `bool[N]`, the task was solved in
    this step, and `satisfied`, `i32[N]`, the subgoals that hold after it (before any restart).

    Args:
      instructions: what to draw from.
      num_envs: N.
      reward: `goal` or `distance`, see `goals.reward`.
      horizon: longest episode.
      expose_velocity: show velocities, too (without them observations are not Markov).
      terminate_on_success: whether success ends the episode.
      name: name of the environment; default `clevr/LEVEL`.

    Raises:
      ValueError: an argument out of range.
    """
    if num_envs < 1:
        raise ValueError(f"num_envs: must be at least 1, got {num_envs}")
    if horizon < 1:
        raise ValueError(f"horizon: must be at least 1, got {horizon}")
    if reward not in goals.REWARDS:
        raise ValueError(f"reward: unknown '{reward}'; choose one of {', '.join(goals.REWARDS)}")
    game = _Game(
        jnp.asarray(instructions.kind),
        jnp.asarray(instructions.relations),
        num_envs,
        reward,
        horizon,
        expose_velocity,
        terminate_on_success,
    )
    return VectorEnv(
        name=name or f"clevr/{instructions.level}",
        num_envs=num_envs,
        observation_space=_observation_space(len(instructions), expose_velocity),
        action_space=Discrete(NUM_ACTIONS),
        reset=jax.jit(functools.partial(_reset, game)),
        step=jax.jit(functools.partial(_step, game)),
    )


def _reset(game: _Game, key: jax.Array) -> tuple[EnvState, dict[str, jax.Array]]:
    none = jnp.zeros((game.num_envs, NUM_BALLS, 2), jnp.float32)
    zero = jnp.zeros(game.num_envs, jnp.int32)
    state = EnvState(jax.random.split(key, game.num_envs), none, none, zero, zero)
    state = _restart(game, state, jnp.ones(game.num_envs, bool))
    return state, _observe(game, state)


def _step(game: _Game, state: EnvState, action: jax.Array) -> tuple[EnvState, TimeStep]:
    kind, relations = game.kind[state.instruction], game.relations[state.instruction]
    positions, velocities = push(state.positions, state.velocities, action)
    satisfied, success, rewards = jax.vmap(functools.partial(_judge, game.reward))(
        kind, relations, action, state.positions, positions
    )
    steps = state.steps + 1
    terminated = (kind == Kind.ONE_STEP) | (success & game.terminate_on_success)
    truncated = (steps >= game.horizon) & ~terminated
    state = dataclasses.replace(state, positions=positions, velocities=velocities, steps=steps)
    final_obs = _observe(game, state)
    state = _restart(game, state, terminated | truncated)
    info = {"success": success, "satisfied": satisfied}
    obs = _observe(game, state)
    return state, TimeStep(obs, rewards, terminated, truncated, final_obs, info)


def _judge(
    reward: goals.RewardName,
    kind: jax.Array,
    relations: jax.Array,
    action: jax.Array,
    before: jax.Array,
    after: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Satisfied subgoals, success and reward of one environment's step."""
    satisfied = jnp.where(
        kind == Kind.ONE_STEP,
        goals.one_step_success(relations, action).astype(jnp.int32),
        goals.count_satisfied(kind, relations, after),
    )
    success = satisfied == goals.count_subgoals(kind, relations)
    return satisfied, success, goals.reward(reward, kind, relations, before, after, success)


def _restart(game: _Game, state: EnvState, needed: jax.Array) -> EnvState:
    """A new episode in the environments that are `needed`."""
    key, scene_key, text_key = jax.vmap(lambda k: jax.random.split(k, 3), out_axes=1)(state.key)
    drawn = jax.vmap(lambda k: jax.random.randint(k, (), 0, len(game.kind)))(text_key)
    return EnvState(
        key=key,
        positions=sample_scenes(scene_key, state.positions, needed),
        velocities=jnp.where(needed[:, None, None], 0.0, state.velocities),
        instruction=jnp.where(needed, drawn, state.instruction),
        steps=jnp.where(needed, 0, state.steps),
    )


def _observe(game: _Game, state: EnvState) -> dict[str, jax.Array]:
    parts = [state.positions, state.velocities][: 1 + game.expose_velocity]
    flat = jnp.concatenate([part.reshape(game.num_envs, -1) for part in parts], axis=1)
    return {"state": flat, "instruction": state.instruction}


def _observation_space(num_texts: int, expose_velocity: bool) -> Dict:
    unbounded = np.full(2 * NUM_BALLS, np.inf, np.float32)
    low = [np.tile(WALL_LOW, NUM_BALLS), -unbounded][: 1 + expose_velocity]
    high = [np.tile(WALL_HIGH, NUM_BALLS), unbounded][: 1 + expose_velocity]
    size = 2 * NUM_BALLS * (1 + expose_velocity)
    state = Box((size,), np.concatenate(low), np.concatenate(high))
    return Dict({"state": state, "instruction": Discrete(num_texts)})

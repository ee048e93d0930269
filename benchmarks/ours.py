"""This library as a contender of `benchmarks.race` (see `peers.protocol`), by its public pieces.

A run is one program from the seed to the trained state, as `learners.job` builds it.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import learner_floor
from benchmarks.peers import protocol
from jaxrl_guided.envs import make
from jaxrl_guided.envs.types import Box, Discrete, PyTree, VectorEnv
from jaxrl_guided.learners.evaluate import evaluate
from jaxrl_guided.learners.ppo import PPO, PPOConfig, make_ppo
from jaxrl_guided.learners.sac import SAC, SACConfig, make_sac
from jaxrl_guided.learners.train import make_chunk
from jaxrl_guided.networks.actor_critic import NetworkConfig, make_actor_critic
from jaxrl_guided.networks.soft import SoftNetworkConfig, make_soft_network

EPISODES = 100
MAX_STEPS = 1000
JUDGE_SEED = 10_000


def make_env(task: dict[str, Any], num_envs: int) -> VectorEnv:
    """The task's environment under its name in the registry."""
    name, options = task["env"], dict(task.get("options", {}))
    if name.startswith("brax/"):
        # As brax's trainers: an episode starts where its environment's first one did.
        options |= {"max_steps": task["max_steps"], "cached_reset": True}
        return make(name, num_envs, **options)
    return make(f"gymnax/{name}", num_envs, **options)


def make_learner(task: dict[str, Any], env: VectorEnv) -> PPO | SAC:
    """The learner with the task's settings."""
    hidden, activation = tuple(task["hidden"]), task["activation"]
    if task["algorithm"] == "ppo":
        network = make_actor_critic(
            env.observation_space, env.action_space, NetworkConfig(hidden, activation)
        )
        return make_ppo(env, network, ppo_config(task))
    soft = make_soft_network(
        env.observation_space, env.action_space, SoftNetworkConfig(hidden, activation)
    )
    return make_sac(env, soft, sac_config(task))


def ppo_config(task: dict[str, Any]) -> PPOConfig:
    """Our names for the task's settings."""
    return PPOConfig(
        total_steps=task["steps"],
        num_envs=task["num_envs"],
        rollout_steps=task["rollout_steps"],
        epochs=task["epochs"],
        minibatches=task["minibatches"],
        learning_rate=task["learning_rate"],
        schedule=task["schedule"],
        max_grad_norm=task["max_grad_norm"],
        gamma=task["gamma"],
        gae_lambda=task["gae_lambda"],
        clip=task["clip"],
        value_clip=task["value_clip"],
        value_weight=task["value_weight"],
        entropy_weight=task["entropy_weight"],
        normalise_obs=task["normalise_obs"],
    )


def sac_config(task: dict[str, Any]) -> SACConfig:
    """Our names for the task's settings."""
    return SACConfig(
        replay_capacity=task["replay"],
        total_steps=task["steps"],
        num_envs=task["num_envs"],
        learning_starts=task["learning_starts"],
        batch=task["batch"],
        actor_rate=task["learning_rate"],
        critic_rate=task["learning_rate"],
        alpha_rate=task["learning_rate"],
        gamma=task["gamma"],
        tau=task["tau"],
    )


class Ours(protocol.Contender):
    """Seeds are an axis of the program where there are several."""

    def prepare(self) -> float:
        task = self.task
        self.env = make_env(task, task["num_envs"])
        self._judge_env = make_env(task, EPISODES)
        self.learner = learner = make_learner(task, self.env)
        init, iterate, judge = learner.init, learner.iterate, self._evaluate
        if task["seeds"] > 1:
            init, iterate = jax.vmap(init), jax.vmap(iterate, in_axes=(0, None))
            judge = jax.vmap(judge)
        self._judge = jax.jit(judge)
        chunk = make_chunk(iterate, learner.config.iterations)

        def train(keys: jax.Array, count: jax.Array) -> Any:
            return chunk.run(init(keys), None, count)

        self._count = jnp.int32(learner.config.iterations)
        self._train, seconds = protocol.timed(
            lambda: jax.jit(train).lower(self._keys(0), self._count).compile()
        )
        return seconds

    def _keys(self, seed: int) -> jax.Array:
        key, seeds = jax.random.key(seed), self.task["seeds"]
        return key if seeds == 1 else jax.random.split(key, seeds)

    def run(self, seed: int) -> tuple[int, float]:
        keys = self._keys(seed)
        (state, _), seconds = protocol.timed(
            lambda: jax.block_until_ready(self._train(keys, self._count))
        )
        self._policy = state.policy
        iterations = np.atleast_1d(state.iteration).tolist()
        return sum(self.learner.config.steps_at(count) for count in iterations), seconds

    def _evaluate(self, policy: PyTree) -> jax.Array:
        """Mean return of greedy actions."""
        act = functools.partial(self.learner.act, policy, greedy=True)
        memory = self.learner.memory(EPISODES)
        limit = self.task.get("max_steps", MAX_STEPS)
        key = jax.random.key(JUDGE_SEED)
        return evaluate(self._judge_env, act, key, limit, memory).returns.mean()

    def judge(self) -> list[float]:
        return np.atleast_1d(self._judge(self._policy)).tolist()

    def floor(self) -> dict[str, float]:
        env, task = self.env, self.task
        assert isinstance(env.observation_space, Box)
        assert isinstance(env.action_space, Box | Discrete)
        inputs = int(np.prod(env.observation_space.shape))
        actions = env.action_space
        outputs = actions.n if isinstance(actions, Discrete) else int(np.prod(actions.shape))
        config, learning = self.learner.config, 1.0
        if isinstance(config, PPOConfig):
            products = learner_floor.ppo_products(inputs, outputs, task)
        else:
            products = learner_floor.sac_products(inputs, outputs, task)
            learning -= config.warm_iterations / config.iterations
        seconds = learning * learner_floor.products_seconds(products)
        return {
            "environment_seconds": learner_floor.environment_seconds(env),
            "products_seconds": seconds / config.steps_at(1),
        }

    def note(self) -> str:
        return ""


if __name__ == "__main__":
    protocol.serve(Ours)

"""PureJaxRL as a contender (see `protocol`): `"path"` in the task is a clone of it.

Its `make_train` is run as it comes, with what it returns of every step.
"""

import importlib
import sys
from typing import Any

import gymnax
import jax
import jax.numpy as jnp
import numpy as np
import protocol

EPISODES = 100


def configuration(task: dict[str, Any]) -> dict[str, Any]:
    """PureJaxRL's names for the task's settings."""
    return {
        "LR": task["learning_rate"],
        "NUM_ENVS": task["num_envs"],
        "NUM_STEPS": task["rollout_steps"],
        "TOTAL_TIMESTEPS": task["steps"],
        "UPDATE_EPOCHS": task["epochs"],
        "NUM_MINIBATCHES": task["minibatches"],
        "GAMMA": task["gamma"],
        "GAE_LAMBDA": task["gae_lambda"],
        "CLIP_EPS": task["clip"],
        "ENT_COEF": task["entropy_weight"],
        "VF_COEF": task["value_weight"],
        "MAX_GRAD_NORM": task["max_grad_norm"],
        "ACTIVATION": task["activation"],
        "ENV_NAME": task["env"],
        "ANNEAL_LR": True,
        "DEBUG": False,
    }


class PureJaxRL(protocol.Contender):
    """The whole run as one program."""

    def prepare(self) -> float:
        task = self.task
        if list(task["hidden"]) != [64, 64]:
            raise ValueError("PureJaxRL's networks have two layers of 64 units")
        sys.path.insert(0, task["path"])
        self.module = importlib.import_module("purejaxrl.ppo")
        train = self.module.make_train(configuration(task))
        if task["seeds"] > 1:
            train = jax.vmap(train)
        self._train, seconds = protocol.timed(lambda: jax.jit(train).lower(self._keys(0)).compile())
        judge = self._evaluate if task["seeds"] == 1 else jax.vmap(self._evaluate)
        self._judge = jax.jit(judge)
        return seconds

    def _keys(self, seed: int) -> jax.Array:
        key, seeds = jax.random.PRNGKey(seed), self.task["seeds"]
        return key if seeds == 1 else jax.random.split(key, seeds)

    def run(self, seed: int) -> tuple[int, float]:
        keys = self._keys(seed)
        result, seconds = protocol.timed(lambda: jax.block_until_ready(self._train(keys)))
        self.params = result["runner_state"][0].params
        done = result["metrics"]["returned_episode"].size
        return int(done), seconds

    def _evaluate(self, params: Any) -> jax.Array:
        """Mean return of greedy actions."""
        env, env_params = gymnax.make(self.task["env"])
        network = self.module.ActorCritic(
            env.action_space(env_params).n, activation=self.task["activation"]
        )

        def episode(key: jax.Array) -> jax.Array:
            obs, state = env.reset(key, env_params)

            def step(carry: Any, key: jax.Array) -> tuple[Any, None]:
                obs, state, alive, total = carry
                action = network.apply(params, obs.reshape(-1))[0].mode()
                obs, state, reward, done, _ = env.step(key, state, action, env_params)
                return (obs, state, alive * (1.0 - done), total + alive * reward), None

            start = (obs, state, jnp.float32(1), jnp.float32(0))
            steps = jax.random.split(key, int(env_params.max_steps_in_episode))
            return jax.lax.scan(step, start, steps)[0][-1]

        keys = jax.random.split(jax.random.PRNGKey(10_000), EPISODES)
        return jax.vmap(episode)(keys).mean()

    def judge(self) -> list[float]:
        return np.atleast_1d(self._judge(self.params)).tolist()

    def note(self) -> str:
        return (
            f"PureJaxRL on {protocol.versions('gymnax', 'jax')}: gymnax's older dynamics, of the "
            "same rate; time limits count as terminations"
        )


if __name__ == "__main__":
    protocol.serve(PureJaxRL)

"""rejax as a contender (see `protocol`); runs in an environment of its own.

With `"repaired": true` its replay draws with replacement. As it comes, it draws without, which
touches the whole buffer for every batch.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import protocol
from rejax import PPO, SAC
from rejax.buffers import ReplayBuffer
from rejax.evaluate import evaluate

EPISODES = 100


def draw_with_replacement(buffer: Any, batch: int, key: jax.Array) -> Any:
    """A batch, in place of `ReplayBuffer.sample`."""
    index = jax.random.randint(key, (batch,), 0, buffer.num_entries)
    return jax.tree.map(lambda rows: rows[index], buffer.data)


def ppo_options(task: dict[str, Any]) -> dict[str, Any]:
    """rejax's names for the task's settings."""
    updates = task["steps"] // (task["num_envs"] * task["rollout_steps"])
    total = updates * task["epochs"] * task["minibatches"]
    return {
        "num_envs": task["num_envs"],
        "num_steps": task["rollout_steps"],
        "num_epochs": task["epochs"],
        "num_minibatches": task["minibatches"],
        "learning_rate": optax.linear_schedule(task["learning_rate"], 0.0, total),
        "gae_lambda": task["gae_lambda"],
        "clip_eps": task["clip"],
        "vf_coef": task["value_weight"],
        "ent_coef": task["entropy_weight"],
        "max_grad_norm": task["max_grad_norm"],
        "agent_kwargs": {
            "hidden_layer_sizes": tuple(task["hidden"]),
            "activation": task["activation"],
        },
    }


def sac_options(task: dict[str, Any]) -> dict[str, Any]:
    """rejax's names for the task's settings."""
    return {
        "num_envs": task["num_envs"],
        "buffer_size": task["replay"],
        "fill_buffer": task["learning_starts"],
        "batch_size": task["batch"],
        "learning_rate": task["learning_rate"],
        "polyak": 1.0 - task["tau"],
        "hidden_layer_sizes": tuple(task["hidden"]),
        "agent_kwargs": {"activation": task["activation"]},
    }


class Rejax(protocol.Contender):
    """The whole run as one program."""

    def prepare(self) -> float:
        task = self.task
        if task.get("repaired"):
            ReplayBuffer.sample = draw_with_replacement
        algorithm, options = (
            (PPO, ppo_options(task)) if task["algorithm"] == "ppo" else (SAC, sac_options(task))
        )
        learner = algorithm.create(
            env=task["env"],
            total_timesteps=task["steps"],
            eval_freq=task["steps"],
            skip_initial_evaluation=True,
            gamma=task["gamma"],
            **options,
        )
        self.learner = learner = learner.replace(eval_callback=lambda *_: ())
        train = learner.train if task["seeds"] == 1 else jax.vmap(learner.train)
        self._train, seconds = protocol.timed(
            lambda: jax.jit(lambda keys: train(keys)[0]).lower(self._keys(0)).compile()
        )
        self._judge = jax.jit(self._evaluate if task["seeds"] == 1 else jax.vmap(self._evaluate))
        return seconds

    def _keys(self, seed: int) -> jax.Array:
        key, seeds = jax.random.PRNGKey(seed), self.task["seeds"]
        return key if seeds == 1 else jax.random.split(key, seeds)

    def run(self, seed: int) -> tuple[int, float]:
        keys = self._keys(seed)
        self.state, seconds = protocol.timed(lambda: jax.block_until_ready(self._train(keys)))
        return int(np.sum(self.state.global_step)), seconds

    def _evaluate(self, state: Any) -> jax.Array:
        """Mean return of greedy actions, by rejax's evaluation."""
        env, params, actor = self.learner.env, self.learner.env_params, self.learner.actor

        def act(obs: jax.Array, key: jax.Array) -> jax.Array:
            del key
            policy = actor.apply(state.actor_ts.params, obs[None], method="_action_dist")
            if self.task["algorithm"] == "ppo":
                return policy.mode()[0]
            space = env.action_space(params)
            centre, half = (space.high + space.low) / 2, (space.high - space.low) / 2
            return centre + half * jnp.tanh(policy.loc[0])

        key, limit = jax.random.PRNGKey(10_000), params.max_steps_in_episode
        return evaluate(act, key, env, params, EPISODES, limit)[1].mean()

    def judge(self) -> list[float]:
        return np.atleast_1d(self._judge(self.state)).tolist()

    def note(self) -> str:
        drawn = ", its replay made to draw with replacement" if self.task.get("repaired") else ""
        return (
            f"{protocol.versions('rejax', 'gymnax', 'jax')}{drawn}: gymnax's "
            "older dynamics, of the same rate; time limits count as terminations"
        )


if __name__ == "__main__":
    protocol.serve(Rejax)

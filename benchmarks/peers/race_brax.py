"""brax's PPO trainer as a contender (see `protocol`).

The trainer compiles whenever it is called. It trains in epochs of one program: the first two have
compilation in them (types change once), the others are timed, by the trainer itself.
"""

import functools
from typing import Any

import jax
import protocol
from brax import envs
from brax.training.acting import Evaluator
from brax.training.agents.ppo import networks
from brax.training.agents.ppo import train as ppo
from flax import linen

EPISODES = 100
EPOCHS = 8
COMPILING = 2


class Brax(protocol.Contender):
    """`brax.training.agents.ppo.train`, evaluation off."""

    def prepare(self) -> None:
        task = self.task
        hidden = tuple(task["hidden"])
        self._env = envs.get_environment(task["env"].split("/")[-1], **task["options"])
        self._evaluator: Evaluator | None = None
        self._params: Any = None
        self._train = functools.partial(
            ppo.train,
            environment=self._env,
            num_timesteps=task["steps"],
            num_envs=task["num_envs"],
            episode_length=task["max_steps"],
            learning_rate=task["learning_rate"],
            entropy_cost=task["entropy_weight"],
            discounting=task["gamma"],
            unroll_length=task["rollout_steps"],
            batch_size=task["num_envs"] // task["minibatches"],
            num_minibatches=task["minibatches"],
            num_updates_per_batch=task["epochs"],
            normalize_observations=True,
            clipping_epsilon=task["clip"],
            gae_lambda=task["gae_lambda"],
            max_grad_norm=task["max_grad_norm"],
            vf_loss_coefficient=task["value_weight"],
            network_factory=functools.partial(
                networks.make_ppo_networks,
                policy_hidden_layer_sizes=hidden,
                value_hidden_layer_sizes=hidden,
                activation=getattr(linen, task["activation"]),
            ),
            num_evals=EPOCHS + 1,
            run_evals=False,
        )
        return None

    def run(self, seed: int) -> tuple[int, float]:
        seen: list[tuple[int, float]] = []

        def progress(step: int, metrics: dict[str, Any]) -> None:
            seen.append((int(step), float(metrics["training/walltime"])))

        make_policy, self._params, _ = self._train(seed=seed, progress_fn=progress)
        if self._evaluator is None:
            limit = self.task["max_steps"]
            self._evaluator = Evaluator(
                envs.training.wrap(self._env, episode_length=limit),
                functools.partial(make_policy, deterministic=True),
                num_eval_envs=EPISODES,
                episode_length=limit,
                action_repeat=1,
                key=jax.random.PRNGKey(10_000),
            )
        (first, compiled), (last, seconds) = seen[COMPILING - 1], seen[-1]
        return last - first, seconds - compiled

    def judge(self) -> list[float]:
        assert self._evaluator is not None
        metrics = self._evaluator.run_evaluation(self._params, {})
        return [float(metrics["eval/episode_reward"])]

    def note(self) -> str:
        return f"{protocol.versions('brax', 'jax')}: its minibatches are made of whole rollouts"


if __name__ == "__main__":
    protocol.serve(Brax)

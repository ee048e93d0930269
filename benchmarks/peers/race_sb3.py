"""stable-baselines3 and sbx as contenders (see `protocol`): `"library"` in the task says which.

Environments are gymnasium's, in numpy. A new model compiles anew in sbx: a few steps that are not
timed go before each run.
"""

import importlib
from collections.abc import Callable
from typing import Any

import protocol
import torch
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy

EPISODES = 100
WARM_SAC_STEPS = 8


def linear(start: float) -> Callable[[float], float]:
    """A learning rate that falls to zero, of the share of the run that remains."""
    return lambda remaining: start * remaining


class Baselines(protocol.Contender):
    """A model of its own for each run."""

    def prepare(self) -> None:
        torch.set_num_threads(1)
        task = self.task
        library = importlib.import_module(
            "sbx" if task["library"] == "sbx" else "stable_baselines3"
        )
        self._sac = task["algorithm"] == "sac"
        self._algorithm = library.SAC if self._sac else library.PPO
        self._options = self._sac_options() if self._sac else self._ppo_options()
        return None

    def _network(self) -> dict[str, Any]:
        """Networks of both libraries are those of the task by default, but for the sizes."""
        task = self.task
        if task["activation"] != ("relu" if self._sac else "tanh"):
            raise ValueError(f"the libraries' own activation is not {task['activation']}")
        return {"net_arch": list(task["hidden"])}

    def _ppo_options(self) -> dict[str, Any]:
        task = self.task
        batch = task["num_envs"] * task["rollout_steps"]
        return {
            "n_steps": task["rollout_steps"],
            "batch_size": batch // task["minibatches"],
            "n_epochs": task["epochs"],
            "learning_rate": linear(task["learning_rate"]),
            "gamma": task["gamma"],
            "gae_lambda": task["gae_lambda"],
            "clip_range": task["clip"],
            "ent_coef": task["entropy_weight"],
            "vf_coef": task["value_weight"],
            "max_grad_norm": task["max_grad_norm"],
            "policy_kwargs": self._network(),
        }

    def _sac_options(self) -> dict[str, Any]:
        task = self.task
        return {
            "learning_rate": task["learning_rate"],
            "buffer_size": task["replay"],
            "learning_starts": 2,  # of the steps before the run
            "batch_size": task["batch"],
            "tau": task["tau"],
            "gamma": task["gamma"],
            "train_freq": 1,
            "gradient_steps": 1,
            "policy_kwargs": self._network(),
        }

    def run(self, seed: int) -> tuple[int, float]:
        task = self.task
        envs = make_vec_env(task["env"], n_envs=task["num_envs"], seed=seed)
        model = self._algorithm("MlpPolicy", envs, seed=seed, device="cpu", **self._options)
        warm = WARM_SAC_STEPS if self._sac else task["num_envs"] * task["rollout_steps"]
        model.learn(warm)
        if self._sac:
            model.learning_starts = warm + task["learning_starts"]
        before = model.num_timesteps
        _, seconds = protocol.timed(lambda: model.learn(task["steps"], reset_num_timesteps=False))
        self._model = model
        return model.num_timesteps - before, seconds

    def judge(self) -> list[float]:
        env = make_vec_env(self.task["env"], n_envs=EPISODES, seed=10_000)
        mean, _ = evaluate_policy(self._model, env, n_eval_episodes=EPISODES, deterministic=True)
        return [mean]

    def note(self) -> str:
        if self.task["library"] == "sbx":
            return protocol.versions("sbx-rl", "gymnasium", "jax")
        return protocol.versions("stable-baselines3", "gymnasium", "torch")


if __name__ == "__main__":
    protocol.serve(Baselines)

"""Ways to step host environments, as contenders (see `protocol`): `"form"` in the task says which.

`bare` is a Python loop over environments in one process; `pool` is ours without JAX; `sync` and
`async` are gymnasium's vector environments, `subproc` is stable-baselines3's. All step the same
environments, with the same random actions, and restart them.
"""

import functools
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import protocol

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))


def factory_of(name: str) -> Callable[[], gymnasium.Env]:
    """Makes an environment; names are those of the registry, `gym/` left out."""
    family, _, environment = name.partition("/")
    if family == "minihack":
        from jaxrl_guided.envs.minihack.host import Host, HostConfig

        return functools.partial(Host, environment, HostConfig())
    if family == "metaworld":
        from jaxrl_guided.envs.metaworld.env import MetaWorldEnv

        return functools.partial(MetaWorldEnv, environment)
    return functools.partial(gymnasium.make, name, disable_env_checker=True)


class Form(protocol.Contender):
    """Environments that stay between the runs."""

    def prepare(self) -> None:
        task = self.task
        factory, self._count = factory_of(task["env"]), task["num_envs"]
        one = factory()
        self._space = one.action_space
        one.close()
        self._step = getattr(self, f"_{task['form']}")(factory)

    def run(self, seed: int) -> tuple[int, float]:
        steps = -(-self.task["steps"] // self._count)
        self._space.seed(seed)
        actions = np.stack(
            [[self._space.sample() for _ in range(self._count)] for _ in range(steps)]
        )
        self._step(actions[0])

        def loop() -> None:
            for action in actions:
                self._step(action)

        _, seconds = protocol.timed(loop)
        return steps * self._count, seconds

    def _bare(self, factory: Callable[[], gymnasium.Env]) -> Callable[[np.ndarray], None]:
        envs = [factory() for _ in range(self._count)]
        for seed, env in enumerate(envs):
            env.reset(seed=seed)

        def step(actions: np.ndarray) -> None:
            for env, action in zip(envs, actions, strict=True):
                _, _, terminated, truncated, _ = env.step(action)
                if terminated or truncated:
                    env.reset()

        return step

    def _pool(self, factory: Callable[[], gymnasium.Env]) -> Callable[[np.ndarray], Any]:
        from jaxrl_guided.envs.bridge.pool import Pool

        name = self.task["env"]
        spares = name.startswith("minihack/")  # as `make` has it
        limit = self.task["max_steps"]
        pool = Pool(name, factory, self._count, max_steps=limit, spares=spares)
        pool.reset(np.arange(self._count, dtype=np.uint32))
        return pool.step

    def _sync(self, factory: Callable[[], gymnasium.Env]) -> Callable[[np.ndarray], Any]:
        return _started(gymnasium.vector.SyncVectorEnv([factory] * self._count))

    def _async(self, factory: Callable[[], gymnasium.Env]) -> Callable[[np.ndarray], Any]:
        return _started(gymnasium.vector.AsyncVectorEnv([factory] * self._count))

    def _subproc(self, factory: Callable[[], gymnasium.Env]) -> Callable[[np.ndarray], Any]:
        from stable_baselines3.common.vec_env import SubprocVecEnv

        envs = SubprocVecEnv([factory] * self._count, start_method="fork")
        envs.seed(0)
        envs.reset()
        return envs.step

    def judge(self) -> list[float]:
        raise NotImplementedError

    def floor(self) -> dict[str, float]:
        raise NotImplementedError

    def note(self) -> str:
        return protocol.versions("gymnasium")


def _started(envs: Any) -> Callable[[np.ndarray], Any]:
    envs.reset(seed=list(range(envs.num_envs)))
    return envs.step


if __name__ == "__main__":
    protocol.serve(Form)

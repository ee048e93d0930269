"""Tasks for tests of mixes and workers, which find them as `counting:Up` and `counting:Down`."""

import os
import signal
import time

from jaxrl_guided.envs.text.task import TASK, Opening, Reply


class Up:
    """Wants the seed's number said after `wait` seconds; `turns` answers at most."""

    def __init__(self, turns: int = 3, instances: int = 64, wait: float = 0.0):
        self.max_turns, self.instances, self.wait = turns, instances, wait

    def reset(self, seed):
        time.sleep(self.wait)
        self.seed, self.turn = seed, 0
        return Opening(type(self).__name__, f"say {seed}", f"say {seed}")

    def step(self, answer):
        time.sleep(self.wait)
        self.turn += 1
        if answer == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if answer == "hang":
            time.sleep(3600)
        if answer == "raise":
            raise KeyError("nothing of that name")
        if answer == "long":
            return Reply("x" * 1_000_000)
        won = answer == f"say {self.seed}"
        return Reply(f"{answer} {self.turn}", {TASK: float(won)}, terminated=won, success=won)

    def close(self):
        """Nothing to free."""


class Down(Up):
    """Another one, with an option of its own."""

    def __init__(self, turns: int = 5, instances: int = 16, slow: bool = False):
        super().__init__(turns, instances)
        self.slow = slow

    def step(self, answer):
        reply = super().step(answer)
        known = iter([None, None, reply])
        return Reply("", later=lambda: next(known)) if self.slow else reply


class Echo:
    """Says what it is told."""

    def reset(self, seed):
        """Nothing to forget."""

    def answer(self, observation):
        return observation


Up.demonstrator, Down.demonstrator = Echo, None

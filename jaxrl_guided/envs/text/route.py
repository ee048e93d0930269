"""A task for memory: a route is told once, then walked crossing by crossing.

A policy that sees only the last message knows the first direction and guesses all others: it
arrives in one of four thousand episodes.
"""

import dataclasses
import random
import re

from jaxrl_guided.envs.text.task import TASK, Opening, Reply

DIRECTIONS = ("north", "east", "south", "west")
CROSSINGS = 7
SYSTEM = "At each crossing answer go DIRECTION as the route says"
_STRIDE = 10_125
"""Odd, so that seeds are different routes; .618 of their number, which spreads any range."""

_ACTION = re.compile(rf"\bgo ({'|'.join(DIRECTIONS)})\b", re.IGNORECASE | re.ASCII)


def route_of(seed: int) -> tuple[str, ...]:
    """The directions of an episode; any range of seeds has all kinds of routes."""
    number = seed * _STRIDE
    return tuple(DIRECTIONS[number // 4**place % 4] for place in range(CROSSINGS))


class Route:
    """Ends with success at the end of the route, or at the first wrong turn."""

    max_turns = CROSSINGS
    instances = len(DIRECTIONS) ** CROSSINGS

    def reset(self, seed: int) -> Opening:
        """Tells the route."""
        self._left = list(route_of(seed))
        self._shown = f"Route: {' '.join(self._left)}. Crossing 1"
        return Opening(SYSTEM, self._shown, "Walk a route from memory.")

    def step(self, answer: str) -> Reply:
        """One direction; the last that the answer names counts."""
        found = _ACTION.findall(answer)
        if not found:
            return Reply(f"Say go and a direction. {self._shown}", acted=False)
        right = found[-1].lower() == self._left.pop(0)
        if right and self._left:
            self._shown = f"Crossing {CROSSINGS - len(self._left) + 1}"
            return Reply(self._shown)
        return Reply("", {TASK: float(right)}, terminated=True, success=right)

    def close(self) -> None:
        """Nothing to free."""


@dataclasses.dataclass
class RouteDemonstrator:
    """Walks by the first directions of the route, and guesses those that it does not remember.

    Attributes:
      memory: directions that it remembers.
    """

    memory: int = CROSSINGS - 1

    def reset(self, seed: int) -> None:
        """Forgets everything."""
        self._random, self._known = random.Random(seed), list[str]()

    def answer(self, observation: str) -> str:
        """The next direction."""
        if told := re.search(r"Route: ([a-z ]+)", observation):
            self._known = told[1].split()[: self.memory]
        direction = self._known.pop(0) if self._known else self._random.choice(DIRECTIONS)
        return f"go {direction}"

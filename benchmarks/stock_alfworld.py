"""ALFWorld's games on one core: our engine beside TextWorld's PddlEnv, in the same process.

Both play the same commands, and every text, list of commands and win must be the same.
"""

import dataclasses
import functools
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from benchmarks import common
from jaxrl_guided.envs.alfworld.compose import Game, compose
from jaxrl_guided.envs.alfworld.engine import Engine
from jaxrl_guided.envs.alfworld.package import (
    TASK_TYPES,
    read_catalogue,
    read_scenes,
)

FASTER, RESET_SECONDS = 10.0, 0.3
"""Goals: times the steps per second of PddlEnv, and seconds of a reset."""

STOCK = "PddlEnv"
_USELESS = ("fly to the moon", "go to drawer 99", "take", "")
_PLAIN = ("go to", "examine", "help", "inventory")


class Played(Protocol):
    """A game as one sees it."""

    @property
    def text(self) -> str:
        """What is seen."""

    @property
    def admissible(self) -> Sequence[str]:
        """Commands, sorted."""

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""

    def step(self, command: str) -> Any:
        """Does what a command says."""


class Stock:
    """PddlEnv behind alfworld's AlfredDemangler, as alfworld itself plays games."""

    def __init__(self, game: Game) -> None:
        self._env = _stock_env()
        names = {"pddl_domain": game.domain, "grammar": game.grammar}
        self._env.load({**names, "pddl_problem": game.problem})
        self._state = self._env.reset()

    @property
    def text(self) -> str:
        """What is seen."""
        return self._state.feedback

    @property
    def admissible(self) -> Sequence[str]:
        """Commands, sorted."""
        return self._state["admissible_commands"]

    @property
    def won(self) -> bool:
        """Whether the goal is reached."""
        return self._state["won"]

    def step(self, command: str) -> None:
        """Does what a command says."""
        self._state, _, _ = self._env.step(command)


def _stock_env() -> Any:
    import textworld
    from textworld.envs import PddlEnv

    demangler = _demangler()
    return demangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)))


@functools.cache
def _demangler() -> Any:
    """Importing alfworld makes a folder for games in the user's home, unless it has another one."""
    before = os.environ.get("ALFWORLD_DATA")
    os.environ["ALFWORLD_DATA"] = before or tempfile.gettempdir()
    try:
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
    finally:
        if before is None:
            del os.environ["ALFWORLD_DATA"]
    return AlfredDemangler


def make_game(seed: int, tasks: Sequence[str] = TASK_TYPES) -> Game:
    """A composed game of the training rooms."""
    return compose(f"benchmark {seed}", read_scenes(False), tasks, read_catalogue(), 3)


def wander(game: Game, seed: int, turns: int) -> list[str]:
    """Commands of a random walk, most of which change something, some of which nobody knows."""
    rng, played, commands = random.Random(seed), Engine(game), list[str]()
    for _ in range(turns):
        some = [name for name in played.admissible if not name.startswith(_PLAIN)]
        command = rng.choice(some if some and rng.random() < 0.6 else played.admissible)
        commands.append(command if rng.random() < 0.9 else rng.choice(_USELESS))
        played.step(commands[-1])
    return commands


@dataclasses.dataclass(frozen=True)
class Trace:
    """What was seen, and how long it took.

    Attributes:
      seen: text, commands and win at the start and after each command.
      reset: seconds.
      steps: seconds of all of them.
    """

    seen: Sequence[tuple[str, Sequence[str], bool]]
    reset: float
    steps: float


def trace(make: Callable[[Game], Played], game: Game, commands: Sequence[str]) -> Trace:
    """Plays commands."""
    start = time.perf_counter()
    played = make(game)
    reset, steps = time.perf_counter() - start, 0.0
    seen = [(played.text, [*played.admissible], played.won)]
    for command in commands:
        start = time.perf_counter()
        played.step(command)
        steps += time.perf_counter() - start
        seen.append((played.text, [*played.admissible], played.won))
    return Trace(seen, reset, steps)


def compare(games: int, turns: int) -> Sequence[common.Row]:
    """Steps per second and resets of both.

    Raises:
      RuntimeError: they differ in what is seen.
    """
    traces: Mapping[str, list[Trace]] = {"ours": [], STOCK: []}
    for seed in range(games):
        game = make_game(seed)
        commands = wander(game, seed, turns)
        ours, stock = trace(Engine, game, commands), trace(Stock, game, commands)
        if ours.seen != stock.seen:
            raise RuntimeError(f"the texts of game {seed} are not those of {STOCK}")
        traces["ours"].append(ours)
        traces[STOCK].append(stock)
    rates = {n: games * turns / sum(t.steps for t in some) for n, some in traces.items()}
    resets = {n: statistics.median(t.reset for t in some) for n, some in traces.items()}
    worst = max(t.reset for t in traces["ours"])
    case = f"alfworld, {games} composed games, {turns} commands each"
    return [
        common.Row(
            case,
            "steps per second and core, the same texts",
            "steps/s",
            rates["ours"],
            {STOCK: rates[STOCK]},
            f"≥ {FASTER:g}× {STOCK}",
            rates["ours"] >= FASTER * rates[STOCK],
        ),
        common.Row(
            case,
            "reset, median",
            "s",
            resets["ours"],
            {STOCK: resets[STOCK]},
            f"none above {RESET_SECONDS:g}",
            worst <= RESET_SECONDS,
            f"longest {worst:.3f} s",
        ),
    ]

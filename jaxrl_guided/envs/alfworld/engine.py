"""Plays a game of ALFWorld: the texts of TextWorld's PddlEnv behind alfworld's AlfredDemangler.

There is neither TextWorld nor its planner behind it, and games share nothing: there can be any
number of them in a process, in any threads.
"""

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.alfworld.compose import Game
from jaxrl_guided.envs.alfworld.grammar import Mapped, Writer, read_grammar
from jaxrl_guided.envs.alfworld.pddl import Action, read_domain, read_problem
from jaxrl_guided.envs.alfworld.state import Binding, State

NOTHING = "Nothing happens."


@dataclasses.dataclass(frozen=True)
class _Way:
    """An action with its objects."""

    action: Action
    binding: Binding
    mapped: Mapped


class Engine:
    """One game.

    Attributes:
      goal: a sentence.
      text: what is seen now.
      names: of the objects of which there are facts, by id.
      won: the goal is reached.

    Args:
      game: what to play.

    Raises:
      ValueError: PDDL or a grammar that is not understood.
    """

    def __init__(self, game: Game) -> None:
        domain, problem = read_domain(game.domain), read_problem(game.problem)
        self._grammar = read_grammar(game.grammar)
        self.goal, self._goal = game.goal, problem.goal
        self._actions = [a for a in domain.actions if a.name in self._grammar.commands]
        self._state = State(domain, problem)
        self.names = demangled(sorted({name for fact in problem.facts for name in fact[1:]}))
        self._writer = Writer(self._grammar, self._state, self.names)
        self._commands: dict[tuple[str, ...], str] = {}
        self.text = self._writer.write("#intro#", {})
        self._look_around()

    @property
    def admissible(self) -> Sequence[str]:
        """All commands that do something now, sorted."""
        return sorted(self._ways)

    def step(self, command: str) -> bool:
        """Does what a command says; False: it is none of `admissible`, and nothing happens."""
        way = self._ways.get(command.strip())
        if way is None:
            self.text = NOTHING
            return False
        self._state.apply(way.action, way.binding)
        self.text = self._writer.write(self._grammar.feedback[way.action.name], way.mapped)
        self._look_around()
        return True

    def _look_around(self) -> None:
        self.won = self._state.holds(self._goal)
        self._ways: dict[str, _Way] = {}
        for action in self._actions:
            for binding in self._state.ways(action):
                way = _Way(action, binding, _mapped(action, binding))
                self._ways.setdefault(self._command(way), way)

    def _command(self, way: _Way) -> str:
        """Written once: what a command names does not change."""
        key = (way.action.name, *way.mapped.values())
        if key not in self._commands:
            text = self._grammar.commands[way.action.name]
            self._commands[key] = self._writer.write(text, way.mapped)
        return self._commands[key]


def _mapped(action: Action, binding: Binding) -> Mapped:
    return {f"{name[1:]}:{kind}": binding[name] for name, kind in action.parameters.items()}


def demangled(ids: Sequence[str]) -> Mapping[str, str]:
    """What objects are called: `sink_bar_02_bar_sinkbasin` is `sinkbasin 1` where it is the last.

    Args:
      ids: of all objects, sorted.
    """
    kinds = {id_: _kind(id_) for id_ in ids}
    left = Counter(kind for id_, kind in kinds.items() if "_bar_" in id_)
    names = {}
    for id_, kind in kinds.items():
        names[id_] = f"{kind} {left[kind] or ''}"
        left[kind] -= "_bar_" in id_
    return names


def _kind(id_: str) -> str:
    name, bar, _ = id_.partition("_bar_")
    return name + ("basin" if bar and "basin" in id_ else "")

"""Domains and problems in PDDL, as far as ALFWorld's go.

Conditions are nested lists as they stand in the file, in lower case.
"""

import dataclasses
import functools
import re
from collections.abc import Mapping, Sequence
from typing import Any

Condition = Sequence[Any]

_TOKEN = re.compile(r"[()]|[^\s()]+")
ROOT = "object"
"""The type of all objects."""

_CONNECTIVES = frozenset(("and", "or", "exists", "not", "="))


@dataclasses.dataclass(frozen=True)
class Action:
    """What can be done.

    Attributes:
      parameters: variables, as `?r`, and their types.
      precondition: when it can be done.
      effects: what follows, each a literal or `(when condition effect)`.
    """

    name: str
    parameters: Mapping[str, str]
    precondition: Condition
    effects: Sequence[Condition]


@dataclasses.dataclass(frozen=True)
class Domain:
    """Rules.

    Attributes:
      parents: the type above each type.
    """

    parents: Mapping[str, str]
    actions: Sequence[Action]


@dataclasses.dataclass(frozen=True)
class Problem:
    """Where a game begins and ends.

    Attributes:
      types: of all objects.
      facts: what holds at the start.
    """

    types: Mapping[str, str]
    facts: Sequence[tuple[str, ...]]
    goal: Condition


def read(text: str) -> list[Any]:
    """The one expression of a text.

    Raises:
      ValueError: brackets do not match, or there is more than one expression.
    """
    stack: list[list[Any]] = [[]]
    for token in _TOKEN.findall(re.sub(r";[^\n]*", "", text.lower())):
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            stack[-2].append(stack.pop())
        else:
            raise ValueError("PDDL: a bracket is closed that is not open")
    if len(stack) > 1 or len(stack[0]) != 1 or not isinstance(stack[0][0], list):
        raise ValueError("PDDL: a bracket is not closed, or a text is not one expression")
    return stack[0][0]


@functools.lru_cache(8)
def read_domain(text: str) -> Domain:
    """The rules of a domain.

    Raises:
      ValueError: it is no domain, or one that is not understood.
    """
    parts = read(text)[2:]
    typed = [typed_list(part[1:]) for part in parts if part[0] == ":types"]
    actions = [_read_action(part) for part in parts if part[0] == ":action"]
    if not actions:
        raise ValueError("PDDL: a domain must have actions")
    return Domain(typed[0] if typed else {}, tuple(actions))


def read_problem(text: str) -> Problem:
    """The objects, facts and goal of a problem.

    Raises:
      ValueError: it is no problem, or one that is not understood.
    """
    parts = {part[0]: part[1:] for part in read(text)[1:] if isinstance(part, list) and part}
    if lacking := [name for name in (":objects", ":init", ":goal") if name not in parts]:
        raise ValueError(f"PDDL: a problem must have {', '.join(lacking)}")
    facts = [tuple(fact) for fact in parts[":init"] if fact[0] != "="]
    (goal,) = parts[":goal"]
    return Problem(typed_list(parts[":objects"]), tuple(facts), _plain(goal))


def typed_list(words: Sequence[str]) -> dict[str, str]:
    """Names and types of `a b - t c`. A comma belongs to its word, as planners read it."""
    found, waiting = dict[str, str](), list[str]()
    rest = iter(words)
    for word in rest:
        if word == "-":
            kind = next(rest, ROOT)
            found.update((name, kind) for name in waiting)
            waiting = []
        else:
            waiting.append(word)
    return found | {name: ROOT for name in waiting}


def _read_action(part: Sequence[Any]) -> Action:
    fields = dict(zip(part[2::2], part[3::2], strict=True))
    effect = fields[":effect"]
    effects = effect[1:] if effect[0] == "and" else [effect]
    for each in effects:
        _check_effect(each)
    return Action(
        part[1],
        typed_list(fields[":parameters"]),
        _plain(fields.get(":precondition", [])),
        tuple(e for e in effects if e[0] != "increase"),
    )


def _plain(condition: Condition) -> Condition:
    """The same condition in the words of `_CONNECTIVES`."""
    word, *parts = condition or ["and"]
    if word == "forall":
        return ["not", ["exists", parts[0], ["not", _plain(parts[1])]]]
    if word == "imply":
        return ["or", ["not", _plain(parts[0])], _plain(parts[1])]
    if word == "exists":
        return [word, parts[0], _plain(parts[1])]
    return [word, *(_plain(part) if isinstance(part, list) else part for part in parts)]


def _check_effect(effect: Condition) -> None:
    """Raises ValueError unless an effect is of those that `State.apply` knows."""
    if effect[0] == "forall":
        raise ValueError("PDDL: effects with 'forall' are not understood")
    for part in effect[1:]:
        if isinstance(part, list) and effect[0] in ("and", "when"):
            _check_effect(part)


def is_atom(condition: Condition) -> bool:
    """Whether a condition is a predicate with its arguments."""
    return condition[0] not in _CONNECTIVES


def variables(condition: Condition) -> set[str]:
    """Those that are free in a condition."""
    if condition[0] == "exists":
        return variables(condition[2]) - set(typed_list(condition[1]))
    found = set[str]()
    for part in condition[1:]:
        found |= variables(part) if isinstance(part, list) else {part} if part[0] == "?" else set()
    return found

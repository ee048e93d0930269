"""Texts of a game, written by a context-sensitive grammar (Côté et al. 2018) in TextWorld's format.

A text has literals, `#names#` of rules, `{expressions}`, and `[{expression | facts}]`: a list over
all ways in which facts hold. Given TextWorld's own grammar, the texts are the same.
"""

import ast
import dataclasses
import functools
import json
import re
from collections.abc import Iterator, Mapping, Sequence

from jaxrl_guided.envs.alfworld.state import State

Mapped = Mapping[str, str]
"""Objects by placeholder, as `r:receptacle`."""

_DATA = re.compile(r'grammar\s*::\s*"""(.*?)"""\s*;', re.DOTALL)
_ACTION = re.compile(
    r'action\s+(\w+)\s*\{\s*template\s*::\s*"([^"]*)"\s*;\s*feedback\s*::\s*"([^"]*)"\s*;'
)
_SYMBOL = re.compile(
    r"""
    (?P<list>\[)?\{ (?: \#(?P<named>[^#{}|]+)\# | (?P<expression>[^|\[\]{}\n<>]+?) )
        (?: \s*\|\s* (?P<given>[^;|{}\n\[\]#]+) )? \} (?(list)\])
    | \#(?P<rule>[^#{}|]+)\#
    | "(?P<quoted>[^;|"<>\[\]#{}]*)"
    | (?P<literal>[^;|"<>\[\]#{}]+)
    """,
    re.VERBOSE,
)
_LINE_START, _TABS = re.compile(r"\s*"), re.compile(r"\t*")
_LITERAL = re.compile(r"\s*([\w-]+)\(([^()]*)\)\s*")


@dataclasses.dataclass(frozen=True)
class Rule:
    """One way to write a name; the first whose condition holds is taken."""

    condition: str
    text: str


@dataclasses.dataclass(frozen=True)
class Grammar:
    """All texts.

    Attributes:
      rules: by name.
      commands: the text of each action's command, by its name in lower case.
      feedback: the text that follows it.
    """

    rules: Mapping[str, Sequence[Rule]]
    commands: Mapping[str, str]
    feedback: Mapping[str, str]


@functools.lru_cache(8)
def read_grammar(text: str) -> Grammar:
    """Reads a grammar.

    Raises:
      ValueError: it is none.
    """
    rules = dict[str, Sequence[Rule]]()
    for block in _DATA.findall(text):
        lines = (line for line in block.split("\n") if not line.lstrip().startswith("#"))
        for name, ways in json.loads("\n".join(lines)).items():
            rules[name] = tuple(Rule(way.get("condition", ""), way["rhs"]) for way in ways)
    actions = _ACTION.findall(text)
    if not rules or not actions:
        raise ValueError("a grammar must have rules and actions")
    return Grammar(
        rules,
        {name.lower(): command for name, command, _ in actions},
        {name.lower(): feedback for name, _, feedback in actions},
    )


class Writer:
    """Writes texts about a state.

    Args:
      grammar: how.
      state: what holds, as it changes.
      names: of objects, as they are shown.
    """

    def __init__(self, grammar: Grammar, state: State, names: Mapping[str, str]) -> None:
        self._grammar, self._state, self._names = grammar, state, names

    def write(self, text: str, mapped: Mapped) -> str:
        """A text about some objects.

        Raises:
          ValueError: it has a name without a rule, or an expression that is not understood.
        """
        return "".join(self._symbol(symbol, mapped) for symbol in _symbols(text))

    def _symbol(self, symbol: "_Symbol", mapped: Mapped) -> str:
        if symbol.kind == "literal":
            return symbol.text
        if symbol.kind == "rule":
            return self._rule(symbol.text, mapped)
        ways = self._ways(symbol.given, mapped) if symbol.given else [mapped]
        written = [
            self._rule(symbol.text, way) if symbol.named else self._evaluate(symbol.text, way)
            for way in ways
        ]
        return self._listed(written, mapped) if symbol.kind == "list" else "".join(written)

    def _rule(self, name: str, mapped: Mapped) -> str:
        for rule in self._grammar.rules.get(name, ()):
            if not rule.condition or any(True for _ in self._ways(rule.condition, mapped)):
                return self.write(rule.text, mapped)
        raise ValueError(f"the grammar has no rule for '{name}'")

    def _listed(self, items: Sequence[str], mapped: Mapped) -> str:
        if not items:
            return self._rule("list_empty", mapped)
        if len(items) == 1:
            return items[0]
        between = self._rule("list_separator", mapped)
        return between.join(items[:-1]) + self._rule("list_last_separator", mapped) + items[-1]

    def _ways(self, given: str, mapped: Mapped) -> Iterator[Mapped]:
        """All objects for the placeholders of some facts, different ones for each."""
        return self._match(_facts(given), mapped)

    def _match(
        self, facts: Sequence[tuple[str, Sequence[str]]], mapped: Mapped
    ) -> Iterator[Mapped]:
        if not facts:
            yield mapped
            return
        (predicate, placeholders), *others = facts
        for arguments in self._candidates(predicate, placeholders, mapped):
            found, used = dict(mapped), set(mapped.values())
            for placeholder, value in zip(placeholders, arguments, strict=True):
                if (known := found.get(placeholder)) is None:
                    kind = placeholder.partition(":")[2]
                    if value in used or not self._state.is_a(value, kind):
                        break
                    found[placeholder] = value
                    used.add(value)
                elif known != value:
                    break
            else:
                yield from self._match(others, found)

    def _candidates(
        self, predicate: str, placeholders: Sequence[str], mapped: Mapped
    ) -> list[tuple[str, ...]]:
        some = self._state.of(predicate)
        for place, placeholder in enumerate(placeholders):
            if placeholder in mapped:
                fewer = self._state.where(predicate, place, mapped[placeholder])
                some = fewer if len(fewer) < len(some) else some
        return sorted(some)

    def _evaluate(self, expression: str, mapped: Mapped) -> str:
        """An expression about objects, as `o.indefinite + ' ' + o.name`."""
        objects = {name.partition(":")[0]: value for name, value in mapped.items()}
        return self._value(_parsed(expression), objects)

    def _value(self, node: ast.expr, objects: Mapped) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._value(left, objects) + self._value(right, objects)
            case ast.BoolOp(op=ast.Or(), values=values):
                return next(filter(None, (self._value(v, objects) for v in values)), "")
            case ast.Name(id=name) if name in objects:
                return self._names[objects[name]]
            case ast.Attribute(value=ast.Name(id=name), attr=attribute) if name in objects:
                id_ = objects[name]
                known = {"name": self._names[id_], "id": id_, "definite": "the", "indefinite": "a"}
                if attribute in known:
                    return known[attribute]
        raise ValueError(f"the grammar has an expression not understood: '{ast.unparse(node)}'")


@dataclasses.dataclass(frozen=True)
class _Symbol:
    """A piece of a text.

    Attributes:
      kind: `literal`, `rule`, `expression`, or `list` of expressions.
      text: the literal, name or expression.
      named: the expression is the name of a rule.
      given: facts over whose ways an expression goes.
    """

    kind: str
    text: str
    named: bool = False
    given: str = ""


@functools.lru_cache(4096)
def _symbols(text: str) -> Sequence[_Symbol]:
    """The pieces of a text, up to what is none."""
    found, place = [], _begin(text, 0)
    while match := _SYMBOL.match(text, place):
        place = _begin(text, match.end())
        if match["rule"]:
            found.append(_Symbol("rule", match["rule"]))
        elif inner := match["named"] or match["expression"]:
            kind = "list" if match["list"] else "expression"
            found.append(_Symbol(kind, inner, bool(match["named"]), match["given"] or ""))
        else:
            literal = match["quoted"] if match["literal"] is None else match["literal"]
            found.append(_Symbol("literal", literal.replace("\\n", "\n")))
    return tuple(found)


def _begin(text: str, place: int) -> int:
    """Where a symbol begins: space at the start of a line, and tabs, are passed over."""
    is_start = place == 0 or text[place - 1] == "\n"
    match = (_LINE_START if is_start else _TABS).match(text, place)
    assert match is not None
    return match.end()


@functools.lru_cache(4096)
def _facts(given: str) -> Sequence[tuple[str, Sequence[str]]]:
    """Predicates and placeholders of `name(r:receptacle, l:location) & …`."""
    found = []
    for part in given.split("&"):
        if not (match := _LITERAL.fullmatch(part)):
            raise ValueError(f"the grammar has a condition not understood: '{given}'")
        found.append((match[1], tuple(word.strip() for word in match[2].split(","))))
    return tuple(found)


@functools.lru_cache(4096)
def _parsed(expression: str) -> ast.expr:
    try:
        return ast.parse(expression.strip(), mode="eval").body
    except SyntaxError:
        raise ValueError(f"the grammar has an expression not understood: '{expression}'") from None

"""Small mistakes in Python source, one at a time, written into the text where its syntax tree says.

All else of the text, comments too, stays as it is.
"""

import ast
import dataclasses
import itertools
import re
from collections.abc import Callable, Iterator, Mapping

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_NO_CODE = (ast.JoinedStr,)  # positions within are those of no text before Python 3.12
_SWAPS: Mapping[type, tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "+"),
    ast.Div: ("/", "*"),
    ast.FloorDiv: ("//", "/"),
    ast.Mod: ("%", "//"),
    ast.And: ("and", "or"),
    ast.Or: ("or", "and"),
}


@dataclasses.dataclass(frozen=True, order=True)
class Edit:
    """New text in the place of bytes `start` … `end` of a file."""

    start: int
    end: int
    text: str


@dataclasses.dataclass(frozen=True)
class Mutation:
    """One mistake: edits of a file that do not overlap, and what kind it is."""

    kind: str
    edits: tuple[Edit, ...]


class Source:
    """Text of a file and where the nodes of its tree stand in it.

    Raises:
      SyntaxError: it is no Python.
    """

    def __init__(self, text: str) -> None:
        self.text, self.data, self.tree = text, text.encode(), ast.parse(text)
        lines = self.data.splitlines(keepends=True)
        self._starts = [0, *itertools.accumulate(map(len, lines))]

    def start(self, node: ast.expr | ast.stmt) -> int:
        """The first byte of a node."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """The byte after a node."""
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self._starts[node.end_lineno - 1] + node.end_col_offset

    def of(self, first: ast.expr | ast.stmt, last: ast.expr | ast.stmt | None = None) -> str:
        """Text of a node, or from one to another."""
        return self.data[self.start(first) : self.end(last or first)].decode()

    def between(self, left: int, right: int, old: str, new: str) -> Edit | None:
        """Replaces a token between two bytes; None where a comment stands there, too."""
        gap = self.data[left:right].decode()
        pattern = r"[\s\\]+".join(map(re.escape, old.split()))
        found = re.search(pattern, gap)
        if found is None or "#" in gap:
            return None
        at = left + len(gap[: found.start()].encode())
        return Edit(at, at + len(found[0].encode()), new)

    def changed(self, mutation: Mutation) -> str | None:
        """The text with a mistake; None if that is no Python, or the same."""
        data = self.data
        for edit in sorted(mutation.edits, reverse=True):
            data = data[: edit.start] + edit.text.encode() + data[edit.end :]
        text = data.decode()
        try:
            same = ast.dump(ast.parse(text)) == ast.dump(self.tree)
        except SyntaxError:
            return None
        return None if same else text


def mutations(source: Source) -> list[Mutation]:
    """All mistakes that can be made in the functions of a file, in the order of its text."""
    found = []
    for node in _nodes(source.tree, in_function=False):
        for kind, operator in _OPERATORS.items():
            found += [Mutation(kind, edits) for edits in operator(source, node)]
    return found


def _nodes(node: ast.AST, in_function: bool) -> Iterator[ast.AST]:
    """Nodes of code within functions: no annotations, decorators, or texts with fields."""
    if isinstance(node, _NO_CODE):
        return
    if in_function:
        yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "type_params"):
            continue
        inside = in_function or (isinstance(node, _FUNCTIONS) and field == "body")
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _nodes(child, inside)


Edits = Iterator[tuple[Edit, ...]]


def _compare(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.Compare):
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            yield from _token(source, left, right, operator)
            left = right


def _arithmetic(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.BinOp):
        yield from _token(source, node.left, node.right, node.op)
    elif isinstance(node, ast.AugAssign):
        yield from _token(source, node.target, node.value, node.op)


def _boolean(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.BoolOp):
        pairs = [*itertools.pairwise(node.values)]
        found = [edits for pair in pairs for edits in _token(source, *pair, node.op)]
        if len(found) == len(pairs):
            yield tuple(edit for edits in found for edit in edits)


def _token(source: Source, left: ast.expr, right: ast.expr, operator: ast.AST) -> Edits:
    old, new = _SWAPS.get(type(operator), ("", ""))
    edit = source.between(source.end(left), source.start(right), old, new) if old else None
    if edit is not None:
        yield (edit,)


def _off_by_one(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.Constant) and type(node.value) is int:
        place = source.start(node), source.end(node)
        yield (Edit(*place, str(node.value + 1)),)
        if node.value > 0:
            yield (Edit(*place, str(node.value - 1)),)


def _swapped_arguments(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.Call) and len(node.args) > 1:
        yield from _swap(source, node.args[0], node.args[1])


def _swapped_branches(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.IfExp):
        yield from _swap(source, node.body, node.orelse)
    elif isinstance(node, ast.If) and node.orelse:
        first, second = (node.body[0], node.body[-1]), (node.orelse[0], node.orelse[-1])
        is_elif = first[0].col_offset != second[0].col_offset
        if not is_elif:
            texts = source.of(*first), source.of(*second)
            spans = [(source.start(a), source.end(b)) for a, b in (first, second)]
            yield Edit(*spans[0], texts[1]), Edit(*spans[1], texts[0])


def _swap(source: Source, first: ast.expr, second: ast.expr) -> Edits:
    if not any(isinstance(node, ast.Starred) for node in (first, second)):
        places = [(source.start(node), source.end(node)) for node in (first, second)]
        yield Edit(*places[0], source.of(second)), Edit(*places[1], source.of(first))


def _dropped_not(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        start = source.start(node)
        blank = len(source.data[start + 3 :]) - len(source.data[start + 3 :].lstrip(b" "))
        yield (Edit(start, start + 3 + blank, ""),)


def _changed_return(source: Source, node: ast.AST) -> Edits:
    if isinstance(node, ast.Return) and node.value is not None:
        yield (Edit(source.start(node.value), source.end(node.value), "None"),)


def _removed_statement(source: Source, node: ast.AST) -> Edits:
    is_plain = isinstance(node, ast.Assign | ast.AugAssign | ast.Expr | ast.Raise | ast.Delete)
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    if isinstance(node, ast.stmt) and is_plain and not is_text:
        yield (Edit(source.start(node), source.end(node), "pass"),)


_OPERATORS: Mapping[str, Callable[[Source, ast.AST], Edits]] = {
    "comparison": _compare,
    "arithmetic": _arithmetic,
    "boolean": _boolean,
    "off by one": _off_by_one,
    "swapped arguments": _swapped_arguments,
    "swapped branches": _swapped_branches,
    "dropped not": _dropped_not,
    "changed return": _changed_return,
    "removed statement": _removed_statement,
}
KINDS = tuple(_OPERATORS)

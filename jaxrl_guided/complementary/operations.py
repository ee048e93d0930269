"""What an extractor says, read as operations on the bank: all of it or nothing.

An output is `<think>…</think><answer>JSON</answer>`; the JSON is a list of operations. Any text at
all gives operations or the reason why it gives none.
"""

import dataclasses
import json
import re
from collections.abc import Collection, Sequence
from typing import Any, Literal

Kind = Literal["add", "update", "return", "merge", "rewrite", "discard"]
Reason = Literal[
    "no answer",
    "no JSON",
    "no list",
    "too many",
    "unknown operation",
    "fields",
    "targets",
    "memory",
]

DISTIL: Collection[str] = ("add", "update", "return")
MERGE: Collection[str] = ("merge", "rewrite", "discard", "return")

_FIELDS: dict[str, set[str]] = {
    "add": {"new_memory"},
    "update": {"target_idx", "new_memory"},
    "merge": {"target_idx", "new_memory"},
    "rewrite": {"target_idx", "new_memory"},
    "discard": {"target_idx"},
    "return": set(),
}
_ANSWER = re.compile(r"<answer>(.*)</answer>\s*\Z", re.DOTALL)
_MEMORY = re.compile(
    r"\s*<title>((?:(?!</?title>|</?content>).)+)</title>\s*"
    r"<content>((?:(?!</?title>|</?content>).)+)</content>\s*",
    re.DOTALL,
)
_PLACEHOLDER = re.compile(
    r"^[\s.…\-_<>\[\]]*$|\.\.\.$|^…|\byour (title|content|note)\b", re.IGNORECASE
)


@dataclasses.dataclass(frozen=True)
class Operation:
    """One operation.

    Attributes:
      kind: what is done.
      targets: places, from 0 on, of shown entries that end.
      title, content: of the new entry; empty for none.
    """

    kind: Kind
    targets: tuple[int, ...] = ()
    title: str = ""
    content: str = ""


class Rejected(Exception):
    """An output that is not read; `reason` is what is counted."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason)
        self.reason = reason


def parse(
    output: str,
    shown: int,
    kinds: Collection[str] = DISTIL,
    most: int = 3,
    shortest: int = 1,
) -> list[Operation]:
    """Operations of an output; `return` is left out.

    Args:
      shown: entries that the extractor saw, numbered from 1.
      kinds: operations that it may give.
      most: operations at most, `return` included.
      shortest: characters of a new entry's content; 30 in merging. Placeholders have none.

    Raises:
      Rejected: any of it is malformed.
    """
    found = [_operation(item, shown, kinds, shortest) for item in _items(output, most)]
    targets = [target for operation in found for target in operation.targets]
    if len(set(targets)) < len(targets):
        raise Rejected("targets")
    return [operation for operation in found if operation.kind != "return"]


def _items(output: str, most: int) -> Sequence[Any]:
    answer = _ANSWER.search(output.rpartition("</think>")[2])
    if answer is None:
        raise Rejected("no answer")
    try:
        items = json.loads(answer[1])
    except (ValueError, RecursionError) as error:
        raise Rejected("no JSON") from error
    if not isinstance(items, list) or not items:
        raise Rejected("no list")
    if len(items) > most:
        raise Rejected("too many")
    return items


def _operation(item: Any, shown: int, kinds: Collection[str], shortest: int) -> Operation:
    if not isinstance(item, dict):
        raise Rejected("fields")
    kind = item.get("operation")
    if not isinstance(kind, str) or kind not in kinds:
        raise Rejected("unknown operation")
    wanted = _FIELDS[kind]
    if set(item) != wanted | {"operation"}:
        raise Rejected("fields")
    targets = _targets(item["target_idx"], shown) if "target_idx" in wanted else ()
    if (kind == "rewrite" and len(targets) > 1) or (kind == "merge" and len(targets) < 2):
        raise Rejected("targets")
    title, content = _memory(item["new_memory"], shortest) if "new_memory" in wanted else ("", "")
    return Operation(kind, targets, title, content)  # type: ignore[arg-type]


def _targets(value: Any, shown: int) -> tuple[int, ...]:
    if not isinstance(value, list) or not value:
        raise Rejected("targets")
    if not all(type(target) is int and 1 <= target <= shown for target in value):
        raise Rejected("targets")
    if len(set(value)) < len(value):
        raise Rejected("targets")
    return tuple(target - 1 for target in value)


def _memory(value: Any, shortest: int) -> tuple[str, str]:
    match = _MEMORY.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise Rejected("memory")
    title, content = (part.strip() for part in match.groups())
    if not title or len(content) < shortest or _PLACEHOLDER.search(content):
        raise Rejected("memory")
    try:
        value.encode()
    except UnicodeEncodeError as error:  # half a surrogate pair cannot be stored
        raise Rejected("memory") from error
    return title, content

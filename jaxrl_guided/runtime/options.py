"""Options of environments and tasks as users write them, `NAME=VALUE`."""

import ast
import math
from collections.abc import Mapping, Sequence
from typing import Any


def parse_options(options: Sequence[str], reserved: Mapping[str, str]) -> dict[str, Any]:
    """Keyword arguments: values are read as in Python, true and false too, else as text.

    Args:
      options: each `NAME=VALUE`.
      reserved: names that may not be given, and what they follow from.

    Raises:
      ValueError: one of them is not `NAME=VALUE`, or is reserved, given twice, or not finite.
    """
    found: dict[str, Any] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals or not name.isidentifier():
            raise ValueError(f"options must be NAME=VALUE, not '{option}'")
        if name in reserved:
            raise ValueError(f"options must not name '{name}': it follows from {reserved[name]}")
        if name in found:
            raise ValueError(f"options must name '{name}' once")
        try:
            found[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError):
            found[name] = {"true": True, "false": False}.get(text.lower(), text)
        if isinstance(found[name], float) and not math.isfinite(found[name]):
            raise ValueError(f"options must be finite numbers, not '{option}'")
    return found

"""What models are told, in text files, one a role; `_compact` ones for models of own making.

They are versioned as a whole: a change of wording makes runs of another version.
"""

import functools
import importlib.resources
import string
from collections.abc import Sequence
from typing import Literal

VERSION = 1

Role = Literal["distil", "merge", "ask", "inject", "ask_tool"]


def render(role: Role, compact: bool = False, **values: object) -> str:
    """A role's text with its values filled in; what values contain is never filled in again.

    Raises:
      KeyError: a value is missing.
    """
    return _template(f"{role}_compact" if compact else role).substitute(values).strip()


def numbered(entries: Sequence[str]) -> str:
    """Entries with numbers from 1 on, as operations name them; `none` if there are none."""
    return "\n".join(f"{number}. {entry}" for number, entry in enumerate(entries, 1)) or "none"


@functools.cache
def _template(name: str) -> string.Template:
    files = importlib.resources.files(__package__)
    return string.Template((files / f"{name}.txt").read_text())

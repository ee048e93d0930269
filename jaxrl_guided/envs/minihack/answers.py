"""Which action a language model's answer names."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.minihack.text import numbered

_ANSWER = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_NUMBERED = re.compile(r"([0-9]{1,3})\b[\W_]*(.*)", re.DOTALL)
_FILLING = re.compile(r"\b(?:move|go|walk|step|head|run|to|the|towards?|direction)\b")
_SHOWN = 30
"""Characters of a wrong answer that the note repeats."""

_ALIASES: Mapping[str, Sequence[str]] = {
    "north": ("n", "k", "up"),
    "east": ("e", "l", "right"),
    "south": ("s", "j", "down"),
    "west": ("w", "h", "left"),
    "northeast": ("ne", "u", "upright", "upperright", "rightup"),
    "southeast": ("se", "downright", "lowerright", "rightdown"),
    "southwest": ("sw", "b", "downleft", "lowerleft", "leftdown"),
    "northwest": ("nw", "y", "upleft", "upperleft", "leftup"),
    "apply": ("a", "use"),
    "pickup": (",", "pick", "take", "grab"),
    "open": ("o",),
}
"""Compass letters and NetHack's keys; where both use a letter, as `n`, the compass has it."""

_MEANT = {alias: name for name, aliases in _ALIASES.items() for alias in aliases}


@dataclasses.dataclass(frozen=True)
class Answer:
    """An action, or why there is none.

    Attributes:
      action: a place in the list of actions.
      note: one line that says what would be right; empty where there is an action.
    """

    action: int | None
    note: str = ""


def parse(text: str, actions: Sequence[str]) -> Answer:
    """Reads the last `<answer>…</answer>`.

    An action is named by its name, its number in the list, or both as they stand there; also by
    `n`, `up`, `move north`, `north-east`, by NetHack's keys, and in letters of any size.

    Args:
      text: all that the model said.
      actions: names.
    """
    found = _ANSWER.findall(text)
    if not found:
        return Answer(None, f"no <answer>…</answer>; put into it one of: {numbered(actions)}")
    said = found[-1].strip().lower()
    number = _NUMBERED.fullmatch(said)
    if number is None:
        action = _named(said, actions)
    else:
        action = int(number[1]) if int(number[1]) < len(actions) else None
        if number[2] and action != _named(number[2], actions):
            action = None
    if action is not None:
        return Answer(action)
    shown = " ".join(said.split())[:_SHOWN]
    return Answer(None, f"'{shown}' is none of: {numbered(actions)}")


def _named(said: str, actions: Sequence[str]) -> int | None:
    """The place of the action that words name."""
    word = said if said == "," else re.sub(r"[\W_]", "", _FILLING.sub("", said))
    name = _MEANT.get(word, word)
    return actions.index(name) if name in actions else None

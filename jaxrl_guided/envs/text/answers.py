"""Which action a language model's answer names, and how it marks it."""

import dataclasses
import re
from collections.abc import Mapping, Sequence

_ANSWER = re.compile(r"<answer>((?:(?!</?answer>).)*)</answer>", re.DOTALL | re.IGNORECASE)
_NUMBERED = re.compile(r"([0-9]{1,3})\b[\W_]*(.*)", re.DOTALL)
_FILLING = re.compile(r"\b(?:move|go|walk|step|head|run|to|the|towards?|direction)\b")

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


def last_answer(text: str) -> str | None:
    """What stands in the last `<answer>…</answer>` of a text, without space around; None: none."""
    found = _ANSWER.findall(text)
    return found[-1].strip() if found else None


def shortened(text: str, characters: int = 30) -> str:
    """The beginning of an answer in one line, for the note that refuses it."""
    return " ".join(text.split())[:characters]


def numbered(actions: Sequence[str]) -> str:
    """The list of actions in one line."""
    return ", ".join(f"{number} {name}" for number, name in enumerate(actions))


def parse(text: str, actions: Sequence[str]) -> Answer:
    """Reads the last `<answer>…</answer>`.

    An action is named by its name, its number in the list, or both as they stand there; compass
    directions also by `n`, `up`, `move north`, `north-east`; keys of NetHack, and letters of any
    size, are understood.

    Args:
      text: all that the model said.
      actions: names.
    """
    found = last_answer(text)
    if found is None:
        return Answer(None, f"no <answer>…</answer>; put into it one of: {numbered(actions)}")
    said = found.lower()
    number = _NUMBERED.fullmatch(said)
    if number is None:
        action = _named(said, actions)
    else:
        action = int(number[1]) if int(number[1]) < len(actions) else None
        if number[2] and action != _named(number[2], actions):
            action = None
    if action is not None:
        return Answer(action)
    return Answer(None, f"'{shortened(said)}' is none of: {numbered(actions)}")


def _named(said: str, actions: Sequence[str]) -> int | None:
    """The place of the action that words name."""
    word = said if said == "," else re.sub(r"[\W_]", "", _FILLING.sub("", said))
    name = word if word in actions else _MEANT.get(word, word)
    return actions.index(name) if name in actions else None

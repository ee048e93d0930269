"""Few words for ALFWorld's texts, for models that learn from scratch, and which command is meant.

A name is one word, with a number where there are more of its kind: `fridge`, `drawer3`. A command
leaves out where one stands: `take apple`, `heat apple`.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

_NUMBERED = re.compile(r"([a-z]+) (\d+)")
_MOVE = re.compile(r"(?:put|move|place) (.+?) (?:in/on|into|onto|in|on|to) (.+)")
_SHORT_COMMANDS = tuple(
    (re.compile(pattern), short)
    for pattern, short in (
        (r"go to (\S+)", r"go \1"),
        (r"take (\S+) from \S+", r"take \1"),
        (r"(?:move|put) (\S+) (?:to|in/on) \S+", r"put \1"),
        (r"(heat|cool|clean|slice) (\S+) with \S+", r"\1 \2"),
    )
)
_SHORT_TEXTS = tuple(
    (re.compile(pattern), short)
    for pattern, short in (
        (r".*Looking quickly around you, you see ", ""),
        (r"You arrive at \S+\. ", ""),
        (r"You open the \S+\. ", ""),
        (r"On the (\S+), you see ", r"\1: "),
        (r"The (\S+) is open\. In it, you see ", r"\1: "),
        (r"The (\S+) is closed", r"\1 closed"),
        (r"You close the ([^\s.]+)", r"\1 closed"),
        (r"You are facing the (\S+)\. .*", r"at \1"),
        (r"You pick up the (\S+) from the \S+", r"took \1"),
        (r"You (?:move|put) the (\S+) (?:to|in/on) the \S+", r"put \1"),
        (r"You (heat|cool|clean) the (\S+) using the \S+", r"\1 \2"),
        (r"You turn (on|off) the (\S+)", r"\1 \2"),
        (r"You are carrying: ", "have "),
        (r"You are not carrying anything", "have nothing"),
        (r",? and an? |, an? ", " "),
        (r"(^|: |have )an? ", r"\1"),
        (r"\.$", ""),
    )
)


def short_names(names: Iterable[str]) -> dict[str, str]:
    """The one word for each name of a game."""
    told = [name for name in names if _NUMBERED.fullmatch(name)]
    alike = Counter(name.split()[0] for name in told)
    return {n: n.split()[0] if alike[n.split()[0]] == 1 else n.replace(" ", "") for n in told}


def short_command(command: str, names: Mapping[str, str]) -> str:
    """A command in few words."""
    text = _renamed(command, names)
    for pattern, short in _SHORT_COMMANDS:
        if match := pattern.fullmatch(text):
            return match.expand(short)
    return text


def short_text(text: str, names: Mapping[str, str]) -> str:
    """What is seen, in few words."""
    text = " ".join(_renamed(text, names).split())
    for pattern, short in _SHORT_TEXTS:
        text = pattern.sub(short, text)
    return text


def meant(said: str, admissible: Sequence[str], names: Mapping[str, str]) -> str | None:
    """The one of the commands that words mean, in full or in few words; None: none.

    Where one puts things, older games say `put X in/on Y`, and newer ones `move X to Y`: both are
    understood in both.
    """
    said = " ".join(said.lower().split()).rstrip(".!")
    tried = [said]
    if match := _MOVE.fullmatch(said):
        tried += [f"move {match[1]} to {match[2]}", f"put {match[1]} in/on {match[2]}"]
    if found := next((text for text in tried if text in admissible), None):
        return found
    return {short_command(command, names): command for command in admissible}.get(said)


def _renamed(text: str, names: Mapping[str, str]) -> str:
    return _NUMBERED.sub(lambda match: names.get(match[0], match[0]), text)

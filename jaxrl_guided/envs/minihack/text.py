"""What an agent sees of MiniHack as text for language models: pure functions of arrays."""

import textwrap
from collections.abc import Sequence

import numpy as np

from jaxrl_guided.envs.minihack.symbols import MONSTERS, SYMBOL, SYMBOLS
from jaxrl_guided.envs.text.answers import numbered

_DRAWN = {SYMBOL["lava"]: "~", SYMBOL["open door"]: "'"}
"""Symbols that NetHack draws like others, with a colour that text does not have."""

_NAMES = {
    "unseen": "solid rock or not seen",
    "dark floor": "floor",
    "furniture": "altar, grave, throne, sink or fountain",
    "effect": "beam or blast",
    "pet": "your pet",
    "unknown monster": "monster that you cannot make out",
}
"""Of symbols whose own names are for readers of the code."""

_MONSTERS = {
    "a": "ant, bee or beetle",
    "b": "blob",
    "c": "cockatrice, deadly to touch",
    "d": "dog, jackal or wolf",
    "e": "floating eye or sphere",
    "f": "cat",
    "g": "gremlin or gargoyle",
    "h": "dwarf, hobbit or other small folk",
    "i": "imp or small devil",
    "j": "jelly",
    "k": "kobold",
    "l": "leprechaun",
    "m": "mimic",
    "n": "nymph",
    "o": "orc",
    "p": "piercer",
    "q": "ox or other beast on four legs",
    "r": "rat",
    "s": "spider or centipede",
    "t": "trapper",
    "u": "horse or unicorn",
    "v": "whirlwind",
    "w": "worm",
    "x": "grid bug",
    "y": "yellow or black light",
    "z": "zruty",
    "A": "angel",
    "B": "bat or bird",
    "C": "centaur",
    "D": "dragon",
    "E": "elemental",
    "F": "mould or lichen, hardly moves",
    "G": "gnome",
    "H": "giant",
    "J": "jabberwock",
    "K": "policeman",
    "L": "lich",
    "M": "mummy",
    "N": "naga",
    "O": "ogre",
    "P": "pudding",
    "Q": "quantum mechanic",
    "R": "rust monster",
    "S": "snake",
    "T": "troll",
    "U": "umber hulk",
    "V": "vampire",
    "W": "wraith",
    "X": "xorn",
    "Y": "ape or yeti",
    "Z": "zombie",
    "@": "human or elf",
    "&": "demon",
    "'": "golem",
    ":": "lizard or newt",
    ";": "eel or other fish",
    "~": "tail of a worm",
}
"""NetHack's monsters by the character that shows them."""

_COMPACT_MESSAGE = 40
"""Characters of the message that the compact form keeps."""


def decode(message: np.ndarray) -> str:
    """NetHack's message in one line: `u8[256]` of ASCII, filled up with zeros."""
    return " ".join(message.tobytes().partition(b"\0")[0].decode("ascii", "replace").split())


def picture(chars: np.ndarray, symbols: np.ndarray) -> list[str]:
    """A map as rows of characters, without the blanks at their ends.

    Args:
      chars: `u8[H, W]`.
      symbols: `[H, W]`, the same cells as numbers of `SYMBOLS`.
    """
    drawn = _drawn(chars, symbols)
    return [row.tobytes().decode("ascii", "replace").rstrip() for row in drawn]


def legend(chars: np.ndarray, symbols: np.ndarray) -> dict[str, list[str]]:
    """The characters by what they mean: the agent first, then in the order of reading.

    Args:
      chars: `u8[H, W]`.
      symbols: `[H, W]`, the same cells as numbers of `SYMBOLS`.
    """
    text = _drawn(chars, symbols).tobytes().decode("ascii", "replace")
    cells = dict.fromkeys(zip(text, symbols.ravel().tolist(), strict=True))
    found: dict[str, list[str]] = {}
    for char, symbol in sorted(cells, key=lambda cell: cell[1] != SYMBOL["you"]):
        shown = found.setdefault(_name(char, symbol), [])
        if char not in shown:
            shown.append(char)
    return found


def render(
    message: np.ndarray,
    chars: np.ndarray,
    symbols: np.ndarray,
    actions: Sequence[str],
    note: str = "",
) -> str:
    """A turn as text: message, map, what its characters mean, what can be done.

    Args:
      message: `u8[256]`.
      chars: `u8[9, 9]`, `chars_crop`.
      symbols: `[9, 9]`, `symbols_crop`.
      actions: names.
      note: why the last answer was none.
    """
    meaning = [
        f"{' '.join('blank' if char == ' ' else char for char in shown)} {name}"
        for name, shown in legend(chars, symbols).items()
    ]
    return "\n".join(
        [
            *([f"Note: {note}"] if note else []),
            f"Message: {decode(message) or '-'}",
            "Map, north is up, you are in the middle:",
            *picture(chars, symbols),
            "Meaning:",
            *meaning,
            f"Actions: {numbered(actions)}",
        ]
    )


def render_compact(
    message: np.ndarray, chars: np.ndarray, symbols: np.ndarray, note: str = ""
) -> str:
    """A turn in few tokens: the message's beginning, and the part of the map that is seen.

    Cells that are not seen but lie between others of their row are drawn as `_`.

    Args:
      message: `u8[256]`.
      chars: `u8[9, 9]`, `chars_crop`.
      symbols: `[9, 9]`, `symbols_crop`.
      note: why the last answer was none.
    """
    seen = symbols != SYMBOL["unseen"]
    rows, columns = (np.flatnonzero(seen.any(axis)) for axis in (1, 0))
    part = np.s_[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
    drawn = [row.replace(" ", "_") for row in picture(chars[part], symbols[part])]
    said = textwrap.shorten(decode(message), _COMPACT_MESSAGE, placeholder="…")
    return "\n".join([*filter(None, (note, said)), *drawn])


def _drawn(chars: np.ndarray, symbols: np.ndarray) -> np.ndarray:
    drawn = chars.copy()
    for symbol, char in _DRAWN.items():
        drawn[symbols == symbol] = ord(char)
    return drawn


def _name(char: str, symbol: int) -> str:
    if symbol in MONSTERS:
        return _MONSTERS.get(char, "monster")
    return _NAMES.get(SYMBOLS[symbol], SYMBOLS[symbol])

"""Text for language models, against what was written by hand."""

import numpy as np

from jaxrl_guided.envs.minihack.symbols import SYMBOL
from jaxrl_guided.envs.minihack.tasks import COMPASS
from jaxrl_guided.envs.minihack.text import decode, render, render_compact

SHOWS = {
    " ": "unseen",
    "-": "wall",
    "|": "wall",
    "+": "closed door",
    ".": "floor",
    ">": "stairs down",
    "^": "trap",
    "@": "you",
    "d": "monster of level 0",
    "F": "monster that stays",
    "(": "tool",
}
ROOM = """



  ------|
  |d@...|
  |.^.(>|
  |...F.|
  -------
"""


def view(picture, **other):
    """Characters and symbols `[9, 9]` of a drawing; `other` are symbols of `row_column` cells."""
    rows = [row.ljust(9) for row in picture.removeprefix("\n").splitlines()]
    rows += [" " * 9] * (9 - len(rows))
    symbols = np.array([[SYMBOL[SHOWS[char]] for char in row] for row in rows])
    for place, name in other.items():
        row, column = map(int, place.removeprefix("at_").split("_"))
        symbols[row, column] = SYMBOL[name]
    return np.array([list(row.encode()) for row in rows], np.uint8), symbols


def message(text):
    return np.frombuffer(text.encode().ljust(256, b"\0"), np.uint8)


def test_a_message_ends_at_the_first_zero():
    assert decode(message("It's a wall.  Ouch! ")) == "It's a wall. Ouch!"
    assert decode(message("")) == ""


def test_a_turn():
    text = render(message("You see here a key."), *view(ROOM), COMPASS)
    assert text == (
        "Message: You see here a key.\n"
        "Map, north is up, you are in the middle:\n"
        "\n"
        "\n"
        "\n"
        "  ------|\n"
        "  |d@...|\n"
        "  |.^.(>|\n"
        "  |...F.|\n"
        "  -------\n"
        "\n"
        "Meaning:\n"
        "@ you\n"
        "blank solid rock or not seen\n"
        "- | wall\n"
        "d dog, jackal or wolf\n"
        ". floor\n"
        "^ trap\n"
        "( tool\n"
        "> stairs down\n"
        "F mould or lichen, hardly moves\n"
        "Actions: 0 north, 1 east, 2 south, 3 west, 4 northeast, 5 southeast, 6 southwest, "
        "7 northwest"
    )


def test_a_note_comes_first_and_no_message_is_a_dash():
    lines = render(message(""), *view(ROOM), ("north",), "say it again").splitlines()
    assert lines[:2] == ["Note: say it again", "Message: -"]
    assert lines[-1] == "Actions: 0 north"


def test_what_looks_alike_is_drawn_apart():
    river = "..}}" + "\n" + ".@.}" + "\n" + ".|-+"
    chars, symbols = view(
        river.replace("}", "^"),
        at_0_2="water",
        at_0_3="lava",
        at_1_3="lava",
        at_2_1="open door",
        at_1_2="dark floor",
    )
    chars[chars == ord("^")] = ord("}")
    lines = render(message(""), chars, symbols, ("north",)).splitlines()
    assert lines[2:5] == ["..}~", ".@.~", ".'-+"]
    assert lines[12:-1] == [
        "@ you",
        ". floor",
        "} water",
        "~ lava",
        "blank solid rock or not seen",
        "' open door",
        "- wall",
        "+ closed door",
    ]


def test_one_character_may_have_two_meanings():
    chars, symbols = view("@d", at_0_1="pet")
    chars[0, 2], symbols[0, 2] = ord("d"), SYMBOL["monster of level 3 to 5"]
    lines = render(message(""), chars, symbols, ("north",)).splitlines()
    assert lines[12:15] == ["@ you", "d your pet", "d dog, jackal or wolf"]


def test_a_turn_in_few_tokens():
    assert render_compact(message(""), *view(ROOM)) == (
        "------|\n"  # the drawing begins at its first column that is seen
        "|d@...|\n"
        "|.^.(>|\n"
        "|...F.|\n"
        "-------"
    )


def test_a_compact_turn_marks_what_is_not_seen_and_cuts_the_message():
    long = "You have a little trouble lifting a heavy iron ball.  Continue?"
    dark = "\n  ...\n  .@.\n    ^ .\n"
    assert render_compact(message(long), *view(dark), "again") == (
        "again\nYou have a little trouble lifting a…\n...\n.@.\n__^_."
    )

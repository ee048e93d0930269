"""Few words for texts, and which command an answer means."""

import pytest

from jaxrl_guided.envs.alfworld.wording import meant, short_command, short_names, short_text

NAMES = short_names(
    ["agent1 ", "fridge 1", "drawer 1", "drawer 2", "apple 1", "egg 1", "egg 2", "desklamp 1"]
)


def test_a_number_only_where_there_are_more():
    assert NAMES["fridge 1"] == "fridge"
    assert NAMES["drawer 2"] == "drawer2"
    assert len(NAMES) == 7


@pytest.mark.parametrize(
    "text, short",
    [
        (
            "You are in the middle of a room. Looking quickly around you, you see a drawer 2, a "
            "drawer 1, and a fridge 1.\n\n",
            "drawer2 drawer1 fridge",
        ),
        ("You arrive at drawer 2. The drawer 2 is closed.", "drawer2 closed"),
        (
            "You arrive at drawer 2. On the drawer 2, you see a apple 1, and a egg 1.",
            "drawer2: apple egg1",
        ),
        (
            "You arrive at fridge 1. The fridge 1 is open. In it, you see nothing.",
            "fridge: nothing",
        ),
        (
            "You open the fridge 1. The fridge 1 is open. In it, you see a egg 2, a egg 1, and a "
            "apple 1.",
            "fridge: egg2 egg1 apple",
        ),
        ("You close the fridge 1.", "fridge closed"),
        ("You pick up the egg 2 from the fridge 1.", "took egg2"),
        ("You move the egg 2 to the drawer 1.", "put egg2"),
        ("You put the egg 2 in/on the drawer 1.", "put egg2"),
        ("You heat the egg 2 using the fridge 1.", "heat egg2"),
        ("You turn on the desklamp 1.", "on desklamp"),
        ("You are carrying: a egg 2.", "have egg2"),
        ("You are not carrying anything.", "have nothing"),
        ("You are facing the fridge 1. Next to it, you see nothing.", "at fridge"),
    ],
)
def test_texts(text, short):
    assert short_text(text, NAMES) == short


@pytest.mark.parametrize(
    "command, short",
    [
        ("go to fridge 1", "go fridge"),
        ("take egg 2 from drawer 1", "take egg2"),
        ("move egg 2 to drawer 1", "put egg2"),
        ("put egg 2 in/on drawer 1", "put egg2"),
        ("clean apple 1 with fridge 1", "clean apple"),
        ("open drawer 2", "open drawer2"),
        ("inventory", "inventory"),
    ],
)
def test_commands(command, short):
    assert short_command(command, NAMES) == short


NEW = ["go to fridge 1", "move egg 2 to drawer 1", "look"]
OLD = ["go to fridge 1", "put egg 2 in/on drawer 1", "look"]


@pytest.mark.parametrize(
    "said, place",
    [
        ("go to fridge 1", 0),
        ("  Go  to\nFridge 1. ", 0),
        ("go fridge", 0),
        ("move egg 2 to drawer 1", 1),
        ("put egg 2 in/on drawer 1", 1),
        ("put egg 2 in drawer 1", 1),
        ("put egg 2 on drawer 1", 1),
        ("place egg 2 into drawer 1", 1),
        ("put egg2", 1),
        ("look", 2),
        ("go", None),
        ("put egg 1 in/on drawer 1", None),
        ("", None),
    ],
)
@pytest.mark.parametrize("admissible", [NEW, OLD], ids=["new", "old"])
def test_what_an_answer_means(said, place, admissible):
    assert meant(said, admissible, NAMES) == (None if place is None else admissible[place])

"""Answers of language models: all forms of an action, and a note for everything else."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxrl_guided.envs.minihack.tasks import COMPASS, KEYS
from jaxrl_guided.envs.text.answers import parse

KEY_ROOM = (*COMPASS, "pickup", "apply")
LIST = "0 north, 1 east, 2 south, 3 west"


def named(said, actions=KEY_ROOM):
    """Name of the action that an answer means."""
    answer = parse(f"<think>go west</think><answer>{said}</answer>", actions)
    return answer.note if answer.action is None else actions[answer.action]


@pytest.mark.parametrize(
    "name, said",
    [
        (
            "north",
            "north|North|NORTH.|n|N|k|up|move north|go to the north|'north'|0|0 north|0: north",
        ),
        ("east", "east|e|l|right|Move right!|1|1. East"),
        ("south", "south|s|j|down|walk down| 2 |\n2\n"),
        ("west", "west|w|h|left|3"),
        ("northeast", "northeast|north-east|North East|ne|NE|u|up-right|upper right|4|4 ne"),
        ("southeast", "southeast|south east|se|down right|lower-right|5"),
        ("southwest", "southwest|south_west|sw|b|down left|6"),
        ("northwest", "northwest|nw|y|up left|**northwest**|7"),
        ("pickup", "pickup|pick up|pick-up|,|take|8"),
        ("apply", "apply|Apply|a|use|9"),
    ],
)
def test_actions_have_several_names(name, said):
    for form in said.split("|"):
        assert named(form) == name, form


def test_nethacks_keys_are_names_but_the_one_that_is_north():
    assert [KEYS[named(letter)] for letter in "hjklyub,a"] == list(b"hjklyub,a")
    assert named("n") == "north"


def test_the_last_answer_counts():
    text = "<answer>north</answer> or rather <ANSWER> south </Answer> so be it"
    assert parse(text, COMPASS).action == 2
    assert parse("<answer>north <answer>west</answer>", COMPASS).action == 3
    assert parse("<answer>north</answer> and </answer>", COMPASS).action == 0


@pytest.mark.parametrize("said", ["10", "-1", "1 north", "0 0", "", "jump", "north or south", "٣"])
def test_anything_else_is_repeated_with_what_would_be_right(said):
    answer = parse(f"<answer>{said}</answer>", KEY_ROOM)
    assert answer.action is None
    assert answer.note.startswith(f"'{said}' is none of: {LIST}, ")
    assert answer.note.endswith("8 pickup, 9 apply")


def test_an_action_that_the_task_lacks_is_none():
    assert parse("<answer>apply</answer>", COMPASS[:4]).note == f"'apply' is none of: {LIST}"


@pytest.mark.parametrize("text", ["", "north", "<answer>north", "north</answer>"])
def test_an_answer_has_its_tags(text):
    note = f"no <answer>…</answer>; put into it one of: {LIST}"
    assert parse(text, COMPASS[:4]).note == note


def test_a_long_answer_is_shortened_to_one_line():
    answer = parse(f"<answer>first\n\tthis {'and that ' * 50}</answer>", COMPASS[:4])
    assert answer.note == f"'first this and that and that a' is none of: {LIST}"


TEXT = st.lists(
    st.one_of(st.sampled_from(["<answer>", "</answer>", "north", "0", "99", "\n", " "]), st.text())
).map("".join)


@given(TEXT, st.integers(1, len(KEY_ROOM)))
def test_any_text_gives_an_action_in_range_or_a_note(text, count):
    answer = parse(text, KEY_ROOM[:count])
    if answer.action is None:
        assert len(answer.note.splitlines()) == 1
    else:
        assert answer.note == ""
        assert 0 <= answer.action < count

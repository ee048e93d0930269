"""Prompts against golden files; `python -m tests.complementary.test_prompts` writes them."""

import pathlib

import pytest

from jaxrl_guided.complementary import prompts
from jaxrl_guided.complementary.prompts import numbered, render

GOLDENS = pathlib.Path(__file__).parent / "goldens"
ENTRIES = numbered(["<title>A</title><content>Go $east.</content>", "<title>B</title>"])
VALUES = {
    "distil": {
        "description": "reach the stairs",
        "outcome": "FAILURE",
        "transcript": "user: a room\nassistant: <answer>east</answer>",
        "shown": ENTRIES,
        "most": 3,
    },
    "merge": {"entries": ENTRIES},
    "ask": {"description": "reach the stairs", "question": "where?", "entry": ENTRIES},
    "inject": {"entries": ENTRIES},
    "ask_tool": {"most": 2},
}
CASES = [(role, compact) for role in VALUES for compact in (False, True)]


def golden(role, compact):
    return GOLDENS / f"{role}{'_compact' if compact else ''}_{prompts.VERSION}.txt"


@pytest.mark.parametrize(("role", "compact"), CASES)
def test_a_prompt_is_what_its_version_says(role, compact):
    """Another wording needs another version, and files of its own."""
    assert render(role, compact, **VALUES[role]) + "\n" == golden(role, compact).read_text()


def test_every_template_is_rendered_here():
    files = pathlib.Path(prompts.__file__).parent.glob("*.txt")
    assert {path.stem for path in files} == {
        f"{role}{'_compact' if compact else ''}" for role, compact in CASES
    }


def test_missing_values_are_an_error_and_given_ones_are_text():
    with pytest.raises(KeyError, match="entries"):
        render("merge")
    assert "Go $east." in render("inject", entries="Go $east.")
    assert numbered([]) == "none"


if __name__ == "__main__":
    GOLDENS.mkdir(exist_ok=True)
    for case in CASES:
        golden(*case).write_text(render(*case, **VALUES[case[0]]) + "\n")

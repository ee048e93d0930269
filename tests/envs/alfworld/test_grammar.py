"""Texts of the grammar, against what was written by hand."""

import pytest

from jaxrl_guided.envs.alfworld.grammar import Writer, read_grammar
from jaxrl_guided.envs.alfworld.pddl import Domain, Problem
from jaxrl_guided.envs.alfworld.state import State
from tests.envs.alfworld.household import GRAMMAR

NAMES = {"a1": "apple 1", "e1": "egg 1", "b1": "bowl 1", "f": "fridge 1", "s": "shelf 1"}
TYPES = {n: "receptacle" if n in "fs" else "object" for n in NAMES}


def writer(*facts):
    state = State(Domain({}, ()), Problem(TYPES, [tuple(fact.split()) for fact in facts], []))
    return Writer(read_grammar(GRAMMAR), state, NAMES)


@pytest.mark.parametrize(
    "inside, listed",
    [
        ([], "nothing"),
        (["a1"], "a apple 1"),
        (["e1", "a1"], "a apple 1, and a egg 1"),
        (["e1", "a1", "b1"], "a apple 1, a bowl 1, and a egg 1"),
    ],
)
def test_lists(inside, listed):
    facts = [f"inreceptacle {name} s" for name in inside]
    text = writer(*facts, "inreceptacle a1 f").write("#inside#", {"r:receptacle": "s"})
    assert text == f"On the shelf 1, you see {listed}."


def test_the_first_rule_whose_condition_holds():
    asked = {"r:receptacle": "f"}
    assert writer("openable f").write("#inside#", asked) == "The fridge 1 is closed."
    open_ = writer("openable f", "opened f", "inreceptacle e1 f")
    assert open_.write("#inside#", asked) == "The fridge 1 is open. In it, you see a egg 1."
    assert writer("openable s").write("#inside#", asked).startswith("On the fridge 1")


def test_different_placeholders_are_different_objects():
    text = (
        "[{o.name | inreceptacle(o:object, r:receptacle) & inreceptacle(p:object, r:receptacle)}]"
    )
    both = writer("inreceptacle a1 f", "inreceptacle e1 f")
    assert both.write(text, {"r:receptacle": "f"}) == "apple 1, and egg 1"
    assert writer("inreceptacle a1 f").write(text, {"r:receptacle": "f"}) == "nothing"


def test_types_are_kept_apart():
    assert writer("near a1", "near f").write("[{r | near(r:receptacle)}]", {}) == "fridge 1"


@pytest.mark.parametrize(
    "text, written",
    [
        ("\n  a line\n", "a line\n"),
        ("{o.indefinite + ' ' + o.name or 'none'}!", "a apple 1!"),
        ("{o.definite}-{o.id}-{o}", "the-a1-apple 1"),
        ("one\\ntwo", "one\ntwo"),
        ("up to here; not there", "up to here"),
        ('"quoted" text', "quoted text"),
    ],
)
def test_pieces_of_texts(text, written):
    assert writer().write(text, {"o:object": "a1"}) == written


@pytest.mark.parametrize(
    "text, message",
    [
        ("#unknown#", "no rule for 'unknown'"),
        ("{print(o)}", r"expression not understood: 'print\(o\)'"),
        ("{o.__class__}", "expression not understood: 'o.__class__'"),
        ("{r.name}", "expression not understood: 'r.name'"),
        ("{o +}", "expression not understood"),
        ("[{o.name | near}]", "condition not understood: 'near'"),
    ],
)
def test_what_is_not_understood_is_said_and_never_run(text, message):
    with pytest.raises(ValueError, match=message):
        writer().write(text, {"o:object": "a1"})


def test_a_text_that_is_no_grammar_is_refused():
    for text in ("", "action a {}", 'grammar :: """ {"a": []} """;'):
        with pytest.raises(ValueError, match="must have rules and actions"):
            read_grammar(text)

"""What extractors say, read by hand-written cases and by any text at all."""

import json

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jaxrl_guided.complementary.operations import DISTIL, MERGE, Operation, Rejected, parse

NOTE = "<title>Dark rooms</title><content>If it is dark, walk along the wall.</content>"
ADD = {"operation": "add", "new_memory": NOTE}
TITLE, CONTENT = "Dark rooms", "If it is dark, walk along the wall."


def said(*items, think="<think>so</think>"):
    return f"{think}<answer>{json.dumps(list(items))}</answer>"


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (said(ADD), [Operation("add", (), TITLE, CONTENT)]),
        (said(ADD, think=""), [Operation("add", (), TITLE, CONTENT)]),
        (said({"operation": "return"}), []),
        (
            said({"operation": "update", "target_idx": [3, 1], "new_memory": NOTE}, ADD),
            [Operation("update", (2, 0), TITLE, CONTENT), Operation("add", (), TITLE, CONTENT)],
        ),
        ("<think>an <answer>[]</answer>?</think> so: " + said(ADD, think="") + "\n", [ADD]),
        (said(ADD, ADD, ADD), [ADD] * 3),
        (said({"operation": "add", "new_memory": f"\n {NOTE} "}), [ADD]),
    ],
)
def test_well_formed_outputs_give_operations(output, expected):
    found = parse(output, shown=3)
    assert found == [
        Operation("add", (), TITLE, CONTENT) if operation == ADD else operation
        for operation in expected
    ]


def update(**changes):
    return {"operation": "update", "target_idx": [1], "new_memory": NOTE} | changes


def note(title, content):
    return {
        "operation": "add",
        "new_memory": f"<title>{title}</title><content>{content}</content>",
    }


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ("", "no answer"),
        ("<think>only</think>", "no answer"),
        ("<answer>[]</answer> and more", "no answer"),
        ("<answer>[</answer>", "no JSON"),
        ("<answer>" + "[" * 100_000 + "</answer>", "no JSON"),
        ("<answer>{}</answer>", "no list"),
        ("<answer>[]</answer>", "no list"),
        (said(ADD, ADD, ADD, ADD), "too many"),
        (said("add"), "fields"),
        (
            said({"operation": "merge", "target_idx": [1, 2], "new_memory": NOTE}),
            "unknown operation",
        ),
        (said({"operation": ["add"], "new_memory": NOTE}), "unknown operation"),
        (said({"new_memory": NOTE}), "unknown operation"),
        (said(ADD | {"target_idx": [1]}), "fields"),
        (said({"operation": "add"}), "fields"),
        (said(update(target_idx=[])), "targets"),
        (said(update(target_idx=1)), "targets"),
        (said(update(target_idx=[True])), "targets"),
        (said(update(target_idx=[1.0])), "targets"),
        (said(update(target_idx=["1"])), "targets"),
        (said(update(target_idx=[0])), "targets"),
        (said(update(target_idx=[4])), "targets"),
        (said(update(target_idx=[1, 1])), "targets"),
        (said(update(), update(target_idx=[2, 1])), "targets"),
        (said(update(new_memory="plain")), "memory"),
        (said(update(new_memory=None)), "memory"),
        (said(note("", "something")), "memory"),
        (said(note("title", "  ")), "memory"),
        (said(note("title", "...")), "memory"),
        (said(note("title", "your content")), "memory"),
        (said(note("title", "half \ud800 a pair")), "memory"),
        (said(note("title", "<title>again</title>")), "memory"),
        (said({"operation": "add", "new_memory": NOTE + NOTE}), "memory"),
        (said(ADD, update(target_idx=[9])), "targets"),  # one bad operation rejects all
    ],
)
def test_malformed_outputs_are_rejected_whole(output, reason):
    with pytest.raises(Rejected) as caught:
        parse(output, shown=3)
    assert caught.value.reason == reason


def test_an_episode_that_was_shown_nothing_updates_nothing():
    with pytest.raises(Rejected, match="targets"):
        parse(said(update()), shown=0)


def test_merging_has_operations_of_its_own():
    merge = {"operation": "merge", "target_idx": [1, 3], "new_memory": NOTE}
    discard = {"operation": "discard", "target_idx": [2, 4]}
    rewrite = {"operation": "rewrite", "target_idx": [5], "new_memory": NOTE}
    found = parse(said(merge, discard, rewrite), 5, MERGE, most=5, shortest=30)
    assert [(operation.kind, operation.targets) for operation in found] == [
        ("merge", (0, 2)), ("discard", (1, 3)), ("rewrite", (4,))
    ]  # fmt: skip
    for bad, reason in (
        (merge | {"target_idx": [1]}, "targets"),
        (rewrite | {"target_idx": [1, 2]}, "targets"),
        (ADD, "unknown operation"),
        (rewrite | {"new_memory": "<title>x</title><content>too short</content>"}, "memory"),
    ):
        with pytest.raises(Rejected, match=reason):
            parse(said(bad), 5, MERGE, shortest=30)


texts = st.text(alphabet=st.characters(codec=None), max_size=60)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | texts | st.just(NOTE),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["operation", "new_memory", "target_idx", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)
operations = st.fixed_dictionaries(
    {"operation": st.sampled_from([*DISTIL, *MERGE, "eat"])},
    optional={
        "new_memory": st.just(NOTE) | texts,
        "target_idx": st.lists(st.integers(-1, 5), max_size=3),
    },
)
answers = st.lists(operations, max_size=4).map(json.dumps) | values.map(json.dumps) | texts


@settings(max_examples=300, deadline=None)
@given(texts, answers, texts | st.just(""), st.integers(0, 4), st.sampled_from([DISTIL, MERGE]))
@example("", "9" * 5000, "", 1, DISTIL)
def test_any_text_gives_operations_or_a_reason(before, answer, after, shown, kinds):
    try:
        found = parse(f"{before}<answer>{answer}</answer>{after}", shown, kinds)
    except Rejected:
        return
    assert len(found) <= 3
    targets = [target for operation in found for target in operation.targets]
    assert len(set(targets)) == len(targets)
    assert all(0 <= target < shown for target in targets)
    for operation in found:
        assert operation.kind in kinds
        needs_text = operation.kind in ("add", "update", "merge", "rewrite")
        assert bool(operation.title and operation.content) == needs_text
        (operation.title + operation.content).encode()

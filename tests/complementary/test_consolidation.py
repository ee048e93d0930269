"""Writes that follow from an extractor's answers, and whole merges of a bank."""

import json

import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.consolidation import (
    MergeConfig,
    MergePass,
    transcript_of,
    write_of,
)
from jaxrl_guided.complementary.operations import Rejected, parse

EMBED = HashedEmbedder(16)
LONG = "if it is dark then walk along the wall"


def note(title, content=LONG):
    return f"<title>{title}</title><content>{content}</content>"


def said(*items):
    return f"<answer>{json.dumps(items)}</answer>"


def merge(title, *targets):
    return {"operation": "merge", "target_idx": list(targets), "new_memory": note(title)}


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "bank", EMBED.dim) as bank:
        yield bank


def fill(bank, count, task=lambda number: ""):
    titles = [f"note {number}" for number in range(count)]
    drafts = [
        Draft(title, LONG, vector, task=task(number))
        for number, (title, vector) in enumerate(zip(titles, EMBED(titles), strict=True))
    ]
    return bank.write(Write(tuple(drafts)))


def titles(entries):
    return [entry.title for entry in entries]


def test_an_output_is_one_write(bank):
    shown = fill(bank, 3, task=lambda number: f"task {number}")
    output = said(
        {"operation": "add", "new_memory": note("new")},
        {"operation": "update", "target_idx": [3, 1], "new_memory": note("better")},
    )
    write = write_of(parse(output, 3), shown, EMBED, generation=5, task="mine", episode=8)
    new, better = bank.write(write)
    assert (new.task, new.operation, new.parents) == ("mine", "add", ())
    assert (better.task, better.operation, better.parents) == ("task 2", "update", (3, 1))
    assert {(e.generation, e.episode) for e in (new, better)} == {(5, 8)}
    assert titles(bank.entries()) == ["note 1", "new", "better"]
    assert (better.vector == EMBED([note("better")])[0]).all()
    assert bank.write(write) is None  # two of its entries have ended


def test_a_merge_goes_through_the_bank_in_chunks(bank):
    fill(bank, 11)
    work, seen = MergePass(MergeConfig(chunk=5), bank), []
    while chunk := work.next_chunk():
        seen.append(titles(chunk))
        first = len(seen)
        items = [merge(f"merged {first}", 1, 2), {"operation": "discard", "target_idx": [3]}]
        assert work.apply(chunk, said(*items), EMBED, generation=first, step=9)
    assert seen == [
        ["note 0", "note 1", "note 2", "note 3", "note 4"],
        ["merged 1", "note 5", "note 6", "note 7", "note 8"],
        ["merged 2", "note 9", "note 10"],
    ]
    left = ["note 3", "note 4", "note 7", "note 8", "merged 3"]
    assert titles(bank.entries()) == left
    last = bank.entries()[-1]
    assert (last.operation, last.generation) == ("merge", 3)
    assert bank.get(last.parents[0]) is None


def test_what_is_malformed_or_late_changes_nothing(bank):
    entries = fill(bank, 5)
    work = MergePass(MergeConfig(), bank)
    chunk = work.next_chunk()
    for output in ("", said(merge("x", 1, 9)), said(merge("x", 1, 2), merge("y", 2, 3))):
        with pytest.raises(Rejected):
            work.apply(chunk, output, EMBED, 0)
    assert work.apply(chunk, said({"operation": "return"}), EMBED, 0)
    assert titles(bank.entries()) == titles(entries)
    bank.write(Write((), (entries[0].id,)))
    assert not work.apply(chunk, said(merge("x", 1, 2)), EMBED, 0)
    assert titles(bank.entries()) == titles(entries[1:])


def test_entries_that_ended_are_not_looked_at(bank):
    entries = fill(bank, 7)
    work = MergePass(MergeConfig(chunk=3), bank)
    bank.write(Write((), tuple(entry.id for entry in entries[:2])))
    assert titles(work.next_chunk()) == ["note 2", "note 3", "note 4"]
    bank.write(Write((), (entries[5].id,)))
    assert work.next_chunk() == []  # one alone is merged with nothing


def test_tasks_are_merged_apart(bank):
    fill(bank, 6, task=lambda number: "ab"[number % 2])
    work = MergePass(MergeConfig(chunk=2), bank, by_task=True)
    seen = []
    while chunk := work.next_chunk():
        seen.append(titles(chunk))
    assert seen == [["note 0", "note 2"], ["note 1", "note 3"]]


def test_small_banks_need_no_merge(bank):
    assert MergePass(MergeConfig(), bank).next_chunk() == []
    fill(bank, 1)
    assert MergePass(MergeConfig(), bank).next_chunk() == []


def test_a_transcript_leaves_out_the_system():
    messages = [("system", "rules"), ("user", "go"), ("assistant", "east"), ("tool", "done")]
    assert transcript_of(messages) == "user: go\nassistant: east\ntool: done"


@pytest.mark.parametrize("fields", [{"every": 0}, {"chunk": 1}, {"shortest": 0}])
def test_bad_settings(fields):
    with pytest.raises(ValueError, match=f"merge.{next(iter(fields))} must be"):
        MergeConfig(**fields)

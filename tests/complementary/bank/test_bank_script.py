"""`python -m experiments.bank` on a small bank, in this process."""

import json
import re

import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.bank import BANK_FILE, Bank, Draft, Event, Write
from jaxrl_guided.complementary.bank.report import gini
from tests.experiments import scripts

EMBED = HashedEmbedder(32)


def draft(title, **fields):
    return Draft(title, f"{title}, in words", EMBED([title])[0], **fields)


@pytest.fixture
def place(tmp_path):
    with Bank(tmp_path / BANK_FILE, EMBED.dim, EMBED.name, run="first") as bank:
        bank.write(Write((draft("open the door"), draft("buy a dress", task="shop", episode=4))))
        bank.record([Event("retrieved", 1, 7, at=9.0, step=2), Event("credited", 1, 7, -1.0)])
        bank.checkpoint("step 1")
        merged = draft("doors and dresses", operation="merge", parents=(1, 2), generation=3)
        bank.write(Write((merged,), (1, 2), "merge"), step=5)
        bank.write(Write((draft("a third"),)))
        bank.record([Event("retrieved", 4, 8), Event("credited", 4, 8, 1.0)])
    return tmp_path


def call(capsys, *arguments, code=0):
    found = scripts.call("bank", *map(str, arguments))
    out, err = capsys.readouterr()
    assert found == code, err
    return err if code else out


def test_entries_are_listed_in_the_order_asked_for(place, capsys):
    shown = call(capsys, "show", place)
    assert "2 entries at version 5" in shown
    assert shown.index("a third") < shown.index("doors and dresses")
    assert "+1.00 (1)" in shown
    worst = call(capsys, "show", place / BANK_FILE, "--sort=worst", "--limit=1")
    assert "doors and dresses" in worst
    assert "a third" not in worst
    before = call(capsys, "show", place, "--version=2")
    assert "open the door" in before
    assert "-1.00 (1)" in before


def test_an_entry_is_told_with_its_lineage(place, capsys):
    text = call(capsys, "show", place, "--entry=3")
    assert "doors and dresses, in words" in text
    assert re.search(r"Made of:\n +1: open the door\n +2: buy a dress\n", text)
    assert "born (step 5)" in text
    old = call(capsys, "show", place, "--entry=1")
    assert "retrieved by episode 7 (step 2" in old
    assert "credited -1 by episode 7" in old
    assert "died (merge) (step 5)" in old


def test_near_entries_are_found(place, capsys):
    found = call(capsys, "search", place, "--query=dresses and doors", "--limit=1")
    assert re.match(r"0\.\d+  3: doors and dresses\n", found)


def test_entries_are_exported(place, capsys):
    out = place / "entries.jsonl"
    assert "2 entries of version 5" in call(capsys, "export", place, f"--out={out}")
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [line["id"] for line in lines] == [3, 4]
    assert lines[0]["parents"] == [1, 2]
    assert lines[1]["mean_credit"] == 1.0
    err = call(capsys, "export", place, f"--out={out}", code=2)
    assert "exists; choose another or remove it" in err


def test_numbers_of_a_bank(place, capsys):
    found = json.loads(call(capsys, "stats", place))
    assert found["entries"] == 2
    assert found["made_by"] == {"merge": 1, "add": 1}
    assert found["embedder"] == "hashed-32"
    assert found["checkpoints"] == {"step 1": 2}
    assert found["deaths_of_all_branches"] == {"merge": 2}
    assert found["gini"] == 0.5


def test_compact_keeps_what_checkpoints_name(place, capsys):
    assert "dropped 0 entries" in call(capsys, "compact", place)
    with Bank(place / BANK_FILE) as bank:
        bank._log.name_checkpoint("step 1", None)
    assert "dropped 2 entries and 6 events" in call(capsys, "compact", place)
    assert "(dropped by compact)" in call(capsys, "show", place, "--entry=3")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["eat", "."], "unknown 'eat'; choose one of show, search, export, stats, compact"),
        (["show", "nowhere"], "nowhere: there is no such bank"),
        (["compact", "nowhere"], "nowhere: there is no such bank"),
        (["show", ".", "--entry=99"], "has no entry 99"),
        (["show", ".", "--version=99"], "has no version 99: there are 0 to 5, step 1 (2)"),
        (["search", "."], "--query must be given"),
        (["export", "."], "--out must be given"),
        (["show"], "missing argument RUN"),
    ],
)
def test_bad_requests_are_one_line(arguments, message, place, capsys, monkeypatch):
    monkeypatch.chdir(place)
    err = call(capsys, *arguments, code=2)
    assert message in err
    assert err.count("\n") == 1


def test_gini_is_the_mean_difference():
    """Half the relative mean absolute difference (the textbook form)."""
    random = np.random.default_rng(0)
    for counts in ([1, 1, 1], [0, 0, 5], [3], random.integers(0, 50, 40)):
        x = np.asarray(counts, float)
        expected = np.abs(x[:, None] - x).mean() / (2 * x.mean())
        assert gini(counts) == pytest.approx(expected)
    assert gini([]) == gini([0, 0]) == 0

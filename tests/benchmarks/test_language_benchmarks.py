"""What the benchmarks of language models say of given measurements, and that they run."""

import dataclasses
import subprocess
import sys

import pytest

from benchmarks import llm_train, sampler
from benchmarks.contenders import Measured
from benchmarks.workers import ROOT

CASE = sampler.CASES[0]
TURNS = next(case for case in sampler.CASES if case.turns == 8)
STEADY = (1.0, 1.01, 0.99)


def measured(seconds, repeats=STEADY, **fields):
    return Measured([seconds * x for x in repeats], **fields)


def test_cases_have_names_of_their_own():
    assert len({case.name for case in sampler.CASES}) == len(sampler.CASES) == 12
    assert (CASE.name, TURNS.name) == (
        "SmolLM2-135M, batch 1, 1 turn",
        "SmolLM2-135M, batch 1, 8 turns",
    )


@pytest.mark.parametrize(("torch", "met"), [(0.2, True), (0.1, True), (0.09, False)])
def test_a_single_turn_is_compared_with_torch(torch, met):
    row = sampler.speed_row(CASE, {"ours": measured(0.1), sampler.TORCH: measured(torch)})
    assert row.ours == pytest.approx(10)
    assert row.peers == {sampler.TORCH: pytest.approx(1 / torch)}
    assert (row.goal, row.met) == ("≥ 1× transformers", met)


@pytest.mark.parametrize(
    ("again", "torch", "met"), [(0.31, 0.4, True), (0.29, 0.4, False), (0.4, 0.29, False)]
)
def test_turns_are_compared_with_reading_all_again(again, torch, met):
    found = {
        "ours": measured(0.1),
        sampler.AGAIN: measured(again),
        sampler.TORCH: measured(torch),
    }
    assert sampler.speed_row(TURNS, found).met is met


def test_noise_and_failures_are_told_and_not_judged():
    found = {"ours": measured(0.1, (1, 1.2, 0.9)), sampler.TORCH: measured(0.11)}
    row = sampler.speed_row(CASE, found)
    assert row.met is None
    assert "ours void: repeats spread by 30 %" in row.note
    row = sampler.speed_row(CASE, {"ours": measured(0.1), sampler.TORCH: Measured(failed="gone")})
    assert (row.goal, row.met, row.peers) == ("", None, {})
    assert "transformers failed: gone" in row.note


FLOOR = {"products_seconds": 0.06, "bandwidth": 10e9, "weights_bytes": 0.7e9}


def times(case, step, before):
    """Seconds a token of answers whose tokens take `step` and the reading `before`."""
    total = before + step * case.answer_tokens
    return measured(total / case.answer_tokens / case.rows)


@pytest.mark.parametrize(("step", "met"), [(0.1, True), (0.12, False)])
def test_a_step_is_the_difference_of_two_lengths(step, met):
    short = dataclasses.replace(CASE, answer_tokens=sampler.SHORT)
    long, brief = times(CASE, step, 0.5), times(short, step, 0.5)
    row = sampler.floor_row(CASE, long, brief, FLOOR)
    assert row.ours == pytest.approx(step, rel=1e-6)
    assert (row.goal, row.met) == ("≥ 0.6 of memory bandwidth", met)
    wide = dataclasses.replace(CASE, rows=64)
    row = sampler.floor_row(
        wide, times(wide, step, 0.5), times(dataclasses.replace(short, rows=64), step, 0.5), FLOOR
    )
    assert (row.goal, row.met) == ("≥ 0.6 of products alone", 0.06 / step >= 0.6)


@pytest.mark.parametrize(("ours", "torch", "met"), [(10, 20, True), (19, 20, False)])
def test_training_is_judged_by_speed_and_memory(ours, torch, met):
    found = {
        "ours": measured(0.1, rss_mb=ours),
        llm_train.TORCH: measured(0.1 if met else 0.05, rss_mb=torch, note="torch 2"),
    }
    speed, memory = llm_train._rows("case", found, [])
    assert (speed.met, memory.met) == (met, met)
    assert speed.note == "torch 2"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["sampler", "llm_train", "bank"])
def test_they_run(name, tmp_path):
    out = tmp_path / "out.json"
    command = [sys.executable, "-m", f"benchmarks.{name}", "--quick", f"--out={out}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert out.exists()

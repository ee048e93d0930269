"""A cell of the backbone comparison: all of it on a toy, its resume, and what the rows are."""

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest

from jaxrl_guided.backbones.load import load_backbone
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago import backbone_grid
from jaxrl_guided.lago.artifact import new_prior
from jaxrl_guided.lago.backbone_grid import (
    LEVELS,
    ROWS,
    SEEDS,
    BackboneCell,
    backbone_cells,
    cell_identity,
    estimate_minutes,
    make_cells,
    result_text,
    run_backbone,
    run_in_processes,
)
from jaxrl_guided.lago.prior import split_trainable
from jaxrl_guided.lago.sources import Sources, hash_sources
from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.signals import StopFlag, Stopped
from tests.lago.tiny import PRIOR, expert_episodes

TINY = BackboneCell(
    "nano-full",
    dataclasses.replace(PRIOR, sft=dataclasses.replace(PRIOR.sft, seed=3, patience=6)),
    rates=(0.5, 2.0),
    trial_updates=2,
    env="toy",
    episodes=8,
    states=5,
)


READ = Sources(data="hash of data")


@pytest.fixture
def data(tmp_path, toy_family):
    path = tmp_path / "data"
    expert_episodes(env="toy/real").save(path)
    return path


def test_a_cell_measures_everything_and_keeps_no_weights(tmp_path, data):
    run, out = tmp_path / "run", tmp_path / "out.json"
    record = run_backbone(TINY, data, run, out)
    written = files.read_json(out)
    assert written.pop("config_hash") == make_cells({"x": TINY}, hash_sources(None, data))[0].hash
    del written["git"]
    assert written == json.loads(json.dumps(record)) == files.read_json(run / "summary.json")
    assert from_dict(BackboneCell, written["config"]) == TINY
    assert (record["updates"], record["steps"]) == (6, 6 * 2 * 8)
    assert set(record["trials"]) == {"0.5", "2.0"}
    assert record["trials"][str(record["rate"])] == min(record["trials"].values())
    assert record["held_out"]["step"] in (2, 4, 6)
    assert 0 < record["held_out"]["nll"] < 2 * np.log(40)
    assert tuple(record["levels"]) == LEVELS
    for level, numbers in record["levels"].items():
        assert ("following" in numbers) == (level != "easy")
        assert all(0 <= value <= 1 for value in numbers.values())
    assert not list(run.rglob("*.safetensors"))
    assert not (run / "work").exists()
    assert result_text(record).startswith("# nano (random), full\n\n- held-out Real: nll ")
    with pytest.raises(UserError, match=f"--result={out} exists"):
        run_backbone(TINY, data, run, out)


def test_a_stopped_cell_goes_on_and_repeats_nothing(tmp_path, data, monkeypatch):
    """Asked to stop whenever a part is finished: the next part is then cut, or not begun."""
    monkeypatch.setattr(backbone_grid, "_judge", lambda *given: {"success": len(given[-1]) / 100})
    expected = run_backbone(TINY, data, tmp_path / "whole")
    parts, flag, write_json = [], StopFlag(), files.write_json

    def write_and_stop(path, value):
        write_json(path, value)
        if path.stem.startswith(("trial", "held_out", "level")):
            parts.append(path.stem)
            flag.signum = 15

    monkeypatch.setattr(files, "write_json", write_and_stop)
    monkeypatch.setattr(backbone_grid, "catch_signals", lambda: contextlib.nullcontext(flag))
    for _ in range(5):
        flag.signum = 0
        with pytest.raises(Stopped, match=f"goes on with --run_dir={tmp_path / 'cut'}$"):
            run_backbone(TINY, data, tmp_path / "cut")
    flag.signum = 0
    assert run_backbone(TINY, data, tmp_path / "cut") == expected
    tuning = ["trial-0.5", "trial-2.0", "held_out"]
    assert parts == [*tuning, *(f"level-{level}" for level in LEVELS)]


def test_a_run_of_other_data_is_refused(tmp_path, data, monkeypatch):
    def stop(*given):
        raise Stopped

    monkeypatch.setattr(backbone_grid, "train_prior", stop)
    with pytest.raises(Stopped):
        run_backbone(TINY, data, tmp_path / "run")
    expert_episodes(seed=1).save(tmp_path / "other")
    with pytest.raises(UserError, match=r"another configuration \(data: "):
        run_backbone(TINY, tmp_path / "other", tmp_path / "run")


def test_rates_that_diverge_are_not_chosen(tmp_path, data, monkeypatch):
    train_prior = backbone_grid.train_prior

    def diverging(config, *rest):
        rates = (config.sft.lr, config.sft.backbone_lr)
        if rates[0] > limit:
            raise FloatingPointError
        assert rates == pytest.approx((0.5 * TINY.prior.sft.lr, 0.5 * TINY.prior.sft.backbone_lr))
        return train_prior(config, *rest)

    monkeypatch.setattr(backbone_grid, "train_prior", diverging)
    monkeypatch.setattr(backbone_grid, "_judge", lambda *given: {"success": 0.5})
    limit = TINY.prior.sft.lr
    record = run_backbone(TINY, data, tmp_path / "one")
    assert (record["rate"], record["trials"]["2.0"]) == (0.5, None)
    limit = 0
    with pytest.raises(FloatingPointError, match="diverged at all rates"):
        run_backbone(TINY, data, tmp_path / "none")


def test_rows_differ_in_the_backbone_only():
    wanted = backbone_cells()
    assert len(wanted) == len(ROWS) * len(SEEDS) == 21
    assert set(wanted) == {f"{row}-{seed}" for row in ROWS for seed in SEEDS}
    assert len({cell.hash for cell in make_cells(wanted, READ)}) == 21
    equal = set()
    for name, cell in wanted.items():
        assert name == f"{cell.row}-{cell.seed}"
        assert from_dict(BackboneCell, json.loads(json.dumps(to_dict(cell)))) == cell
        sft = cell.prior.sft
        assert sft.patience * sft.eval_every >= sft.max_updates  # none stops early
        sft = dataclasses.replace(sft, seed=0, backbone_lr=1.0)
        prior = dataclasses.replace(
            cell.prior, backbone=ROWS["nano-full"].prior.backbone, finetune="full", sft=sft
        )
        equal.add(dataclasses.replace(cell, row="nano-full", prior=prior))
    assert len(equal) == 1
    assert wanted["random-8-full-0"].prior.backbone == dataclasses.replace(
        wanted["smollm2-8-lora-0"].prior.backbone, random_weights=True
    )
    for changes, message in (
        ({"row": "gpt5"}, "row must be one of nano-full"),
        ({"rates": ()}, "rates must be positive"),
        ({"rates": (1.0, 0.0)}, "rates must be positive"),
        ({"states": 0}, "states must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            dataclasses.replace(TINY, **changes)


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_every_row_can_be_built(name):
    fields = {"state_size": 10, "num_actions": 40, "horizon": 50}
    row = ROWS[name].prior
    zeros, ones = np.zeros(10, np.float32), np.ones(10, np.float32)
    spec, prior, *_ = new_prior(
        row.backbone, fields | {"finetune": row.finetune, "lora": row.lora}, zeros, ones, 1
    )
    layers = {"nano": 2, "smollm2": 30 if "30" in name else 8, "random": 8}[name.split("-")[0]]
    assert spec.backbone.num_layers == layers
    assert bool(prior.adapters) == name.endswith("lora")
    assert ("base" in split_trainable(spec, prior)[0]) == name.endswith("full")
    pretrained = load_backbone(row.backbone.name, row.backbone.num_layers).params["embed"]
    same = bool((np.asarray(prior.base["embed"]) == np.asarray(pretrained)).all())
    assert same == name.startswith("smollm2")


def test_estimates_follow_the_matrix_products():
    minutes = {cell.id: estimate_minutes(cell) for cell in make_cells(backbone_cells(), READ)}
    assert max(minutes.values()) <= 30
    assert minutes["nano-full-0"] == pytest.approx(2, abs=0.1)
    assert minutes["smollm2-8-full-0"] > minutes["smollm2-8-lora-0"]
    assert minutes["smollm2-8-lora-1"] == minutes["random-8-lora-0"]
    longer = (minutes["smollm2-30-lora-0"] - 2) / (minutes["smollm2-8-lora-0"] - 2)
    assert longer == pytest.approx(30 / 8)
    # All but the table of embeddings is in the layers, to a part in a thousand.
    params = load_backbone("nano").params
    in_layers = sum(x.size for x in jax.tree.leaves(params["layers"]) if x.ndim == 3)
    cell = backbone_cells()["nano-full-0"]
    sft, texts = cell.prior.sft, sum(len(instruction_set(level)) for level in LEVELS)
    trained = 6 * (256 + 3 * 32) * sft.batch_rows * (22 + 32)
    rest = 2 * ((2 + 3) * sft.eval_rows * (22 + 32) + 4 * 500 * 50 + texts * 22)
    expected = in_layers * (trained + rest) / 100e9 / 60
    assert minutes["nano-full-0"] - 2 == pytest.approx(expected)


def test_cells_of_another_dataset_are_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "run_grid", lambda *given, **options: pytest.fail("work has begun"))
    expert_episodes().save(tmp_path / "data")
    results = tmp_path / "results"
    results.mkdir()
    files.write_json(results / "sources.json", to_dict(READ))
    cells.write_result(results / "a-1.json", cell_identity(TINY, READ), {})
    with pytest.raises(UserError, match=r"a-1 have read something else than .*data; give"):
        run_in_processes({"a-1": TINY}, tmp_path / "data", tmp_path / "work", results, ["program"])
    assert not (tmp_path / "work").exists()


def test_processes_get_their_cell_and_data(tmp_path, monkeypatch):
    expert_episodes().save(tmp_path / "data")

    def run_grid(listed, command, directory, **options):
        assert options == {"cores": 2, "estimate_minutes": estimate_minutes}
        return [command(cell, directory / f"{cell.id}.json") for cell in listed]

    monkeypatch.setattr(cells, "run_grid", run_grid)
    work = tmp_path / "work"
    (command,) = run_in_processes(
        {"a-1": TINY}, tmp_path / "data", work, tmp_path / "results", ["program"], cores=2
    )
    assert command == [
        "program",
        f"--cell={work}/a-1.json",
        f"--run_dir={work}/a-1",
        f"--compile_cache={work}/compiled",
        f"--data={tmp_path}/data",
        f"--result={tmp_path}/results/a-1.json",
    ]
    assert from_dict(BackboneCell, files.read_json(work / "a-1.json")) == TINY

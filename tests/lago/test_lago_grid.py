"""The grid: which cells run, with which commands, and that results are never mixed."""

import dataclasses

import pytest

from jaxrl_guided.lago import cell as cell_module
from jaxrl_guided.lago import grid
from jaxrl_guided.lago.cell import cell_identity, load_inputs, run_cell
from jaxrl_guided.lago.config import ARMS, FULL, OnlineConfig
from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from tests.lago.test_lago_report import cell as record_of
from tests.lago.tiny import expert_episodes, online_config, write_prior

pytestmark = pytest.mark.usefixtures("toy_family")


@pytest.fixture
def prior(tmp_path):
    return write_prior(tmp_path / "prior")


def write(wanted, name, prior, results, success):
    cell = wanted[name]
    record = record_of(cell.arm, cell.level, success, cell.seeds)
    identity = cell_identity(cell, prior)
    cells.write_result(results / f"{name}.json", identity, record | {"config": to_dict(cell)})


def test_guided_cells_depend_on_the_prior_and_others_do_not(tmp_path, prior):
    wanted = {arm: online_config(arm=arm) for arm in ("ppo", "bc", "prior", "lago", "kickstart")}
    before = {cell.id: cell.hash for cell in grid.make_cells(wanted, prior)}
    (prior / "prior.json").write_text((prior / "prior.json").read_text() + "\n")
    after = {cell.id: cell.hash for cell in grid.make_cells(wanted, prior)}
    assert {name for name in wanted if before[name] != after[name]} == {
        "prior",
        "lago",
        "kickstart",
    }
    assert len(set(before.values())) == 5


def test_estimates_grow_with_steps_seeds_and_guidance(prior):
    wanted = FULL.cells()
    minutes = {cell.id: grid.estimate_minutes(cell) for cell in grid.make_cells(wanted, prior)}
    assert minutes["real-goal-lago-0"] > minutes["real-goal-ppo-0"] > minutes["easy-goal-ppo-0"]
    gain = minutes["real-goal-ppo_10x-0"] - 0.5
    assert gain == pytest.approx(10 * (minutes["real-goal-ppo-0"] - 0.5))


def test_processes_get_their_cell_and_everything_it_reads(tmp_path, prior, monkeypatch):
    wanted = {"a-1": online_config(arm="ppo"), "b-2": online_config(arm="lago", seeds=(4,))}
    seen = {}

    def run_grid(listed, command, directory, **options):
        seen["commands"] = {c.id: command(c, directory / f"{c.id}.json") for c in listed}
        seen["options"] = options
        return "report"

    monkeypatch.setattr(cells, "run_grid", run_grid)
    work, results = tmp_path / "work", tmp_path / "results"
    places = (wanted, prior, tmp_path / "data", work, results)
    assert grid.run_in_processes(*places, cores=2, only="b") == "report"
    assert seen["options"] == {
        "cores": 2,
        "only": "b",
        "estimate_minutes": grid.estimate_minutes,
    }
    _, *arguments = seen["commands"]["b-2"]
    assert arguments == [
        "-m",
        "experiments.train_online",
        f"--cell={work}/b-2.json",
        f"--run_dir={work}/b-2",
        f"--out={results}/b-2.json",
        f"--prior={prior}",
        f"--data={tmp_path}/data",
        f"--compile_cache={work}/compiled",
    ]
    described = files.read_json(work / "b-2.json")
    assert from_dict(OnlineConfig, described) == wanted["b-2"]


def test_finished_cells_are_not_run_again(tmp_path, prior, monkeypatch):
    wanted = {name: online_config(arm="ppo", seeds=(i,)) for i, name in enumerate("abc")}
    results = tmp_path / "results"
    results.mkdir()
    write(wanted, "b", prior, results, [0.5])
    ran = []
    monkeypatch.setattr(grid, "run_cell", lambda config, *places: ran.append((config, places)))
    grid.run_here(wanted, prior, tmp_path / "data", tmp_path / "work", results)
    assert ran == [
        (
            wanted[name],
            (prior, tmp_path / "data", tmp_path / "work" / name, results / f"{name}.json"),
        )
        for name in "ac"
    ]


def test_results_of_another_configuration_or_prior_are_refused(tmp_path, prior):
    wanted = {"x": online_config(arm="ppo"), "y": online_config(arm="lago")}
    write(wanted, "x", prior, tmp_path, [0.25, 0.5])
    write(wanted, "y", prior, tmp_path, [0.5, 0.75])
    records = grid.report(wanted, prior, tmp_path, tmp_path)
    assert set(records) == {"goal"}
    assert [row[0] for row in records["goal"]["rows"]] == ["PPO", ARMS["lago"].title]
    assert "LaGO is above PPO" in grid.summary_text(records)
    changed = wanted | {"x": dataclasses.replace(wanted["x"], feature_scale=1.0)}
    with pytest.raises(UserError, match="results are not mixed: move the old ones away"):
        grid.report(changed, prior, tmp_path, tmp_path)
    other = write_prior(tmp_path / "other", history="none")
    with pytest.raises(UserError, match=r"y.json is of configuration .* results are not mixed"):
        grid.report(wanted, other, tmp_path, tmp_path)
    with pytest.raises(UserError, match="holds no finished cell"):
        grid.report(wanted, prior, tmp_path / "nothing", tmp_path)


def test_rewards_get_tables_of_their_own(tmp_path, prior):
    wanted = {reward: online_config(arm="ppo", reward=reward) for reward in ("distance", "goal")}
    for name in wanted:
        write(wanted, name, prior, tmp_path, [0.1, 0.2])
    records = grid.report(wanted, prior, tmp_path, tmp_path)
    assert list(records) == ["distance", "goal"]
    assert records["distance"]["title"] == "LaGO on CLEVR-Robot, reward 'distance'"


def test_a_cell_writes_result_and_summary_and_a_second_call_is_refused(tmp_path, prior):
    expert_episodes().save(tmp_path / "data")
    config = online_config(arm="bc")
    out = tmp_path / "out.json"
    run_cell(config, prior, tmp_path / "data", tmp_path / "run", out)
    record = files.read_json(out)
    assert record["config_hash"] == cells.Cell("x", cell_identity(config, None)).hash
    assert from_dict(OnlineConfig, record["config"]) == config
    summary = files.read_json(tmp_path / "run" / "summary.json")
    assert summary["final"] == record["final"]
    assert "# BC on toy/hard-sort, reward goal" in (tmp_path / "run" / "summary.md").read_text()
    before = out.read_bytes()
    with pytest.raises(UserError, match=f"--out={out} exists"):
        run_cell(config, prior, tmp_path / "data", tmp_path / "run", out)
    assert out.read_bytes() == before


def test_a_run_goes_on_only_with_the_prior_and_data_it_began_with(tmp_path, prior, monkeypatch):
    monkeypatch.setattr(cell_module, "run_arm", lambda *given: pytest.fail("work has begun"))
    (tmp_path / "run").mkdir()
    config = online_config(arm="lago")
    begun = cell_identity(config, prior) | {"data": None}
    files.write_json(tmp_path / "run" / "config.json", begun)
    other = write_prior(tmp_path / "other", history="none")
    with pytest.raises(UserError, match=r"another configuration \(prior: '"):
        run_cell(config, other, None, tmp_path / "run")
    expert_episodes().save(tmp_path / "data")
    cloning = online_config(arm="bc")
    files.write_json(tmp_path / "run" / "config.json", cell_identity(cloning, None) | {"data": "x"})
    with pytest.raises(UserError, match=r"another configuration \(data: 'x'"):
        run_cell(cloning, None, tmp_path / "data", tmp_path / "run")


def test_inputs_are_read_by_the_arms_that_use_them(tmp_path, prior):
    expert_episodes().save(tmp_path / "data")
    for arm, reads in {"ppo": (0, 0), "bc": (0, 1), "lago": (1, 0), "random": (0, 0)}.items():
        found = load_inputs(online_config(arm=arm), prior, tmp_path / "data")
        assert tuple(item is not None for item in found) == reads
    with pytest.raises(UserError, match="arm 'lago' needs a prior, --prior"):
        load_inputs(online_config(arm="lago"), None, tmp_path / "data")
    expert_episodes(env="clevr/real").save(tmp_path / "clevr")
    with pytest.raises(UserError, match=r"dataset .* is of environment 'clevr', but 'toy'"):
        load_inputs(online_config(arm="bc"), None, tmp_path / "clevr")

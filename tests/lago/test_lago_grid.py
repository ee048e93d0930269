"""The grid: which cells run, with which commands, and that results are never mixed."""

import dataclasses
import functools
import os
import signal

import pytest

from jaxrl_guided.lago import cell as cell_module
from jaxrl_guided.lago import grid
from jaxrl_guided.lago.cell import cell_identity, load_inputs, run_cell
from jaxrl_guided.lago.config import ARMS, OnlineConfig
from jaxrl_guided.lago.gate_report import task_cells
from jaxrl_guided.lago.guidance import GuidanceConfig
from jaxrl_guided.lago.presets import FULL, METAWORLD, PRESETS
from jaxrl_guided.lago.sources import Sources, hash_sources, record_sources
from jaxrl_guided.lago.tuning import METAWORLD_TRIALS
from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.config import from_dict, to_dict
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.signals import Stopped
from tests.lago.test_lago_report import cell as record_of
from tests.lago.tiny import expert_episodes, online_config, write_prior

pytestmark = pytest.mark.usefixtures("toy_family")


@pytest.fixture
def prior(tmp_path):
    return write_prior(tmp_path / "prior")


@pytest.fixture
def data(tmp_path):
    expert_episodes().save(tmp_path / "data")
    return tmp_path / "data"


READ = Sources(prior="hash of a prior", data="hash of data")


def write(wanted, name, results, success, sources=READ):
    """What a finished cell leaves, made up."""
    cell = wanted[name]
    record = record_of(cell.arm, cell.level, success, cell.seeds)
    identity = cell_identity(cell, sources)
    cells.write_result(results / f"{name}.json", identity, record | {"config": to_dict(cell)})
    files.write_json(results / "sources.json", to_dict(sources))


def test_a_cell_depends_on_what_its_arm_reads_and_on_nothing_else():
    wanted = {arm: online_config(arm=arm) for arm in ARMS}

    def hashes(**changes):
        sources = dataclasses.replace(READ, **changes)
        return {cell.id: cell.hash for cell in grid.make_cells(wanted, sources)}

    before = hashes()
    assert len(set(before.values())) == len(ARMS)

    def changed(after):
        return {name for name in wanted if before[name] != after[name]}

    # Only what learns under guidance depends on how it is guided.
    other = GuidanceConfig(beta=7.0)
    rebuilt = {arm: online_config(arm=arm, guidance=other) for arm in ARMS}
    after = {cell.id: cell.hash for cell in grid.make_cells(rebuilt, READ)}
    assert changed(after) == {"lago", "kickstart", "gated", "lago_sac"}

    assert changed(hashes(prior="other")) == {"prior", "lago", "kickstart", "gated", "lago_sac"}
    assert changed(hashes(data="other")) == {"bc", "ppo_bc"}
    assert changed(hashes()) == set()


def test_estimates_grow_with_steps_seeds_and_guidance():
    wanted = FULL.cells()
    minutes = {cell.id: grid.estimate_minutes(cell) for cell in grid.make_cells(wanted, READ)}
    five = "0_1_2_3_4"
    ppo, lago = (minutes[f"real-goal-{arm}-{five}"] for arm in ("ppo", "lago"))
    assert lago > ppo > minutes[f"easy-goal-ppo-{five}"]
    longer = minutes["real-goal-ppo_10x-0_1"] - 0.5
    assert longer == pytest.approx(10 * (ppo - 0.5) * 2 / 5)


def test_the_reported_grid_fits_into_a_night_on_two_cores_and_cells_into_half_an_hour():
    minutes = [grid.estimate_minutes(cell) for cell in grid.make_cells(FULL.cells(), READ)]
    assert sum(minutes) / 2 <= 8 * 60
    assert max(minutes) <= 30
    for cells_ in (METAWORLD.cells(), METAWORLD_TRIALS, task_cells()):
        assert max(map(grid.estimate_minutes, grid.make_cells(cells_, READ))) <= 30


@pytest.mark.parametrize("preset", PRESETS)
def test_every_arm_of_every_preset_has_an_estimate_and_says_all_that_decides_it(preset):
    wanted = {arm: PRESETS[preset].settings(arm) for arm in ARMS}
    for cell in grid.make_cells(wanted, READ):
        assert grid.estimate_minutes(cell) > 0
        with_sac = ARMS[cell.id].algorithm == "sac"
        assert {"sac", "soft"} <= set(cell.config["config"]) or not with_sac
        assert ("ppo" in cell.config["config"]) == (ARMS[cell.id].learns and not with_sac)


def test_processes_get_their_cell_and_everything_it_reads(tmp_path, prior, data, monkeypatch):
    wanted = {"a-1": online_config(arm="ppo"), "b-2": online_config(arm="lago", seeds=(4,))}
    seen = {}

    def run_grid(listed, command, directory, **options):
        seen["cells"] = listed
        seen["commands"] = {c.id: command(c, directory / f"{c.id}.json") for c in listed}
        seen["options"] = options
        return "report"

    monkeypatch.setattr(cells, "run_grid", run_grid)
    work, results = tmp_path / "work", tmp_path / "results"
    places = (wanted, prior, data, work, results)
    assert grid.run_in_processes(*places, ("python", "train"), cores=2, only="b") == "report"
    assert seen["cells"] == grid.make_cells(wanted, hash_sources(prior, data))
    assert seen["options"] == {
        "cores": 2,
        "only": "b",
        "estimate_minutes": grid.estimate_minutes,
    }
    assert seen["commands"]["b-2"] == [
        "python",
        "train",
        f"--cell={work}/b-2.json",
        f"--run_dir={work}/b-2",
        f"--compile_cache={work}/compiled",
        f"--prior={prior}",
        f"--data={data}",
        f"--result={results}/b-2.json",
    ]
    described = files.read_json(work / "b-2.json")
    assert from_dict(OnlineConfig, described) == wanted["b-2"]
    assert files.read_json(results / "sources.json") == to_dict(hash_sources(prior, data))


def test_unfinished_cells_that_are_wanted_run_until_the_time_is_over(
    tmp_path, prior, data, monkeypatch
):
    wanted = {name: online_config(arm="ppo", seeds=(i,)) for i, name in enumerate("abcd")}
    results = tmp_path / "results"
    results.mkdir()
    write(wanted, "b", results, [0.5], hash_sources(prior, data))
    ran, now = [], [0.0]

    def run_cell(config, *places_and_stop):
        ran.append((config, places_and_stop[:-1]))
        now[0] += 60

    monkeypatch.setattr(grid, "run_cell", run_cell)
    monkeypatch.setattr(grid.time, "monotonic", lambda: now[0])
    places = (wanted, prior, data, tmp_path / "work", results)
    report = grid.run_here(*places, only="[a-c]")
    assert report == cells.GridReport(done=("a", "c"), skipped=("b",), failed=(), left=())
    assert ran == [
        (wanted[name], (prior, data, tmp_path / "work" / name, results / f"{name}.json"))
        for name in "ac"
    ]
    report = grid.run_here(*places, max_minutes=1.5)
    assert report == cells.GridReport(done=("a", "c"), skipped=("b",), failed=(), left=("d",))
    with pytest.raises(UserError, match="--only=z matches no cell"):
        grid.run_here(*places, only="z")


@pytest.mark.parametrize("arm", ["random", "ppo"])
def test_a_stop_in_any_cell_begins_no_other_one(tmp_path, prior, data, monkeypatch, arm):
    wanted = {name: online_config(arm=arm, seeds=(i,)) for i, name in enumerate("ab")}
    run = grid.run_cell

    def run_cell(*given):
        os.kill(os.getpid(), signal.SIGTERM)
        return run(*given)

    monkeypatch.setattr(grid, "run_cell", run_cell)
    results = tmp_path / "results"
    places = (wanted, prior, data, tmp_path / "work", results)
    if arm == "ppo":  # is left at its next checkpoint
        with pytest.raises(Stopped):
            grid.run_here(*places)
    else:  # is too short to be cut
        assert grid.run_here(*places) == cells.GridReport(("a",), (), (), ("b",), True)
    assert not (results / "b.json").exists()


def test_finished_cells_are_not_joined_by_ones_that_read_something_else(
    tmp_path, prior, data, monkeypatch
):
    monkeypatch.setattr(grid, "run_cell", lambda *given: pytest.fail("a cell has begun"))
    wanted = {name: online_config(arm=arm) for name, arm in (("w", "ppo"), ("x", "lago"))}
    results = tmp_path / "results"
    results.mkdir()
    files.write_json(results / "sources.json", to_dict(READ))
    # Nothing is finished, or what has read nothing: another prior may take over.
    make, reads = functools.partial(grid.make_cells, wanted), hash_sources(prior, data)
    assert record_sources(make, prior, data, results) == make(reads)
    write(wanted, "w", results, [0.5, 0.5])
    assert record_sources(make, prior, data, results) == make(reads)
    assert files.read_json(results / "sources.json") == to_dict(reads)
    write(wanted, "x", results, [0.5, 0.5])
    for run in (grid.run_here, lambda *given: grid.run_in_processes(*given, ("train",))):
        with pytest.raises(
            UserError, match=r"sources.json says .* x have read something else than"
        ):
            run(wanted, prior, data, tmp_path / "work", results)
    assert files.read_json(results / "sources.json") == to_dict(READ)
    assert not (tmp_path / "work").exists()


def test_tables_need_the_results_alone(tmp_path):
    wanted = {
        name: online_config(arm=arm) for name, arm in zip("xyz", ("ppo", "lago", "bc"), strict=True)
    }
    write(wanted, "x", tmp_path, [0.25, 0.5])
    write(wanted, "y", tmp_path, [0.5, 0.75])
    records = grid.report(wanted, tmp_path, tmp_path)
    assert set(records) == {"goal"}
    assert [row[0] for row in records["goal"]["rows"]] == ["PPO", ARMS["lago"].title]
    (answer, *_) = records["goal"]["answers"]
    assert answer.startswith("LaGO is not judged against PPO on ")
    assert answer.endswith("+25.0 [+25.0, +25.0] points, 2 seeds, fewer than 5.")
    assert "Unfinished: 4 of 6 planned runs" in records["goal"]["first_line"]
    changed = wanted | {"x": dataclasses.replace(wanted["x"], feature_scale=2.0)}
    with pytest.raises(UserError, match="results are not mixed: move the old ones away"):
        grid.report(changed, tmp_path, tmp_path)
    for make in (lambda folder: grid.report(wanted, folder, folder), grid.report_trials):
        with pytest.raises(UserError, match="nothing holds no finished cell"):
            make(*([wanted] if make is grid.report_trials else []), tmp_path / "nothing")
    files.write_json(tmp_path / "sources.json", {"prior": "other", "data": READ.data})
    with pytest.raises(UserError, match=r"y.json is of configuration .* results are not mixed"):
        grid.report(wanted, tmp_path, tmp_path)


def test_rewards_get_tables_of_their_own(tmp_path):
    wanted = {reward: online_config(arm="ppo", reward=reward) for reward in ("distance", "goal")}
    for name in wanted:
        write(wanted, name, tmp_path, [0.1, 0.2])
    records = grid.report(wanted, tmp_path, tmp_path)
    assert list(records) == ["distance", "goal"]
    assert records["distance"]["title"] == "LaGO on CLEVR-Robot, reward 'distance'"


def test_a_cell_writes_result_and_summary_and_a_second_call_is_refused(tmp_path, data):
    prior = tmp_path / "no prior is read"
    config = online_config(arm="bc")
    out = tmp_path / "out.json"
    run_cell(config, prior, data, tmp_path / "run", out)
    record = files.read_json(out)
    assert (
        record["config_hash"]
        == cells.Cell("x", cell_identity(config, hash_sources(None, data))).hash
    )
    assert from_dict(OnlineConfig, record["config"]) == config
    summary = files.read_json(tmp_path / "run" / "summary.json")
    assert summary["final"] == record["final"]
    assert "# BC on toy/hard-sort, reward goal" in (tmp_path / "run" / "summary.md").read_text()
    before = out.read_bytes()
    with pytest.raises(UserError, match=f"--result={out} exists"):
        run_cell(config, prior, data, tmp_path / "run", out)
    assert out.read_bytes() == before


def test_a_run_goes_on_only_with_the_prior_and_data_it_began_with(
    tmp_path, prior, data, monkeypatch
):
    monkeypatch.setattr(cell_module, "run_arm", lambda *given: pytest.fail("work has begun"))
    (tmp_path / "run").mkdir()
    config = online_config(arm="lago")
    begun = cell_identity(config, hash_sources(prior, None))
    files.write_json(tmp_path / "run" / "config.json", begun)
    other = write_prior(tmp_path / "other", history="none")
    with pytest.raises(UserError, match=r"another configuration \(prior: '"):
        run_cell(config, other, None, tmp_path / "run")
    cloning = online_config(arm="bc")
    files.write_json(tmp_path / "run" / "config.json", cell_identity(cloning, Sources(data="x")))
    with pytest.raises(UserError, match=r"another configuration \(data: 'x'"):
        run_cell(cloning, None, data, tmp_path / "run")


def test_inputs_are_read_by_the_arms_that_use_them(tmp_path, prior):
    expert_episodes().save(tmp_path / "data")
    for arm, reads in {"ppo": (0, 0), "bc": (0, 1), "lago": (1, 0), "random": (0, 0)}.items():
        found = load_inputs(online_config(arm=arm), prior, tmp_path / "data")
        assert tuple(item is not None for item in found) == reads
    with pytest.raises(UserError, match="arm 'lago' needs a prior, --prior"):
        load_inputs(online_config(arm="lago"), None, tmp_path / "data")
    expert_episodes(env="clevr/real").save(tmp_path / "clevr")
    with pytest.raises(UserError, match=r"holds episodes of 'clevr/real', but 'toy/…'"):
        load_inputs(online_config(arm="bc"), None, tmp_path / "clevr")

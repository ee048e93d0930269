"""The scripts as a user calls them: help, the whole chain, and being killed at any moment."""

import dataclasses
import json
import random
import signal
import subprocess
import time

import pytest
from PIL import Image

from jaxrl_guided.envs.metaworld.tasks import CATEGORIES
from jaxrl_guided.lago.cell import cell_identity
from jaxrl_guided.lago.config import ARMS
from jaxrl_guided.lago.presets import FULL, METAWORLD_SMOKE, PRESETS, SMOKE
from jaxrl_guided.lago.sources import Sources
from jaxrl_guided.runtime import cells, files
from jaxrl_guided.runtime.config import to_dict
from tests.experiments import scripts
from tests.lago.test_lago_report import cell as cell_record
from tests.lago.tiny import expert_episodes, write_prior


@pytest.mark.parametrize("name", scripts.NAMES)
def test_help_says_what_it_is_for_and_lists_its_flags(name, tmp_path):
    result = scripts.run(tmp_path, name, "--help", check=False)
    assert result.stderr == ""
    first = result.stdout.splitlines()[0]
    assert (scripts.REPOSITORY / "experiments" / f"{name}.py").read_text().startswith(f'"""{first}')
    uses_run_dir = name in scripts.WITH_RUN_DIR
    assert ("--run_dir" in result.stdout) == uses_run_dir
    if name in ("collect", "train_prior", "train_online", "evaluate", "lago"):
        assert f"--preset: <{'|'.join(PRESETS)}>:" in " ".join(result.stdout.split())
        assert "--config." in result.stdout
    assert not list(tmp_path.iterdir())


HORIZON = ["--config.horizon=6"]
EVALUATION = ["--config.eval.episodes=8", "--config.eval.curve_episodes=4"]
PPO = [
    "--config.ppo.total_steps=64",
    "--config.ppo.num_envs=8",
    "--config.ppo.rollout_steps=4",
    "--config.ppo.minibatches=2",
    "--config.ppo.epochs=1",
]
CLONING = ["--config.bc.episodes=50", "--config.bc.updates=20"]
ONLINE = ["--preset=smoke", *HORIZON, *PPO, *EVALUATION, *CLONING]


def saved(path):
    """A cell's result without what may differ between two runs of it."""
    record = json.loads(path.read_text())
    return {k: v for k, v in record.items() if k not in ("minutes", "git")}


@pytest.mark.slow
def test_every_stage_reads_what_the_one_before_wrote(tmp_path):
    collected = scripts.run(
        tmp_path, "collect", "--preset=smoke", "--out=data", "--horizon=6", "--config.episodes=80"
    )
    assert "clevr/real: 80 episodes" in collected.stdout
    small = ["max_updates=4", "eval_every=2", "batch_rows=2", "row_steps=8", "eval_rows=4"]
    sft = [f"--config.sft.{setting}" for setting in small]
    places = ["--data=data", "--out=prior", "--run_dir=prior_run"]
    trained = scripts.run(tmp_path, "train_prior", "--preset=smoke", *places, *sft)
    assert "prior in prior: held-out nll" in trained.stdout
    assert "after 4 updates" in trained.stdout
    assert files.read_json(tmp_path / "prior_run" / "summary.json")["updates"] == 4

    for arm in ("ppo", "lago", "bc"):
        places = [f"--run_dir=runs/{arm}", "--prior=prior", "--data=data"]
        online = scripts.run(tmp_path, "train_online", *ONLINE, f"--config.arm={arm}", *places)
        assert f"# {ARMS[arm].title} on clevr/real" in online.stdout
        assert (tmp_path / "runs" / arm / "curve.png").exists() == ARMS[arm].learns
        evaluated = [f"--run=runs/{arm}", "--episodes=8", f"--out={arm}_again.json"]
        assert "sampled_success" in scripts.run(tmp_path, "evaluate", *evaluated).stdout
        final = files.read_json(tmp_path / "runs" / arm / "summary.json")["final"]
        assert files.read_json(tmp_path / f"{arm}_again.json") == final
    elsewhere = ["--levels=rephrase,hard-sort", "--episodes=4", "--out=elsewhere.json"]
    scripts.run(tmp_path, "evaluate", "--run=runs/lago", *elsewhere)
    assert set(files.read_json(tmp_path / "elsewhere.json")) == {"rephrase", "hard-sort"}
    acting = ["--prior=prior", "--preset=smoke", *HORIZON, "--episodes=4"]
    assert "clevr/real" in scripts.run(tmp_path, "evaluate", *acting).stdout

    results = tmp_path / "benchmarks" / "results"
    name = "real-goal-random-0_1_2_3_4_5_6_7_8_9"
    (results / "cells" / "lago_clevr").mkdir(parents=True)
    cell = FULL.cells()[name]
    record = cell_record("random", "real", [0.25] * 10, cell.seeds, steps=0)
    record["config"] = to_dict(cell)
    target = results / "cells" / "lago_clevr" / f"{name}.json"
    sources = Sources("hash of a prior", "hash of data")
    cells.write_result(target, cell_identity(cell, sources), record)
    files.write_json(target.parent / "sources.json", to_dict(sources))
    table = scripts.run(tmp_path, "grid", "lago_clevr", "--table_only")
    assert "| uniform random | 25.0 [25.0, 25.0] | 0 | 0 | 0–10 of 10 |" in table.stdout
    assert files.read_json(results / "lago_clevr.json")["rows"][0][0] == "uniform random"

    scripts.run(tmp_path, "render", "--env=clevr/rephrase", "--run=runs/lago", "--out=acts")
    assert (tmp_path / "acts" / "episode.png").exists()
    scripts.run(tmp_path, "render", "--env=clevr/easy", "--out=pictures")
    with Image.open(tmp_path / "pictures" / "episode.gif") as picture:
        assert picture.n_frames == 2


@pytest.mark.slow
def test_the_main_job_on_meta_world(tmp_path):
    """Everything once; its family, and its preset, may be said in either way, if they agree."""
    where = ("--preset=metaworld_smoke", "--run_dir=runs/x")
    text = scripts.run(tmp_path, "lago", "--env=metaworld", *where).stdout
    assert "## LaGO on Meta-World, reward 'goal'" in text
    record = files.read_json(tmp_path / "runs/x/summary.json")["goal"]
    assert [row[0] for row in record["rows"]] == [ARMS[x].title for x in METAWORLD_SMOKE.arms]
    parts = [row[0] for row in record["tables"][1]["rows"]]
    assert parts == [f"hard-{task}" for task in CATEGORIES["hard"]]
    evaluated = ("--run=runs/x/cells/hard-goal-lago_sac-0", "--levels=hard-soccer,reach")
    assert "metaworld/reach" in scripts.run(tmp_path, "evaluate", *evaluated, "--episodes=2").stdout
    drawn = ("--run=runs/x/cells/hard-goal-lago-0", "--out=pictures", "--env=metaworld/hard-soccer")
    scripts.run(tmp_path, "render", *drawn)
    with Image.open(tmp_path / "pictures" / "episode.gif") as picture:
        assert picture.n_frames > 10
    acting = ("--preset=metaworld_smoke", "--prior=runs/x/prior", "--levels=hard-hammer")
    scripts.run(tmp_path, "evaluate", *acting, "--episodes=2")


def test_another_family_than_that_of_the_preset_is_refused(capsys):
    assert scripts.call("lago", "--env=metaworld", "--preset=smoke") == 2
    assert (
        "--env=metaworld differs from --preset=smoke, which is of clevr" in capsys.readouterr().err
    )


@pytest.mark.slow
def test_the_main_job_is_stopped_between_cells_and_goes_on(tmp_path):
    arguments = ["lago", "--preset=smoke", "--run_dir=runs/x", "--only=random|goal-bc"]
    arguments += ["--config.data.episodes=200", "--config.online.bc.episodes=200"]
    process = subprocess.Popen(
        scripts.command(*arguments),
        cwd=tmp_path,
        env=scripts.environment(tmp_path / "compiled"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    begun = tmp_path / "runs/x/cells"
    while process.poll() is None and not (begun.is_dir() and any(begun.iterdir())):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped; the same command goes on with --run_dir=runs/x"
    results = tmp_path / "runs/x/results"
    assert sorted(path.name for path in results.glob("real*")) == ["real-goal-random-0_1.json"]
    assert "uniform random" in scripts.run(tmp_path, *arguments).stdout
    assert len(list(results.glob("real*"))) == 2


@pytest.mark.slow
def test_a_failed_cell_fails_the_main_job_and_leaves_its_log(tmp_path):
    arguments = ["lago", "--preset=smoke", "--run_dir=runs/x", "--config.processes=true"]
    arguments += ["--config.data.episodes=200", "--config.online.bc.episodes=200"]
    scripts.run(tmp_path, *arguments, "--only=random")
    (tmp_path / "runs/x/cells/real-goal-bc-0_1").write_text("no directory")
    process = scripts.run(tmp_path, *arguments, "--only=random|goal-bc", check=False)
    assert process.returncode == 1, process.stderr
    assert "failed: real-goal-bc-0_1 (see runs/x/results/real-goal-bc-0_1.log)" in process.stderr
    log = tmp_path / "runs/x/results/real-goal-bc-0_1.log"
    assert "real-goal-bc-0_1 is a file; name a directory" in log.read_text()
    assert not (tmp_path / "runs/x/results/real-goal-bc-0_1.json").exists()


@pytest.fixture(scope="module")
def cell(tmp_path_factory):
    """A directory with a guided cell of many checkpoints, and its uninterrupted result."""
    root = tmp_path_factory.mktemp("cell")
    write_prior(root / "prior", horizon=6)
    online = SMOKE.online
    settings = dataclasses.replace(
        online,
        arm="lago",
        horizon=6,
        ppo=dataclasses.replace(
            online.ppo, total_steps=32 * 20, num_envs=8, rollout_steps=4, minibatches=2
        ),
        eval=dataclasses.replace(online.eval, episodes=8, curve_points=20, curve_episodes=4),
    )
    files.write_json(root / "cell.json", to_dict(settings))
    scripts.run(root, "train_online", *arguments("whole"))
    return root


def arguments(name):
    return ["--cell=cell.json", "--prior=prior", f"--run_dir={name}", f"--result={name}.json"]


def start(root, name):
    return subprocess.Popen(
        scripts.command("train_online", *arguments(name)),
        cwd=root,
        env=scripts.environment(root / "compiled"),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def iterations(run):
    """How many a run has written down."""
    path = run / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0


@pytest.mark.slow
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(cell):
    moments = random.Random(0)
    for iteration in (3, 9, 15):
        process = start(cell, "killed")
        while process.poll() is None and iterations(cell / "killed") < iteration:
            time.sleep(0.01)
        time.sleep(moments.uniform(0, 0.1))  # amid the work or a save
        process.kill()
        process.communicate()
        assert not (cell / "killed.json").exists()
    scripts.run(cell, "train_online", *arguments("killed"))
    assert saved(cell / "killed.json") == saved(cell / "whole.json")
    steps = [
        json.loads(line)["step"] for line in (cell / "killed" / "metrics.jsonl").open().readlines()
    ]
    assert steps == sorted(set(steps))
    assert steps[-1] == 32 * 20


@pytest.mark.slow
def test_a_polite_stop_saves_and_the_same_command_goes_on(cell):
    process = start(cell, "stopped")
    checkpoints = cell / "stopped" / "checkpoints"
    while process.poll() is None and not (checkpoints.is_dir() and any(checkpoints.iterdir())):
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "stopped; the same command goes on with --run_dir=stopped"
    assert not (cell / "stopped.json").exists()
    scripts.run(cell, "train_online", *arguments("stopped"))
    assert saved(cell / "stopped.json") == saved(cell / "whole.json")


def test_a_grid_of_which_nothing_is_finished_has_no_table(tmp_path, monkeypatch, capsys):
    expert_episodes(env="clevr/real").save(tmp_path / "data")
    monkeypatch.chdir(tmp_path)
    assert scripts.call("grid", "lago_backbones", "--data=data", "--max_minutes=0") == 0
    assert capsys.readouterr().out == "0 done, 0 failed, 21 left\n"
    assert not list(tmp_path.glob("benchmarks/results/*.json"))


@pytest.mark.parametrize("arm", ["ppo", "ppo_same", "lago"])
def test_a_preset_gives_each_arm_its_settings(tmp_path, monkeypatch, arm):
    class Seen(Exception):
        pass

    def run_cell(settings, *places):
        raise Seen(settings)

    monkeypatch.setattr("jaxrl_guided.lago.cell.run_cell", run_cell)
    monkeypatch.chdir(tmp_path)
    changes = [f"--config.arm={arm}", "--config.feature_scale=3", "--config.ppo.epochs=2"]
    with pytest.raises(Seen) as seen:
        scripts.call("train_online", "--preset=full", *changes)
    (settings,) = seen.value.args
    expected = FULL.settings(arm)
    ppo = dataclasses.replace(expected.ppo, epochs=2)
    assert settings == dataclasses.replace(expected, feature_scale=3.0, ppo=ppo)

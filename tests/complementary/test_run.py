"""A whole run: the same if it was stopped, its arms, what it refuses before it begins."""

import contextlib
import dataclasses
import json

import jax
import numpy as np
import pytest

from jaxrl_guided.complementary.actor import ActorConfig
from jaxrl_guided.complementary.arms import ARMS, settled
from jaxrl_guided.complementary.bank import BANK_FILE, Bank
from jaxrl_guided.complementary.job import run_complementary
from jaxrl_guided.complementary.preparation import prepare
from jaxrl_guided.complementary.presets import NANO, PRESETS, SMOKE, on_task
from jaxrl_guided.complementary.run_config import ComplementaryConfig, ModelConfig
from jaxrl_guided.complementary.training import ComplementaryRun
from jaxrl_guided.learners.language.objectives import GRPOConfig
from jaxrl_guided.learners.language.run_config import JudgeConfig, WarmUpConfig
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.metrics import read_metrics
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped


class StopAfter(StopFlag):
    """Asks for a stop at the n-th look."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    @property
    def requested(self):
        self.looks -= 1
        return self.looks < 0


def run_in(path, config, stop=None):
    with (
        contextlib.closing(ComplementaryRun(prepare(config))) as work,
        open_run(path, "test", config) as run,
    ):
        return run_complementary(work, run, stop or StopFlag())


def without_times(rows):
    return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows]


def models(path):
    return [(path / name / "model.safetensors").read_bytes() for name in ("actor", "extractor")]


@pytest.mark.slow
def test_a_stopped_run_goes_on_exactly(tmp_path):
    whole = run_in(tmp_path / "whole", SMOKE)
    cut = tmp_path / "cut"
    for looks in (20, 60):  # in the warm-up, and in the middle of a step
        with pytest.raises(Stopped, match="the same command"):
            run_in(cut, SMOKE, StopAfter(looks))
    rest = run_in(cut, SMOKE)
    assert {**whole, "minutes": 0} == {**rest, "minutes": 0}
    assert models(tmp_path / "whole") == models(cut)
    rows = [without_times(read_metrics(tmp_path / name)) for name in ("whole", "cut")]
    assert rows[0] == rows[1]
    entries = []
    for name in ("whole", "cut"):
        with Bank(tmp_path / name / BANK_FILE) as bank:
            entries.append([(entry.title, entry.content) for entry in bank.entries()])
    assert entries[0] == entries[1]
    for name in ("summary.md", "entries.md", "curve.png", "training.png", "episodes/000004.jsonl"):
        assert (cut / name).exists()
    shown = [json.loads(x) for x in (cut / "episodes/000004.jsonl").read_text().splitlines()]
    assert {line["experience"] for line in shown} == {"with", "without"}
    assert whole["curve"]["steps"] == [0, 2, 4]
    assert whole["operations"]["distilled"] == 4 * 8


def test_a_warm_up_is_kept_for_who_begins_alike(tmp_path):
    tiny = WarmUpConfig(updates=2, episodes=8, batch=2)
    config = dataclasses.replace(
        SMOKE,
        actor=dataclasses.replace(SMOKE.actor, warm_up=tiny),
        extractor_model=dataclasses.replace(SMOKE.extractor_model, warm_up=tiny),
    )

    def warmed(arm, cache=None, seed=0):
        job = prepare(dataclasses.replace(config, arm=arm, seed=seed))
        with contextlib.closing(ComplementaryRun(job, warm_cache=cache)) as work:
            return work.warm_up()

    alone = warmed("complementary")
    first, second = warmed("baseline", tmp_path), warmed("complementary", tmp_path)
    assert len([*tmp_path.iterdir()]) == 2  # an actor that both share, and an extractor
    again = warmed("complementary", tmp_path)
    for name, state in alone.items():
        for found in (second[name], again[name]):
            assert jax.tree.all(jax.tree.map(np.array_equal, state, found))
    assert jax.tree.all(jax.tree.map(np.array_equal, alone["actor"], first["actor"]))
    warmed("baseline", tmp_path, seed=1)
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.slow
@pytest.mark.parametrize("arm", ["baseline", "exp_only", "offline_bank"])
def test_arms_leave_out_what_they_should(tmp_path, arm):
    short = dataclasses.replace(SMOKE, arm=arm, steps=2, judge=JudgeConfig(episodes=4, every=2))
    job = prepare(short)
    with contextlib.closing(ComplementaryRun(job)) as work, open_run(tmp_path, "x", short) as run:
        result = run_complementary(work, run, StopFlag())
    assert (job.extractor is None) == (arm == "baseline")
    assert (tmp_path / BANK_FILE).exists() == (arm != "baseline")
    assert ("with" in result["final"]) == (arm != "baseline")
    learned = any("loss" in row for row in read_metrics(tmp_path))
    assert learned == (arm != "exp_only")
    if arm == "offline_bank":
        assert result["operations"]["distilled"] == 8  # of the first step alone


def test_all_arms_of_a_seed_start_from_the_same_models():
    tiny = dataclasses.replace(
        SMOKE,
        actor=dataclasses.replace(
            SMOKE.actor, warm_up=WarmUpConfig(updates=1, episodes=16, batch=2)
        ),
    )
    jobs = [
        prepare(dataclasses.replace(tiny, arm=arm))
        for arm in ("baseline", "no_ask", "complementary")
    ]
    for job in jobs[1:]:
        for mine, theirs in zip(job.actor.samples, jobs[0].actor.samples, strict=True):
            np.testing.assert_array_equal(mine.tokens, theirs.tokens)
        same = jax.tree.map(
            np.array_equal, job.actor.backbone.params, jobs[0].actor.backbone.params
        )
        assert jax.tree.all(same)
    one, two = (job.extractor for job in jobs[1:])
    for mine, theirs in zip(one.samples, two.samples, strict=True):
        np.testing.assert_array_equal(mine.tokens, theirs.tokens)
    parts = [set(part) for part in ([*jobs[0].seeds.judged[:99]], [*jobs[0].seeds.shown[:99]])]
    assert not parts[0] & parts[1]


TWO_ROOMS = dataclasses.replace(
    SMOKE,
    task="minihack/Room-5x5+minihack/Room-Random-5x5",
    options=("compact=true", "max_turns=4"),
)


def test_a_mix_is_taught_and_divided_by_tasks():
    tiny = dataclasses.replace(
        TWO_ROOMS,
        actor=dataclasses.replace(
            SMOKE.actor, warm_up=WarmUpConfig(updates=1, episodes=16, batch=2)
        ),
    )
    job = prepare(tiny)
    assert len(job.actor.samples) == 16
    assert [job.seeds.part(seed) for seed in job.seeds.judged[:3]] == [
        *("Room-5x5", "Room-Random-5x5", "Room-5x5")
    ]
    with pytest.raises(UserError, match=r"judge\.episodes must be a multiple of 2, the tasks"):
        prepare(dataclasses.replace(tiny, judge=JudgeConfig(episodes=7, every=2)))
    one = dataclasses.replace(tiny.acting, instances=1)
    with pytest.raises(UserError, match=r"acting\.instances must be a multiple of 2"):
        prepare(dataclasses.replace(tiny, acting=one))


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_mix_is_judged_by_tasks(tmp_path, workers):
    result = run_in(tmp_path, dataclasses.replace(TWO_ROOMS, steps=2, workers=workers))
    curve = result["curve"]
    for name in ("with", "without"):
        parts = [curve[f"{name}_{label}"] for label in ("Room-5x5", "Room-Random-5x5")]
        np.testing.assert_allclose(curve[name], np.mean(parts, axis=0))
    rows = [row for row in read_metrics(tmp_path) if "success" in row]
    for row in rows:
        both = row["success_Room-5x5"] + row["success_Room-Random-5x5"]
        assert row["success"] == pytest.approx(both / 2)
    assert "Room-Random-5x5" in (tmp_path / "summary.md").read_text()


def test_a_preset_has_options_for_each_task():
    mixed = on_task("nano", "mix6")
    assert mixed.acting == PRESETS["nano_mix"].acting
    assert "webshop.products=20" in mixed.options
    assert "KeyRoom-Dark-S5.compact=true" in mixed.options
    assert on_task("nano", "webshop").options == ("compact=true", *mixed_options("webshop"))
    for name in ("nano", "smollm2", "qwen", "smoke"):
        assert on_task(name, NANO.task) == PRESETS[name]
    assert on_task("qwen", "mix3").options == ("Room-Ultimate-5x5.max_turns=30",)


def mixed_options(label):
    given = [o.removeprefix(f"{label}.") for o in PRESETS["nano_mix"].options if label in o]
    return [option for option in given if option != "compact=true"]


def test_every_arm_changes_what_its_title_says():
    changed = {name: settled(dataclasses.replace(NANO, arm=name)) for name in ARMS}
    assert changed["complementary"] == NANO
    assert not changed["baseline"].experience
    assert changed["baseline"].acting.guided == changed["baseline"].acting.questions == 0
    assert not changed["static_online"].loop.train_extractor
    assert not changed["exp_only"].loop.train_actor
    assert changed["offline_bank"].loop.fixed
    assert changed["offline_bank"].acting.warm_up == NANO.offline_steps
    assert changed["no_merge"].extractor.merge is None
    assert changed["no_ask"].acting.questions == 0
    assert changed["all_guided"].acting.guided == NANO.acting.rollouts
    assert not changed["cross_half"].loop.split
    assert changed["placebo_other"].acting.placebo == "other"
    assert changed["placebo_shuffled"].acting.placebo == "shuffled"
    wide = changed["large_extractor"].extractor_model.scratch
    assert wide.hidden_size == 2 * NANO.extractor_model.scratch.hidden_size


def test_presets_are_within_the_limits_of_the_reference():
    nano = PRESETS["nano"]
    assert nano.acting.instances * nano.acting.rollouts == 32
    assert nano.steps == 150
    assert PRESETS["qwen"].actor.backbone == "qwen2.5_7b"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arm": "complementry"}, "did you mean complementary"),
        ({"task": "minihack/MazeWalk-9x9"}, "nobody teaches 'minihack/MazeWalk-9x9'"),
        ({"task": "minihack/Room-5"}, "unknown 'minihack/Room-5'"),
        ({"options": ("size=3",)}, "options: minihack/Room-Ultimate-5x5 has no option size"),
        ({"embedder": "hashed-none"}, "give the size of its vectors"),
        (
            {"actor": dataclasses.replace(SMOKE.actor, max_length=64)},
            "actor.max_length must be at least",
        ),
        (
            {"extractor_model": dataclasses.replace(SMOKE.extractor_model, max_length=96)},
            "extractor_model.max_length must be at least",
        ),
        (
            {
                "actor": ModelConfig(
                    "qwen9", random_weights=True, warm_up=WarmUpConfig(updates=0, episodes=8)
                )
            },
            "actor.backbone must be one of",
        ),
    ],
)
def test_what_cannot_work_is_said_before(changes, message):
    with pytest.raises(UserError, match=message):
        prepare(dataclasses.replace(SMOKE, **changes))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ModelConfig(finetune="lora"), "finetune must be full with backbone scratch"),
        (lambda: ModelConfig(warm_up=WarmUpConfig(updates=0)), "knows no words"),
        (lambda: ModelConfig(random_weights=True), "random_weights must be false"),
        (lambda: ModelConfig(max_tokens=512), "max_length must be above max_tokens"),
        (lambda: ComplementaryConfig(experience=False), "must be 0 without experience"),
        (lambda: ComplementaryConfig(steps=30), "steps must be above acting.warm_up 5"),
        (lambda: ComplementaryConfig(grpo=GRPOConfig(kl_weight=0.1)), "grpo.kl_weight must be 0"),
        (lambda: ComplementaryConfig(seed=-1), "seed must be at least 0"),
        (lambda: ActorConfig(guided=1), "no half of one rollout"),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

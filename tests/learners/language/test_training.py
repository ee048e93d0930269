"""Rounds of play and learning: what they learn from, and that a stopped run goes on exactly."""

import contextlib
import dataclasses
import json
import os
import shutil
import subprocess
import sys

import jax
import numpy as np
import pytest
import safetensors.numpy

from jaxrl_guided.backbones.load import load_backbone
from jaxrl_guided.backbones.lora import LoraConfig
from jaxrl_guided.backbones.sharding import make_model_mesh
from jaxrl_guided.envs.text.route import Route
from jaxrl_guided.learners.language.job import run_language
from jaxrl_guided.learners.language.objectives import GRPOConfig
from jaxrl_guided.learners.language.preparation import prepare
from jaxrl_guided.learners.language.presets import SMOKE
from jaxrl_guided.learners.language.rollouts import Episode, Start, outcomes_of
from jaxrl_guided.learners.language.run_config import (
    ImproveConfig,
    JudgeConfig,
    LanguageRunConfig,
    ScratchConfig,
    WarmUpConfig,
    lengths_up_to,
)
from jaxrl_guided.learners.language.training import LanguageRun, samples_of
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.metrics import read_metrics
from jaxrl_guided.runtime.rundir import open_run
from jaxrl_guided.runtime.signals import StopFlag, Stopped


def episode(reward, group, part=0):
    return Episode(
        Start(0, draws=0, temperature=0.7, group=group, part=part),
        "",
        (),
        np.array([1, 2]),
        np.array([False, True]),
        np.array([0.0, -1.0], np.float32),
        {"task": reward, "late": -0.5},
        False,
        1,
        0,
        "terminated",
        0,
    )


REWARDS = np.array([1, 0, 0, 0, 1, 0, 1, 1], np.float32)  # group 0 is the first half
EPISODES = [episode(reward, i // 4, i % 2) for i, reward in enumerate(REWARDS)]


def advantages_of(**changes):
    config = ImproveConfig(instances=2, rollouts=4, **changes)
    samples, flat = samples_of(config, EPISODES, np.random.default_rng(0))
    assert [sample.part for sample in samples] == [0, 1] * 4
    assert {sample.temperature for sample in samples} == {0.7}
    return np.array([sample.advantage for sample in samples]), flat


def test_returns_are_compared_as_the_settings_say():
    """Parts of a group are normalised by themselves: of four halves two have no variance."""
    rewards = REWARDS - 0.5
    halves = np.array([1, 0, -1, 0, 0, -1, 0, 1])
    found, flat = advantages_of()
    np.testing.assert_allclose(found, halves)
    assert flat == 0.5
    np.testing.assert_allclose(advantages_of(norm="mean")[0], halves / 2)
    samples, flat = samples_of(ImproveConfig(), EPISODES, np.random.default_rng(0), split=False)
    across = np.array([3, -1, -1, -1, 1, -3, 1, 1]) / 3**0.5
    np.testing.assert_allclose([sample.advantage for sample in samples], across, rtol=1e-6)
    assert flat == 0
    np.testing.assert_allclose(advantages_of(compare="batch")[0], rewards - rewards.mean())
    np.testing.assert_allclose(advantages_of(compare="none")[0], rewards)


def test_shuffled_rewards_are_the_same_rewards_of_others():
    found, _ = advantages_of(compare="none", shuffle_rewards=True)
    assert sorted(found) == sorted(REWARDS - 0.5)
    assert not np.array_equal(found, REWARDS - 0.5)


def test_lengths_grow_by_half_up_to_the_longest():
    assert lengths_up_to(256) == (64, 96, 128, 192, 256)
    assert lengths_up_to(300) == (64, 96, 128, 192, 256, 300)
    assert lengths_up_to(40) == (40,)


class StopAfter(StopFlag):
    """Asks for a stop at the n-th look."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    @property
    def requested(self):
        self.looks -= 1
        return self.looks < 0


def run_in(path, config, stop=None, job=None):
    with (
        contextlib.closing(LanguageRun(job or prepare(config))) as work,
        open_run(path, "test", config) as run,
    ):
        return run_language(work, run, stop or StopFlag())


def without_times(rows):
    return [
        {k: v for k, v in row.items() if not k.endswith("seconds") and k != "time"} for row in rows
    ]


@pytest.mark.slow
def test_a_stopped_run_goes_on_exactly(tmp_path):
    whole = run_in(tmp_path / "whole", SMOKE)
    for looks in (2, 3):  # within the warm-up; within the second part
        with pytest.raises(Stopped, match="the same command goes on with --run_dir="):
            run_in(tmp_path / "cut", SMOKE, StopAfter(looks))
    rest = run_in(tmp_path / "cut", SMOKE)
    assert {**whole, "minutes": 0} == {**rest, "minutes": 0}
    rows = [without_times(read_metrics(tmp_path / name)) for name in ("whole", "cut")]
    assert rows[0] == rows[1]
    models = [
        (tmp_path / name / "model" / "model.safetensors").read_bytes() for name in ("whole", "cut")
    ]
    assert models[0] == models[1]
    for name in ("summary.json", "summary.md", "curve.png", "config.json", "versions.json"):
        assert (tmp_path / "whole" / name).exists()
    assert whole["curve"]["rounds"] == [0, 2, 3]
    assert whole["episodes"] == 3 * 16
    names = [sorted((tmp_path / name / "episodes").iterdir()) for name in ("whole", "cut")]
    assert [path.name for path in names[0]] == ["000004.jsonl", "000006.jsonl", "000007.jsonl"]
    assert [path.read_text() for path in names[0]] == [path.read_text() for path in names[1]]
    shown = [json.loads(line) for line in names[0][0].read_text().splitlines()]
    assert [line["judged"] for line in shown] == ["success"] * 8 + ["success_greedy"] * 8
    assert [m["role"] for m in shown[0]["messages"][:3]] == ["system", "user", "assistant"]

    again = load_backbone(str(tmp_path / "whole" / "model"))
    assert again.template is not None
    job = prepare(SMOKE)
    assert again.config == job.backbone.config
    assert again.tokenizer.backend.to_str() == job.backbone.tokenizer.backend.to_str()


WARM = dataclasses.replace(SMOKE, improve=dataclasses.replace(SMOKE.improve, steps=0))


def test_a_run_that_has_diverged_ends(tmp_path):
    hot = dataclasses.replace(WARM, warm_up=dataclasses.replace(SMOKE.warm_up, learning_rate=1e30))
    with pytest.raises(
        FloatingPointError, match=r"at round 4 .* no gradient of the last 3 rounds was finite"
    ):
        run_in(tmp_path / "run", hot)
    assert not (tmp_path / "run" / "model").exists()
    assert len(read_metrics(tmp_path / "run")) == 4


def test_a_run_does_not_go_on_with_another_backbone_nor_without_its_directory(tmp_path):
    job, path = prepare(WARM), tmp_path / "run"
    with pytest.raises(Stopped):
        run_in(path, WARM, StopAfter(1), job)
    params = jax.tree.map(lambda x: x * 1.5, job.backbone.params)
    other = dataclasses.replace(job, backbone=dataclasses.replace(job.backbone, params=params))
    with pytest.raises(UserError, match="another backbone: weights of scratch have changed"):
        run_in(path, WARM, job=other)

    class Removing(StopFlag):
        @property
        def requested(self):
            shutil.rmtree(path, ignore_errors=True)
            return True

    with pytest.raises(UserError, match="removed while the run was working"):
        run_in(path, WARM, Removing(), job)
    assert not (path / "checkpoints").exists()


def test_judging_can_be_stopped_and_then_begins_anew():
    work = LanguageRun(prepare(WARM))
    state, seen = work.init(), []

    def watch(ended, of):
        seen.append((ended, of))
        if len(seen) == 1:
            raise Stopped

    with pytest.raises(Stopped):
        work.judge(state, watch)
    judged = work.judge(state, watch)
    assert [len(episodes) for episodes in judged.values()] == [16, 16]
    assert seen[-1] == (16, 16)
    again = work.judge(state)
    assert [e.messages for e in again["success"]] == [e.messages for e in judged["success"]]
    work.close()


def test_a_round_is_a_function_of_its_number():
    work = LanguageRun(prepare(SMOKE))
    state = work.init()
    losses = []
    for number in range(4):
        state, numbers = work.round(number, state)
        losses.append(numbers["loss"])
    assert losses[-1] < losses[0]
    assert set(numbers) >= {"loss", "entropy", "grad_norm"}
    copies = [jax.tree.map(np.array, state) for _ in range(2)]
    results = [work.round(5, jax.tree.map(jax.numpy.asarray, copy)) for copy in copies]
    (one, first), (two, second) = results
    times = ("play_seconds", "learn_seconds")
    assert {k: v for k, v in first.items() if k not in times} == {
        k: v for k, v in second.items() if k not in times
    }
    assert jax.tree.all(jax.tree.map(np.array_equal, one.trained, two.trained))
    assert 0 < first["turns"] <= 7
    assert first["importance"] == pytest.approx(1, abs=1e-3)
    work.close()


def eight_devices():
    """Runs in a process with eight devices: rounds on four of them and on one."""
    rounds = []
    for mesh in (None, make_model_mesh(2, 2)):
        work = LanguageRun(prepare(SMOKE), mesh)
        state, numbers = work.init(), []
        for number in range(work.rounds):
            state, found = work.round(number, state)
            numbers.append(found["loss"])
        numbers += [outcomes_of(episodes).success for episodes in work.judge(state).values()]
        rounds.append(numbers)
        work.close()
    np.testing.assert_allclose(*rounds, atol=2e-3)


@pytest.mark.slow
def test_a_run_on_a_mesh_is_that_of_one_device():
    code = "from tests.learners.language import test_training as t; t.eight_devices()"
    subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ
        | {"XLA_FLAGS": "--xla_force_host_platform_device_count=8", "JAX_PLATFORMS": "cpu"},
        check=True,
        timeout=900,
    )


@pytest.mark.slow
def test_adapters_are_saved_in_pefts_form(tmp_path):
    config = dataclasses.replace(
        SMOKE,
        backbone="nano",
        finetune="lora",
        lora=LoraConfig(4),
        max_tokens=4,
        max_length=1200,
        improve=dataclasses.replace(SMOKE.improve, steps=1, instances=1, rollouts=2),
        judge=JudgeConfig(episodes=2, every=1),
        warm_up=WarmUpConfig(updates=1, episodes=8, batch=2),
        micro_batch=2,
        dtype="bfloat16",
    )
    run_in(tmp_path / "run", config)
    saved = json.loads((tmp_path / "run" / "model" / "adapter_config.json").read_text())
    assert saved["r"] == 4
    rows = read_metrics(tmp_path / "run")
    assert all(np.isfinite(list(row.values())).all() for row in rows)
    adapters = safetensors.numpy.load_file(tmp_path / "run" / "model" / "adapter_model.safetensors")
    assert {tensor.dtype for tensor in adapters.values()} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "chess"}, "unknown 'chess'"),
        ({"options": ("size=3",)}, "options: route has no option"),
        ({"options": ("size",)}, "NAME=VALUE"),
        ({"task": "minihack/River"}, "nobody demonstrates"),
        ({"backbone": "nowhere", "finetune": "full"}, "neither a path nor nano"),
        ({"max_length": 40}, "max_length must be at least"),
        ({"warm_up": WarmUpConfig(episodes=10**6)}, "warm_up.episodes must be at most 2048"),
        ({"judge": JudgeConfig(episodes=10**6)}, "judge.episodes must be at most 2048"),
        ({"scratch": ScratchConfig(vocab_size=10)}, "vocab_size must be at least 259"),
    ],
)
def test_what_cannot_work_is_said_before(changes, message):
    with pytest.raises(UserError, match=message):
        prepare(dataclasses.replace(SMOKE, **changes))


def test_a_task_of_few_instances_is_refused(monkeypatch):
    monkeypatch.setattr(Route, "instances", 7)
    with pytest.raises(UserError, match=r"route must have at least 8 instances, .* it has 7"):
        prepare(SMOKE)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ImproveConfig(rollouts=1), "rollouts must be at least 2"),
        (lambda: ImproveConfig(minibatches=200), "at most the 128 episodes"),
        (lambda: ImproveConfig(compare="all"), "improve.compare must be one of"),
        (lambda: ImproveConfig(temperature=0.0), "improve.temperature must be positive"),
        (lambda: WarmUpConfig(batch=0), "warm_up.batch must be at least 1"),
        (lambda: ScratchConfig(hidden_size=12), "multiple of twice"),
        (lambda: LanguageRunConfig(finetune="lora"), "finetune must be full"),
        (lambda: LanguageRunConfig(num_layers=2), "num_layers must be None"),
        (lambda: LanguageRunConfig(warm_up=WarmUpConfig(updates=0)), "knows no words"),
        (lambda: LanguageRunConfig(max_tokens=256), "max_length must be above"),
        (lambda: LanguageRunConfig(dtype="float16"), "dtype must be one of"),
        (lambda: LanguageRunConfig(seed=2**63), r"seed must be below 2\*\*63"),
        (lambda: LanguageRunConfig(max_length=2**31), r"max_length must be below 2\*\*31"),
        (
            lambda: LanguageRunConfig(improve=ImproveConfig(objective=GRPOConfig(kl_weight=0.1))),
            "improve.objective.kl_weight must be 0 unless finetune is lora",
        ),
    ],
)
def test_settings_out_of_range_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()

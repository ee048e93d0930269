"""The scoring benchmark: its counts, its floor, its naive peer, and a tiny run."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import common, floor, prior_scoring
from benchmarks.peers.naive_scoring import naive_score
from benchmarks.prior_scoring import Case, Plan, Subject
from jaxrl_guided.backbones.load import NANO
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago.prior import encode_texts, select_texts
from jaxrl_guided.lago.scoring import layout, no_open_episodes, score
from tests.lago.toys import TEXTS, small_prior, toy_texts

TINY = Case("episode", 2, 8)


@pytest.fixture(autouse=True)
def quick_compilation():
    """Toy programs compile for seconds and run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def toy_rollout(spec, steps, envs):
    """Two rollouts in a row, (state, action, instruction, done), episodes of at most 7 steps."""
    rng = np.random.default_rng(0)
    shape = (2 * steps, envs)
    done = np.arange(2 * steps)[:, None] % spec.horizon == spec.horizon - 1 - np.arange(envs) % 3
    text = np.cumsum(done, axis=0) - done
    rows = (
        jnp.asarray(rng.normal(size=(*shape, spec.state_size)), jnp.float32),
        jnp.asarray(rng.integers(0, spec.num_actions, shape), jnp.int32),
        jnp.asarray((text + np.arange(envs)) % TEXTS, jnp.int32),
        jnp.asarray(done),
    )
    return tuple(x[:steps] for x in rows), tuple(x[steps:] for x in rows)


@pytest.mark.parametrize("history", ["episode", "none"])
def test_naive_loop_finds_the_logits_of_the_scoring_pass(history):
    spec, prior = small_prior(history, finetune="frozen")
    tokens, length = toy_texts()
    warm, rollout = toy_rollout(spec, steps=10, envs=3)
    open_ = no_open_episodes(spec, 3)
    if open_ is not None:
        _, open_ = layout(open_, *warm)
        assert open_.length.min() > 0
    texts = encode_texts(spec, prior, tokens, length)
    expected = score(spec, prior, texts, open_, rollout, chunk_tokens=1000)[0]
    assert np.std(expected) > 0.1
    naive = naive_score(spec, prior, np.asarray(tokens), np.asarray(length), open_, rollout)
    np.testing.assert_allclose(naive, expected, atol=1e-4, rtol=1e-4)


def operations_in(function, *arguments):
    """Floating-point operations of the products in the program of a function, by XLA's count."""
    return jax.jit(function).lower(*arguments).compile().cost_analysis()["flops"]


def test_floor_runs_the_products_that_it_counts():
    shapes = floor.Shapes(1, 96, (floor.Attention(3, 32, 64), floor.Attention(48, 2, 20)))
    given = floor.operands(NANO, shapes)
    counted = floor.operations(NANO, shapes)
    # A block of NANO by hand: q 64·64, k and v 64·32, o 64·64, three of 64·128; 4 heads of 16.
    linear = 64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128
    pairs = 3 * 32 * 64 + 48 * 2 * 20
    assert counted == 2 * 2 * (96 * linear + 2 * 64 * pairs)
    found = operations_in(lambda given: floor.run_products(1, given), given)
    assert counted <= found <= 1.01 * counted


@pytest.mark.parametrize("case", [Case("none", 4, 8), Case("episode", 4, 60)], ids=str)
def test_shapes_cover_what_is_scored(case):
    """The counted products are those of the compiled scoring pass, up to the rest of its work."""
    spec, prior = small_prior(case.history, finetune="frozen")
    spec = dataclasses.replace(spec, horizon=25)
    tokens, length = toy_texts()
    _, rollout = toy_rollout(spec, case.steps, case.num_envs)
    open_ = no_open_episodes(spec, case.num_envs)
    texts = encode_texts(spec, prior, tokens, length)
    shapes = prior_scoring.score_shapes(spec, case, tokens.shape[1], 10_000)
    slots = 0 if open_ is None else spec.horizon
    computed = case.num_envs * (slots + case.steps) * spec.tokens_per_step
    assert (shapes.chunks, shapes.tokens) == (1, computed)
    found = operations_in(
        lambda *given: score(spec, *given, chunk_tokens=10_000)[0], prior, texts, open_, rollout
    )
    counted = floor.operations(spec.backbone, shapes)
    # A layer of the loop is counted once by XLA, and norms, masks and softmax come on top.
    assert counted / 2 <= found <= 1.6 * counted


@pytest.fixture(scope="module")
def rollouts():
    """Two rollouts of the case of the tiny run."""
    return prior_scoring.random_rollouts(TINY)


def test_random_rollouts_follow_one_another(rollouts):
    first, second = rollouts
    assert first[0].shape == second[0].shape == (8, 2, 10)
    done = np.concatenate([first[3], second[3]])
    text = np.concatenate([first[2], second[2]])
    same = text[1:] == text[:-1]
    assert same[~done[:-1]].all()
    assert (first[0][-1] != second[0][0]).any()


def test_tiny_run(rollouts, monkeypatch, tmp_path):
    monkeypatch.setattr(prior_scoring, "random_rollouts", lambda case: rollouts)
    plan = Plan("nano", 1, (TINY,), repeats=1)
    subject = Subject.build(plan.backbone, plan.layers)
    tokens, length = toy_texts()
    texts = encode_texts(subject.spec, subject.prior, tokens, length)
    table = select_texts(texts, jnp.arange(len(instruction_set("real").texts)) % TEXTS)
    rows = prior_scoring.measure(subject, TINY, table, plan, "here")
    common.write_results(prior_scoring.NAME, rows, tmp_path / "x.json")
    record = json.loads((tmp_path / "x.json").read_text())
    values = {row["metric"]: row["ours"] for row in record["rows"]}
    assert all(value > 0 for value in values.values())
    # 2 · 2 · 8 useful tokens of steps; 2 · 2 · (50 + 8) are computed.
    assert values["computed / useful tokens"] > 2

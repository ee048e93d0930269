"""The scoring pass against step-by-step decoding with a key-value cache, and against plain rows."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.lago.prior import select_texts
from jaxrl_guided.lago.scoring import no_open_episodes, rows_per_chunk, score
from tests.lago.toys import ACTIONS, HORIZON, STATE, TEXTS, step_by_step

ENVS, TOTAL = 4, 48
score = jax.jit(score, static_argnums=0, static_argnames=("chunk_tokens", "fraction"))
pass_of = functools.partial(score, chunk_tokens=40)


def random_rollout(spec, seed=0):
    """(state, action, instruction, done) `[TOTAL, ENVS]`; no episode is longer than the horizon."""
    rng = np.random.default_rng(seed)
    shape = (TOTAL, ENVS)
    done = np.zeros(shape, bool)
    instruction = np.zeros(shape, np.int32)
    for env in range(ENVS):
        t = 0
        while t < TOTAL:
            length = rng.integers(1, HORIZON + 1)
            instruction[t : t + length, env] = rng.integers(TEXTS)
            if t + length <= TOTAL:
                done[t + length - 1, env] = True
            t += length
    state = rng.normal(size=(*shape, STATE)).astype(np.float32)
    if spec.action_size:
        action = rng.uniform(-1, 1, (*shape, spec.action_size)).astype(np.float32)
    else:
        action = rng.integers(0, ACTIONS, shape).astype(np.int32)
    return state, action, instruction, done


def test_one_pass_equals_step_by_step_decoding(scored_prior):
    """Rollouts shorter and longer than the horizon; episodes span up to four of the short ones."""
    spec, prior, texts = scored_prior
    rollout = random_rollout(spec)
    expected = step_by_step(spec, prior, texts, *rollout)
    assert np.std(expected) > 0.1  # the comparison is of something
    for num_steps in (3, 16):
        open_ = no_open_episodes(spec, ENVS)
        for start in range(0, TOTAL, num_steps):
            part = tuple(x[start : start + num_steps] for x in rollout)
            outputs, scored, open_ = pass_of(spec, prior, texts, open_, part)
            assert scored.all()
            np.testing.assert_allclose(
                outputs, expected[start : start + num_steps], atol=1e-4, rtol=1e-4
            )


def test_history_and_instruction_matter(scored_prior):
    spec, prior, texts = scored_prior
    state, action, instruction, done = (x[:16] for x in random_rollout(spec))
    done, instruction = np.zeros_like(done), np.zeros_like(instruction)

    def last(action, instruction, texts=texts):
        rollout = (state, action, instruction, done)
        return pass_of(spec, prior, texts, no_open_episodes(spec, ENVS), rollout)[0][-1]

    base = last(action, instruction)
    other = np.concatenate([action[:-2], action[[-1, -2]]])
    assert np.any(np.abs(last(other, instruction) - base) > 1e-4) == (spec.history == "episode")
    other_text = last(action, instruction + 3)
    assert np.all(np.abs(other_text - base).max(-1) > 1e-4)
    # Instruction 0 may be said by another row of the table.
    rows = jnp.array([3, 0, 1, 2, 4])
    np.testing.assert_array_equal(last(action, instruction, select_texts(texts, rows)), other_text)


def test_subset_scores_what_it_says_and_nothing_else(scored_prior):
    spec, prior, texts = scored_prior
    rollout = tuple(x[:16] for x in random_rollout(spec, 1))
    start = no_open_episodes(spec, ENVS)
    everything, _, _ = pass_of(spec, prior, texts, start, rollout)
    part, scored, _ = pass_of(
        spec, prior, texts, start, rollout, fraction=0.25, key=jax.random.key(5)
    )
    assert scored.sum() == 16
    np.testing.assert_allclose(part[scored], everything[scored], atol=1e-5)
    assert not part[~scored].any()


def test_chunks_that_need_filling_up_change_nothing(scored_prior):
    """Three rows of 40 tokens, two at a time; 39 single steps, 20 at a time."""
    spec, prior, texts = scored_prior
    rollout = tuple(x[:13, :3] for x in random_rollout(spec, 2))
    expected = step_by_step(spec, prior, texts, *rollout)
    start = no_open_episodes(spec, 3)
    chunk_tokens = 80 if spec.history == "episode" else 20
    outputs, scored, _ = score(spec, prior, texts, start, rollout, chunk_tokens=chunk_tokens)
    assert scored.all()
    np.testing.assert_allclose(outputs, expected, atol=1e-4, rtol=1e-4)
    part, scored, _ = score(
        spec,
        prior,
        texts,
        start,
        rollout,
        chunk_tokens=chunk_tokens,
        fraction=0.7,
        key=jax.random.key(5),
    )
    assert scored.sum() == (26 if spec.history == "episode" else 27)
    np.testing.assert_allclose(part[scored], outputs[scored], atol=1e-5)
    assert not part[~scored].any()


@pytest.mark.parametrize(
    "rows, row_tokens, chunk_tokens, expected",
    [
        (8, 10, 40, 4),
        (8, 10, 1000, 8),
        (8, 10, 5, 1),
        (6, 10, 40, 3),
        (7, 10, 40, 4),
        (1, 10, 5, 1),
        (2_458, 1, 2_048, 1_229),
        (8_191, 1, 2_048, 2_048),
        (10, 1, 4, 4),
        (13, 1, 4, 4),
        (9, 1, 4, 3),
    ],
)
def test_rows_per_chunk(rows, row_tokens, chunk_tokens, expected):
    assert rows_per_chunk(rows, row_tokens, chunk_tokens) == expected

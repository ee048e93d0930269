"""The scoring pass against step-by-step decoding with a key-value cache, and against plain rows."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.lago.prior import init_cache, step_action, step_logits
from jaxrl_guided.lago.scoring import no_open_episodes, rows_per_chunk, score

STATE, ACTIONS, TEXTS, HORIZON = 4, 6, 5, 7


def random_rollouts(iterations: int, num_steps: int, num_envs: int, seed: int):
    """Rollouts [iterations, T, N] in which no episode is longer than the horizon."""
    rng = np.random.default_rng(seed)
    shape = (iterations * num_steps, num_envs)
    done = np.zeros(shape, bool)
    instruction = np.zeros(shape, np.int32)
    for env in range(num_envs):
        t = 0
        while t < shape[0]:
            length = rng.integers(1, HORIZON + 1)
            instruction[t : t + length, env] = rng.integers(TEXTS)
            if t + length <= shape[0]:
                done[t + length - 1, env] = True
            t += length
    state = rng.normal(size=(*shape, STATE)).astype(np.float32)
    action = rng.integers(0, ACTIONS, shape).astype(np.int32)
    parts = (state, action, instruction, done)
    return [x.reshape(iterations, num_steps, *x.shape[1:]) for x in parts]


def step_by_step(spec, prior, texts, state, action, instruction, done):
    """Logits [T, N, A] by decoding one state and one action at a time."""

    def step(cache, xs):
        state, action, instruction, done = xs
        logits, cache = step_logits(spec, prior, texts, cache, instruction, state)
        return step_action(spec, prior, texts, cache, instruction, action, done), logits

    cache = init_cache(spec, done.shape[1])
    return jax.lax.scan(step, cache, (state, action, instruction, done))[1]


@pytest.mark.parametrize("num_steps", [3, 5, 16])
def test_one_pass_equals_step_by_step_decoding(scored_prior, num_steps):
    spec, prior, texts = scored_prior
    num_envs, iterations = 4, 4
    rollouts = random_rollouts(iterations, num_steps, num_envs, seed=num_steps)
    flat = [jnp.asarray(x.reshape(-1, *x.shape[2:])) for x in rollouts]
    expected = step_by_step(spec, prior, texts, *flat)

    open_ = no_open_episodes(spec, num_envs)
    passes = jax.jit(lambda o, r: score(spec, prior, texts, o, r, chunk_tokens=40))
    for i in range(iterations):
        logits, scored, open_ = passes(open_, tuple(x[i] for x in rollouts))
        assert bool(scored.all())
        np.testing.assert_allclose(
            logits, expected[i * num_steps : (i + 1) * num_steps], atol=1e-4, rtol=1e-4
        )
    assert float(jnp.std(expected)) > 0.1  # the comparison is of something


def test_history_and_instruction_matter(scored_prior):
    spec, prior, texts = scored_prior
    state, action, instruction, done = (jnp.asarray(x[0]) for x in random_rollouts(1, 7, 2, 0))
    done = jnp.zeros_like(done)
    instruction = jnp.zeros_like(instruction)

    def last(action, instruction):
        rollout = (state, action, instruction, done)
        start = no_open_episodes(spec, 2)
        return score(spec, prior, texts, start, rollout, chunk_tokens=100)[0][-1]

    base = last(action, instruction)
    other_past = last(action.at[0].set((action[0] + 1) % ACTIONS), instruction)
    assert bool(jnp.any(jnp.abs(other_past - base) > 1e-4)) == (spec.history == "episode")
    assert bool(jnp.all(jnp.abs(last(action, instruction + 1) - base).max(-1) > 1e-4))


def test_subset_scores_what_it_says_and_nothing_else(scored_prior):
    spec, prior, texts = scored_prior
    rollout = tuple(jnp.asarray(x[0]) for x in random_rollouts(1, 8, 8, 1))
    start = no_open_episodes(spec, 8)
    everything, _, _ = score(spec, prior, texts, start, rollout, chunk_tokens=64)
    part, scored, _ = score(
        spec, prior, texts, start, rollout, chunk_tokens=64, fraction=0.25, key=jax.random.key(5)
    )
    assert int(scored.sum()) == 16
    np.testing.assert_allclose(part[scored], everything[scored], atol=1e-5)
    assert not part[~scored].any()


@pytest.mark.parametrize(
    "rows, row_tokens, chunk_tokens, expected",
    [(8, 10, 40, 4), (8, 10, 1000, 8), (8, 10, 5, 1), (6, 10, 40, 3), (7, 10, 40, 1)],
)
def test_rows_per_chunk(rows, row_tokens, chunk_tokens, expected):
    assert rows_per_chunk(rows, row_tokens, chunk_tokens) == expected

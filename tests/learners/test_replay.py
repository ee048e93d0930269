"""The replay buffer against a list of all steps."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxrl_guided.learners.replay import Steps, draw, init_replay, insert, nbytes

GAMMA = 0.5


def history(length, num_envs, seed, ends=0.3):
    """Random steps `[length, N]` whose observations tell which step of which environment it is."""
    rng = np.random.default_rng(seed)
    done = rng.random((length, num_envs)) < ends
    number = np.arange(length * num_envs, dtype=np.float32).reshape(length, num_envs)
    return Steps(
        obs={"x": number[..., None]},
        action=rng.integers(0, 9, (length, num_envs)).astype(np.int32),
        reward=rng.integers(-5, 5, (length, num_envs)).astype(np.float32),
        terminated=done & (rng.random((length, num_envs)) < 0.5),
        done=done,
        next_obs={"x": number[..., None] + 0.5},
        targets=-number,
    )


def fill(steps, capacity, chunk):
    """All steps inserted, chunk by chunk."""
    parts = [
        jax.tree.map(lambda x, i=i: jnp.asarray(x[i : i + chunk]), steps)
        for i in range(0, len(steps.reward), chunk)
    ]
    replay, add = init_replay(parts[0], capacity), jax.jit(lambda *given: insert(*given))
    for part in parts:
        replay = add(replay, part)
    assert add._cache_size() == 1
    return replay


def expected(steps, time, env, n_step):
    """Reward, discount and next observation of a transition, by the definition."""
    total, discount = 0.0, 1.0
    for t in range(time, time + n_step):
        total += discount * steps.reward[t, env]
        discount *= GAMMA
        if steps.done[t, env]:
            break
    if steps.terminated[t, env]:
        discount = 0.0
    return total, discount, steps.next_obs["x"][t, env, 0]


@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 1000),
    num_envs=st.integers(1, 3),
    chunk=st.sampled_from([1, 2, 4]),
    chunks=st.integers(1, 9),
    n_step=st.integers(1, 4),
)
def test_a_drawn_transition_is_one_of_the_last_steps(seed, num_envs, chunk, chunks, n_step):
    capacity, length = 8, chunk * chunks
    if min(length, capacity) < n_step:
        return
    steps = history(length, num_envs, seed)
    replay = fill(steps, capacity, chunk)
    batch = draw(replay, jax.random.key(seed), 64, GAMMA, n_step)
    for i in range(64):
        time, env = divmod(int(batch.obs["x"][i, 0]), num_envs)
        assert max(length - capacity, 0) <= time <= length - n_step
        reward, discount, next_obs = expected(steps, time, env, n_step)
        assert batch.reward[i] == pytest.approx(reward)
        assert batch.discount[i] == pytest.approx(discount)
        assert batch.next_obs["x"][i, 0] == next_obs
        assert batch.action[i] == steps.action[time, env]
        assert batch.targets[i] == steps.targets[time, env]


def test_every_step_is_drawn_as_often_as_the_others():
    steps = history(24, 2, 0)
    replay = fill(steps, 16, 4)
    batch = draw(replay, jax.random.key(0), 28_000, GAMMA, 3)
    numbers, counts = np.unique(np.asarray(batch.obs["x"][:, 0]), return_counts=True)
    np.testing.assert_array_equal(numbers, np.arange(16, 44))  # steps 8 … 21 of both
    np.testing.assert_allclose(counts, 1000, atol=150)


def test_it_runs_for_ever_without_a_wrap():
    """The counter stays below twice the capacity, and what is drawn is still the newest."""
    steps = history(80, 1, 3)
    replay = fill(steps, 8, 4)
    assert 8 <= replay.inserted < 16
    batch = draw(replay, jax.random.key(0), 200, GAMMA, 1)
    assert set(np.asarray(batch.obs["x"][:, 0]).astype(int)) == set(range(72, 80))


def test_a_population_is_inserted_in_place():
    """No scatter under vmap, which would copy the ring: time must not depend on the capacity."""
    chunk = jax.tree.map(lambda x: jnp.stack([x, x + x]), history(4, 1, 0))
    replay = jax.vmap(lambda part: init_replay(part, 8))(chunk)
    insert_all = jax.jit(lambda *given: jax.vmap(insert)(*given))
    operations = str(insert_all.trace(replay, chunk).jaxpr)
    assert "dynamic_update_slice" in operations
    assert "scatter" not in operations
    for _ in range(3):
        replay = insert_all(replay, chunk)
    np.testing.assert_array_equal(replay.inserted, [12, 12])
    for member in (0, 1):
        alone = init_replay(history(4, 1, 0), 8)
        for _ in range(3):
            alone = insert(alone, jax.tree.map(lambda x, m=member: x[m], chunk))
        one = jax.tree.map(lambda x, m=member: x[m], replay)
        jax.tree.map(np.testing.assert_array_equal, one, alone)


def test_memory_is_what_the_capacity_says():
    replay = init_replay(history(4, 2, 0), 100)
    assert nbytes(replay.steps) == 100 * 2 * (4 + 4 + 4 + 1 + 1 + 4 + 4)

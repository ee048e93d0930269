"""Experience in observations: what the device finds, against the retriever of the host."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.bank import Bank, Draft, Event, Write
from jaxrl_guided.complementary.embedded import (
    EXPERIENCE,
    by_instruction,
    count_shown,
    excerpt,
    extend,
    retrieve,
)
from jaxrl_guided.complementary.retrieval import Question, RetrievalConfig, Retriever
from jaxrl_guided.envs.types import Box
from tests.envs import conformance
from tests.learners.counting_env import make_counting_env

DIM = 8


class Vectors:
    """An embedder whose texts are numbers of rows."""

    name, dim = "rows", DIM

    def __init__(self, table):
        self.table = table

    def __call__(self, texts):
        return self.table[[int(text) for text in texts]]


def unit(random, count, dim=DIM):
    vectors = random.normal(size=(count, dim)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def drafts(vectors, task=""):
    return tuple(Draft(f"n{i}", "c", vector, task) for i, vector in enumerate(vectors))


@pytest.fixture
def random():
    return np.random.default_rng(0)


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "bank", DIM, "rows", capacity=40, durability="normal") as bank:
        yield bank


def used(bank, random, most=40):
    """Retrievals at random times and steps."""
    for entry in bank.entries():
        events = [
            Event("retrieved", entry.id, at=float(at), step=int(at) // 10)
            for at in sorted(random.integers(0, 100, random.integers(0, most)))
        ]
        bank.record(events)


@pytest.mark.parametrize("recency", ["seconds", "steps"])
@pytest.mark.parametrize("top", [1, 3])
def test_the_device_finds_what_the_host_finds(bank, random, recency, top):
    bank.write(Write(drafts(unit(random, 30))))
    bank.write(Write(drafts(unit(random, 20))))  # ten of the first make room
    bank.write(Write((), (15, 33)))
    used(bank, random)
    config = RetrievalConfig(top=top, recency=recency, recent=20.0 if recency == "seconds" else 3)
    queries = unit(random, 64)
    ask = Retriever(config, Vectors(queries), bank.snapshot(), lambda: 105.0)
    found = ask([Question(str(row), row) for row in range(64)], step=11)
    copy = excerpt(config, bank, bank.capacity, 105.0, 11)
    rows = np.asarray(jax.jit(retrieve, static_argnums=0)(config, copy, queries))
    assert [[entry.id for entry in entries] for entries in found] == copy.ids[rows].tolist()
    assert int(copy.version) == bank.version
    assert len({*rows[:, 0]}) > 8
    nearest = np.argmax(queries @ np.asarray(copy.vectors).T, axis=1)
    assert (rows[:, 0] != nearest).any()


def test_counts_on_the_device_are_those_of_the_bank(bank, random):
    bank.write(Write(drafts(unit(random, 5))))
    config = RetrievalConfig(recency="steps")
    copy = excerpt(config, bank, bank.capacity, step=4)
    rows = jnp.array([[2], [0], [2], [40]])
    counted = count_shown(copy, rows)
    bank.record([Event("retrieved", int(copy.ids[row]), step=4) for row in (2, 0, 2)])
    again = excerpt(config, bank, bank.capacity, step=4, old=copy)
    np.testing.assert_array_equal(counted.retrievals, again.retrievals)
    np.testing.assert_array_equal(counted.ages, again.ages)
    assert again.vectors is copy.vectors
    bank.write(Write(drafts(unit(random, 1))))
    assert excerpt(config, bank, bank.capacity, old=copy).vectors is not copy.vectors


def test_scopes(bank, random):
    bank.write(Write(drafts(unit(random, 3), "room")))
    bank.write(Write(drafts(unit(random, 4), "other")))
    config = RetrievalConfig(scope="task")
    for task, ids in (("room", [1, 2, 3]), ("other", [4, 5, 6, 7]), ("?", [])):
        found = np.asarray(excerpt(config, bank, 40, task=task).ids)
        assert found[found >= 0].tolist() == ids


def test_a_bank_that_has_no_room_is_refused(bank, random, tmp_path):
    config = RetrievalConfig()
    with pytest.raises(ValueError, match="capacity is 39, but the bank's is 40"):
        excerpt(config, bank, 39)
    bank.write(Write(drafts(unit(random, 40))))
    with pytest.raises(ValueError, match="capacity is 20, but the bank's is 40"):
        excerpt(config, bank.snapshot(), 20)
    assert excerpt(config, bank.snapshot(), 40).ids.shape == (40,)


def world(bank, limits=(3, 4, 3, 4), guided=None, top=1, config=None):
    """Counting environments of 6 instructions; returns them with vectors of instructions."""
    config = config or RetrievalConfig(top=top, recency="steps")
    queries = unit(np.random.default_rng(7), 6)
    env = make_counting_env(limits, instructions=6)
    made = extend(
        env, by_instruction(queries), config, excerpt(config, bank, bank.capacity), guided
    )
    return made, queries


@pytest.mark.parametrize("top", [1, 2])
def test_observations_show_the_entries_of_guided_episodes(bank, random, top):
    vectors = unit(random, 7)
    bank.write(Write(drafts(vectors)))
    made, _ = world(bank, top=top)
    env = made.env
    conformance.check(env)
    assert env.observation_space.spaces[EXPERIENCE] == Box((top * DIM,), normalise=False)
    state, obs = env.reset(jax.random.key(0))
    step, before, solved = jax.jit(env.step), obs, np.zeros(4, bool)
    for _ in range(9):
        shown = np.asarray(state.shown)
        assert (shown[:2] >= 1).all()
        assert (shown[2:] == -1).all()
        expected = np.zeros((4, top * DIM), np.float32)
        expected[:2] = vectors[shown[:2] - 1].reshape(2, -1) * np.sqrt(DIM)
        np.testing.assert_allclose(obs[EXPERIENCE], expected, rtol=1e-6)
        assert obs[EXPERIENCE].dtype == np.float32
        state, after = step(state, jnp.zeros(4, jnp.int32))
        # What an episode was shown stays to its last observation.
        np.testing.assert_array_equal(after.final_obs[EXPERIENCE], obs[EXPERIENCE])
        found = np.where(np.asarray(after.done)[:, None], state.shown, -1)
        np.testing.assert_array_equal(after.info["found"], found)
        solved |= np.asarray(after.info["success"])
        np.testing.assert_array_equal(after.info["solved"], solved)
        solved &= ~np.asarray(after.done)
        obs = after.obs
        assert set(made.plain(obs)) == set(before) - {EXPERIENCE}


def test_episodes_find_what_a_bank_that_is_told_at_once_would_show(bank, random):
    """Step by step with the host's retriever, which is told of each step before the next."""
    bank.write(Write(drafts(unit(random, 9))))
    limits = (1, 2, 2, 3)
    made, queries = world(bank, limits, guided=3)
    state, obs = made.env.reset(jax.random.key(0))

    def host(instructions):
        ask = Retriever(made.retrieval, Vectors(queries), bank.snapshot())
        found = ask([Question(str(row), 0) for row in instructions], 0)
        ids = [entries[0].id for entries in found]
        bank.record([Event("retrieved", entry, step=0) for entry in ids])
        return ids

    assert state.shown[:3, 0].tolist() == host(np.asarray(obs["instruction"][:3]))
    step = jax.jit(made.env.step)
    seen = set()
    for _ in range(60):
        state, after = step(state, jnp.zeros(4, jnp.int32))
        begun = np.flatnonzero(after.done[:3])
        ids = host(np.asarray(after.obs["instruction"])[begun])
        assert after.info["found"][begun, 0].tolist() == ids
        seen.update(ids)
    assert len(seen) > 4
    retrievals = [bank.usage(entry.id).retrievals for entry in bank.entries()]
    assert state.bank.retrievals[:9].tolist() == retrievals
    assert sum(retrievals) > 100


def test_an_empty_bank_shows_nothing_and_filling_it_compiles_nothing(bank, random):
    made, _ = world(bank, (1, 1, 1, 1))
    state, _ = made.env.reset(jax.random.key(0))
    step = jax.jit(made.env.step)
    for count in (0, 1, 38, 2, 5):
        bank.write(Write(drafts(unit(random, count))))
        assert len(bank) <= bank.capacity
        copy = excerpt(made.retrieval, bank, bank.capacity)
        state = dataclasses.replace(state, bank=copy)
        state, after = step(state, jnp.zeros(4, jnp.int32))
        assert bool((state.shown[:2] == -1).all()) == (count == 0)
        assert bool((after.obs[EXPERIENCE] == 0).all()) == (count == 0)
    assert step._cache_size() == 1
    oldest = bank.entries()[0].id
    assert oldest > 1
    assert int(copy.ids[0]) == oldest


def test_an_open_episode_keeps_its_entry_when_the_bank_changes(bank, random):
    bank.write(Write(drafts(unit(random, 2))))
    made, _ = world(bank, (5, 5, 5, 5))
    state, obs = made.env.reset(jax.random.key(0))
    bank.write(Write(drafts(unit(random, 1)), (1, 2)))
    copy = excerpt(made.retrieval, bank, bank.capacity)
    state = dataclasses.replace(state, bank=copy)
    for _ in range(4):
        state, after = made.env.step(state, jnp.zeros(4, jnp.int32))
        np.testing.assert_array_equal(after.obs[EXPERIENCE], obs[EXPERIENCE])
    state, after = made.env.step(state, jnp.zeros(4, jnp.int32))
    assert after.info["found"][:, 0].tolist() == [3, 3, -1, -1]


def test_what_does_not_fit_is_refused(bank):
    with pytest.raises(ValueError, match="guided must be between 0 and 4 environments, not 5"):
        world(bank, guided=5)
    made, queries = world(bank)
    counting = make_counting_env((2, 2), instructions=6)

    def step(state, action):
        state, after = counting.step(state, action)
        return state, after.replace(info={})

    config = made.retrieval
    silent = dataclasses.replace(counting, step=step)
    mute = extend(silent, by_instruction(queries), config, excerpt(config, bank, 40)).env
    state, _ = mute.reset(jax.random.key(0))
    with pytest.raises(ValueError, match="success, which counting does not tell"):
        mute.step(state, jnp.zeros(2, jnp.int32))


def test_plain_observations_get_a_name(bank):
    config = RetrievalConfig()
    embed = HashedEmbedder(DIM)
    query = embed(["count"])[0]
    made = extend(
        make_counting_env((2, 3)),
        lambda obs: jnp.broadcast_to(query, (len(obs), DIM)),
        config,
        excerpt(config, bank, 40),
    )
    conformance.check(made.env)
    _, obs = made.env.reset(jax.random.key(0))
    assert set(obs) == {"observation", EXPERIENCE}
    assert made.plain(obs).shape == (2, 2)

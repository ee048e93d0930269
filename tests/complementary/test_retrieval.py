"""Diversified retrieval against its formula, one candidate after the other."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.retrieval import (
    Question,
    RetrievalConfig,
    Retriever,
    diversified,
)

EMBED = HashedEmbedder(64)
TEXTS = ("stairs in the dark room", "stairs in the bright room", "buy a red dress", "cook an egg")


def by_hand(config, retrievals, ages, there):
    """Scores of one question's candidates, sorted."""
    scored = [
        (
            -rank
            - config.usage_weight * math.log(1 + retrievals[rank])
            - config.recent_weight * (ages[rank] < config.recent),
            -rank,
        )
        for rank in range(len(retrievals))
        if there[rank]
    ]
    best = sorted(scored, reverse=True)[: config.top]
    return [-rank for _, rank in best] + [len(retrievals)] * (config.top - len(best))


@pytest.mark.parametrize("numpy", [np, jnp])
@pytest.mark.parametrize("top", [1, 3])
def test_the_formula(numpy, top):
    config = RetrievalConfig(top=top, usage_weight=0.9, recent_weight=2.5, recent=10.0)
    random = np.random.default_rng(0)
    retrievals = random.integers(0, 200, (50, 16)).astype(np.int32)
    ages = np.where(random.random((50, 16)) < 0.3, np.inf, random.uniform(0, 20, (50, 16)))
    there = np.arange(16) < random.integers(0, 17, (50, 1))
    found = diversified(config, numpy.asarray(retrievals), numpy.asarray(ages), there, numpy)
    expected = [by_hand(config, *row) for row in zip(retrievals, ages, there, strict=True)]
    np.testing.assert_array_equal(found, expected)
    assert len({tuple(row) for row in expected}) > 3


def test_used_and_recent_entries_stand_back():
    config = RetrievalConfig()
    there, never = np.ones(3, bool), np.full(3, np.inf)
    unused = np.zeros(3, np.int32)
    assert diversified(config, unused, never, there) == [0]
    assert diversified(config, np.array([0, 0, 0]), np.array([299.0, np.inf, np.inf]), there) == [0]
    often = np.array([20, 0, 0])  # .4 · log 21 = 1.2, more than the next rank costs
    assert diversified(config, often, never, there) == [1]
    assert diversified(config, np.array([2, 0, 0]), np.array([0.0, np.inf, 5.0]), there) == [1]


@pytest.mark.parametrize("numpy", [np, jnp])
def test_what_ties_is_the_nearer_in_any_precision(numpy):
    rank, often = (grid.ravel() for grid in np.mgrid[:15, :2000])
    # One is recent and the next a rank farther: the same score.
    shape = (len(rank), 16)
    retrievals = np.broadcast_to(often[:, None], shape).astype(np.int32)
    ages = np.where(np.arange(16) == rank[:, None], np.float32(0), np.float32(np.inf))
    there = (np.arange(16) == rank[:, None]) | (np.arange(16) == rank[:, None] + 1)
    found = diversified(
        RetrievalConfig(recent=1.0), *map(numpy.asarray, (retrievals, ages, there)), numpy
    )
    np.testing.assert_array_equal(found[:, 0], rank)


@pytest.mark.parametrize(
    "fields",
    [{"top": 0}, {"oversampling": 0}, {"recent": -1.0}, {"recency": "days"}, {"scope": "mine"}],
)
def test_bad_configurations(fields):
    with pytest.raises(ValueError, match=f"retrieval.{next(iter(fields))}"):
        RetrievalConfig(**fields)


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "bank.sqlite", EMBED.dim, EMBED.name) as bank:
        drafts = [
            Draft(text, "", vector, task="room" if "stairs" in text else "other")
            for text, vector in zip(TEXTS, EMBED(TEXTS), strict=True)
        ]
        bank.write(Write(tuple(drafts)))
        yield bank


def titles(found):
    return [[entry.title for entry in entries] for entries in found]


def test_siblings_see_what_was_shown_before_them(bank):
    clock = [1000.0]
    ask = Retriever(RetrievalConfig(), EMBED, bank, lambda: clock[0])
    dark, bright = TEXTS[:2]
    question = [Question(dark, episode) for episode in range(4)]
    # Nearest first; then it costs 1 to have been shown, and .4 log(1 + times) more.
    assert titles(ask(question)) == [[dark], [bright], [dark], [dark]]
    assert (bank.usage(1).retrievals, bank.usage(2).retrievals) == (3, 1)
    assert bank.usage(1).last_at == 1000.0
    clock[0] += 299
    assert titles(ask([Question(TEXTS[3], 9)])) == [[TEXTS[3]]]
    clock[0] += 1  # 300 s after: only counts remain
    assert titles(ask([Question(dark, 5)])) == [[dark]]


def test_recency_can_be_counted_in_steps(bank):
    ask = Retriever(RetrievalConfig(recency="steps", recent=2, usage_weight=0), EMBED, bank)
    dark, bright = TEXTS[:2]
    assert titles(ask([Question(dark, 0)], step=7)) == [[dark]]
    assert titles(ask([Question(dark, 1)], step=8)) == [[dark]]  # −1 against −1: the nearer
    plain = RetrievalConfig(recency="steps", recent=2, usage_weight=0, recent_weight=1.5)
    ask = Retriever(plain, EMBED, bank)
    assert titles(ask([Question(dark, 2)], step=9)) == [[bright]]
    assert titles(ask([Question(dark, 3)], step=10)) == [[dark]]


def test_a_scope_hides_other_tasks(bank):
    ask = Retriever(RetrievalConfig(top=3, scope="task"), EMBED, bank)
    found = ask([Question("cook", 0, "other"), Question("cook", 1, "room"), Question("x", 2, "?")])
    assert [set(row) for row in titles(found)] == [set(TEXTS[2:]), set(TEXTS[:2]), set()]


def test_snapshots_never_change_and_are_not_written_to(bank):
    live = Retriever(RetrievalConfig(), EMBED, bank, lambda: 0.0)
    dark = TEXTS[0]
    live([Question(dark, 0)] * 3)
    frozen, version = bank.snapshot(), bank.version
    ask = Retriever(RetrievalConfig(), EMBED, frozen, lambda: 1.0)
    first = ask([Question(dark, episode) for episode in range(5)])
    assert len({entries[0].id for entries in first}) == 1
    assert bank.version == version
    bank.write(Write((), (1, 2)))
    assert ask([Question(dark, 0)]) == first[:1]
    assert titles(live([Question(dark, 0)]))[0][0] in TEXTS[2:]


def test_an_empty_bank_shows_nothing(tmp_path):
    with Bank(tmp_path / "empty", EMBED.dim) as bank:
        ask = Retriever(RetrievalConfig(), EMBED, bank)
        assert ask([Question("x", 0), Question("y", 1)]) == [[], []]
        assert ask([]) == []

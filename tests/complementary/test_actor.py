"""Episodes of a step: halves of groups, what guided ones are shown, and who gets the credit."""

import dataclasses

import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.actor import ActorConfig, Guide, fresh, starts_of
from jaxrl_guided.complementary.advised import Advised
from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.credit import FREE, GUIDED
from jaxrl_guided.complementary.retrieval import RetrievalConfig, Retriever
from jaxrl_guided.learners.language.rollouts import Episode, Start
from jaxrl_guided.learners.language.seeds import Seeds
from tests.complementary.test_advised import Count

EMBED = HashedEmbedder(32)
CONFIG = ActorConfig(instances=3, rollouts=4, guided=2)
SEEDS = Seeds(range(0), range(0), range(100, 200))
NOTE = "walk along the wall until the stairs show"


@pytest.fixture
def bank(tmp_path):
    with Bank(tmp_path / "bank", EMBED.dim, durability="normal") as bank:
        titles = [f"count {number}" for number in range(6)]
        vectors = EMBED(titles)
        bank.write(Write(tuple(Draft(t, NOTE, v) for t, v in zip(titles, vectors, strict=True))))
        yield bank


def guide_of(bank, ask=None, **changes):
    retrieve = Retriever(RetrievalConfig(usage_weight=0, recent_weight=0), EMBED, bank)
    return Guide(dataclasses.replace(CONFIG, **changes), retrieve, ask, lambda seed: "counting")


def episode(start, version=0):
    nothing = np.zeros(0)
    return Episode(start, "", (), nothing, nothing, nothing, {}, True, 1, 0, "terminated", version)


def test_each_group_has_a_guided_and_a_free_half():
    starts = starts_of(CONFIG, seed=3, step=7, seeds=SEEDS)
    assert len(set(starts)) == 12
    for group in range(3):
        members = [start for start in starts if start.group == group]
        assert [start.part for start in members] == [GUIDED, GUIDED, FREE, FREE]
        assert len({start.seed for start in members}) == 1
    assert {start.temperature for start in starts} == {0.99}
    assert starts == starts_of(CONFIG, seed=3, step=7, seeds=SEEDS)
    others = [*starts_of(CONFIG, 3, 8, SEEDS), *starts_of(CONFIG, 4, 7, SEEDS)]
    assert not {start.draws for start in starts} & {start.draws for start in others}
    free = starts_of(CONFIG, 3, 7, SEEDS, guide=False)
    assert {start.part for start in free} == {FREE}
    assert [start.draws for start in free] == [start.draws for start in starts]


def test_guided_episodes_are_shown_what_was_found_for_them(bank):
    guide, task = guide_of(bank), Advised(Count())
    guided, free = Start(4, 0, part=GUIDED), Start(4, 1, part=FREE)
    assert "<title>count 4</title>" in guide.begin(guided, task).system
    assert guide.begin(free, task).system == "rules"
    first, second = guide.ended(episode(free)), guide.ended(episode(guided))
    assert (first.number, first.shown, first.task) == (1, [], "counting")
    assert (second.number, [entry.title for entry in second.shown]) == (0, ["count 4"])
    assert bank.usage(5).retrievals == 1
    with pytest.raises(KeyError):
        guide.ended(episode(free))


def test_a_group_may_share_its_entries(bank):
    for entry_per, times in (("rollout", 3), ("group", 1)):
        before = bank.usage(1).retrievals
        guide = guide_of(bank, entry_per=entry_per)
        for rollout in range(3):
            guide.begin(Start(0, rollout, group=1, part=GUIDED), Advised(Count()))
        assert bank.usage(1).retrievals - before == times
        guide.next_step(1)
        guide.begin(Start(0, 9, group=1, part=GUIDED), Advised(Count()))
        assert bank.usage(1).retrievals - before == times + 1


def test_placebos_show_other_entries_or_the_words_in_disorder(bank):
    plain = guide_of(bank).begin(Start(0, 0, part=GUIDED), Advised(Count())).system
    shuffled = guide_of(bank, placebo="shuffled").begin(Start(0, 0, part=GUIDED), Advised(Count()))
    assert NOTE in plain
    assert NOTE not in shuffled.system
    assert sorted(shuffled.system) == sorted(plain)
    guide = guide_of(bank, placebo="other")
    shown = set()
    for rollout in range(30):
        start = Start(0, rollout, part=GUIDED)
        guide.begin(start, Advised(Count()))
        shown |= {entry.title for entry in guide.ended(episode(start)).shown}
    assert len(shown) == 6


def test_questions_reach_the_extractor_with_their_episode(bank):
    asked = []

    def ask(*arguments):
        asked.append(arguments)
        return lambda: "east"

    guide, task = guide_of(bank, ask), Advised(Count())
    guide.begin(Start(1, 0, part=GUIDED), Advised(Count()))
    guide.begin(Start(2, 1, part=GUIDED), task)
    reply = task.step("<knowledge_search_and_ask>where?</knowledge_search_and_ask>").later()
    assert reply.observation == "east"
    assert asked == [("where?", "count 2", 1, "counting")]


def test_without_experience_nothing_is_shown():
    guide, task = Guide(CONFIG, None), Advised(Count())
    start = Start(2, 1, part=GUIDED)
    assert guide.begin(start, task).system == "rules"
    assert guide.ended(episode(start)).shown == []


def test_stale_episodes_are_dropped_and_counted():
    episodes = [episode(Start(0, draws), version) for draws, version in enumerate((1, 5, 6, 10))]
    kept, dropped = fresh(episodes, version=10, max_staleness=4)
    assert [e.version for e in kept] == [6, 10]
    assert dropped == 2


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"instances": 0}, "actor.instances must be at least 1"),
        ({"temperature": 0.0}, "actor.temperature must be positive"),
        ({"guided": 9}, "actor.guided must be at most actor.rollouts 8, not 9"),
        ({"guided": 7}, "no half of one rollout, .* not 7 of 8"),
        ({"rollouts": 1, "guided": 0}, "no half of one rollout"),
        ({"placebo": "sugar"}, "actor.placebo must be one of none, other, shuffled"),
        ({"entry_per": "task"}, "actor.entry_per must be one of rollout, group"),
    ],
)
def test_bad_settings(fields, message):
    with pytest.raises(ValueError, match=message):
        ActorConfig(**fields)

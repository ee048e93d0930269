"""Seeds of tasks and mixes: who is judged, who plays, whose success it is."""

import dataclasses

import numpy as np
import pytest

from jaxrl_guided.learners.language.rollouts import Episode, Start
from jaxrl_guided.learners.language.seeds import check_whole, divide
from jaxrl_guided.runtime.errors import UserError

NOTHING = np.zeros(0)
EPISODE = Episode(Start(0, 0), "", (), NOTHING, NOTHING, NOTHING, {}, False, 1, 0, "terminated", 0)


def episode(seed, success):
    return dataclasses.replace(EPISODE, start=Start(seed, 0), success=success)


def test_nothing_is_judged_on_what_was_learned_from():
    seeds = divide(1003)
    parts = (seeds.judged, seeds.shown, seeds.played)
    assert sorted(seed for part in parts for seed in part) == list(range(1003))
    assert min(map(len, parts)) >= 125


def test_tasks_of_a_mix_take_turns():
    seeds = divide(3 * 8 * 50, ("a", "b", "c"))
    drawn = seeds.draw(np.random.default_rng(0), 300)
    assert [seeds.part(seed) for seed in drawn] == ["a", "b", "c"] * 100
    assert set(drawn) <= set(seeds.played)
    assert len(set(drawn)) > 200
    assert [seeds.part(seed) for seed in seeds.judged[:4]] == ["a", "b", "c", "a"]
    assert [seeds.part(seed) for seed in seeds.shown[:4]] == ["a", "b", "c", "a"]


def test_of_one_task_all_seeds_are_as_likely():
    seeds = divide(80)
    drawn = seeds.draw(np.random.default_rng(0), 6000)
    counts = np.bincount(drawn, minlength=80)
    assert not counts[:20].any()
    assert counts[20:].min() > 60


def test_success_is_told_for_all_and_for_each_task():
    episodes = [episode(0, True), episode(1, False), episode(2, True), episode(3, True)]
    seeds = divide(160, ("a", "b"))
    assert seeds.successes(episodes, "with") == {"with": 0.75, "with_a": 1.0, "with_b": 0.5}
    assert seeds.successes(episodes[:1], "with") == {"with": 1.0, "with_a": 1.0}
    assert divide(160).successes(episodes, "with") == {"with": 0.75}


def test_tasks_of_a_mix_have_equally_many_episodes():
    check_whole(("a", "b"), {"judge.episodes": 4})
    with pytest.raises(UserError, match=r"judge\.episodes must be a multiple of 2, .* not 5"):
        check_whole(("a", "b"), {"judge.episodes": 5})

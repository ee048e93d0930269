"""Several tasks as one: seeds, limits of turns, options, players; tasks in other processes."""

import contextlib
import time

import pytest

from jaxrl_guided.envs.text.mix import Mix, Shelf
from jaxrl_guided.envs.text.record import play
from jaxrl_guided.envs.text.registry import text_task_names
from jaxrl_guided.envs.text.source import MIXES, Part, TaskSource, parts_of
from jaxrl_guided.envs.text.task import Opening, Reply, awaited, changed
from jaxrl_guided.envs.text.workers import TextTaskError, Workers
from jaxrl_guided.learners.language.seeds import divide
from tests.envs.text.counting import Down, Up

NAMES = "tests.envs.text.counting:Up+tests.envs.text.counting:Down"


@pytest.fixture
def source():
    made = []

    def make(*options, workers=0, name=NAMES):
        made.append(TaskSource(name, options, workers))
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_what_comes_later_is_changed_when_it_comes():
    known = iter([None, Opening("", "there", ""), None])
    opening = changed(
        Opening("", "", "", later=lambda: next(known)), lambda o: Opening("new", o.observation, "")
    )
    assert opening.later() is None
    assert opening.later() == Opening("new", "there", "")
    deep = Reply("", later=lambda: Reply("", later=lambda: Reply("at last")))
    assert awaited(changed(deep, lambda r: Reply(r.observation + "!"))) == Reply("at last!")


def test_tasks_take_turns_by_seeds():
    mix = Mix(["up", "down"], [Shelf(Up), Shelf(Down)])
    openings = [mix.reset(seed) for seed in range(8)]
    assert [o.system for o in openings] == ["Up", "Down"] * 4
    # Down has 16 episodes, two in an eighth, where Up has eight.
    assert [o.observation for o in openings] == [
        *("say 0", "say 0", "say 1", "say 1", "say 2", "say 0", "say 3", "say 1")
    ]
    assert (mix.max_turns, mix.instances) == (5, 128)


def test_no_episode_of_a_task_is_in_two_eighths():
    mix = Mix(["up", "down"], [Shelf(lambda: Up(instances=70)), Shelf(lambda: Down(instances=23))])
    seeds = divide(mix.instances, ["up", "down"])
    parts = [
        {(o.system, o.observation) for o in map(mix.reset, part)}
        for part in (seeds.judged, seeds.shown, seeds.played)
    ]
    assert [len(part) for part in parts] == [8 + 2, 8 + 2, 6 * 8 + 6 * 2]
    assert len(set.union(*parts)) == sum(map(len, parts))


def test_each_task_has_its_own_limit_of_turns():
    mix = Mix(["up", "down"], [Shelf(Up), Shelf(lambda: Down(slow=True))])
    for seed, turns in ((0, 3), (1, 5), (2, 3)):
        mix.reset(seed)
        replies = [awaited(mix.step("no")) for _ in range(turns)]
        assert [reply.truncated for reply in replies] == [False] * (turns - 1) + [True]
    mix.reset(3)
    for _ in range(4):
        mix.step("no")
    last = awaited(mix.step("say 1"))
    assert last.success
    assert not last.truncated


def test_tasks_are_shared_among_those_who_play():
    made = []

    def make():
        made.append(Up())
        return made[-1]

    shelves = [Shelf(make), Shelf(Down)]
    one, other = Mix(["up", "down"], shelves), Mix(["up", "down"], shelves)
    for _ in range(3):
        one.reset(0)
        other.reset(2)
    assert len(made) == 2
    other.reset(1)
    one.reset(4)
    assert len(made) == 2
    one.close()
    other.close()
    for shelf in shelves:
        shelf.close()


def test_a_task_of_few_episodes_is_no_part_of_a_mix():
    with pytest.raises(ValueError, match="at least 8 episodes; down has fewer"):
        Mix(["up", "down"], [Shelf(Up), Shelf(lambda: Down(instances=7))])


def test_options_are_for_all_that_have_them_or_for_one():
    up, down = parts_of(NAMES, ["turns=2", "Up.wait=0.5", "slow=true", "Down.turns=1"])
    assert up == Part("tests.envs.text.counting:Up", ["turns=2", "wait=0.5"])
    assert down == Part("tests.envs.text.counting:Down", ["turns=2", "slow=true", "turns=1"])
    assert (up.label, down.label) == ("Up", "Down")
    assert parts_of("route", ["a=1"]) == [Part("route", ["a=1"])]


def test_long_tasks_have_turns_enough_unless_one_says_how_many():
    parts = {part.label: part.options for part in parts_of("mix8", ["MazeWalk-9x9.max_turns=9"])}
    assert parts["River-Narrow"] == ["max_turns=200"]
    assert parts["MazeWalk-9x9"] == ["max_turns=9"]
    assert parts["sokoban"] == []


@pytest.mark.parametrize(
    "name, options, message",
    [
        (NAMES, ["speed=2"], "none of Up, Down has an option 'speed'"),
        (NAMES, ["Left.turns=2"], r"'Left.turns=2' is for none of the mix, Up, Down"),
        ("sokoban+sokoban", [], "different names, not 'sokoban' twice"),
        ("sokoban+nothing", ["a=1"], "unknown 'nothing'"),
        ("sokoban+", [], "unknown ''"),
    ],
)
def test_a_mix_that_cannot_be_is_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        TaskSource(name, options).make()


def test_presets_name_tasks_that_there_are():
    assert {name: len(parts) for name, parts in MIXES.items()} == {"mix3": 3, "mix6": 6, "mix8": 8}
    assert {name for parts in MIXES.values() for name in parts} <= set(text_task_names())


def test_players_play_their_own_tasks(source):
    made = source()
    task = made.make()
    opening = task.reset(4)
    turns = [*play(task, made.player(4).answer, opening.observation)]
    assert turns[-1].reply.success
    with pytest.raises(ValueError, match="nobody demonstrates"):
        made.player(5)
    assert made.labels == ["Up", "Down"]
    assert source(name="sokoban").labels == ["sokoban"]


def seen(task, seed, answers):
    """An episode as it is told."""
    opening = awaited(task.reset(seed))
    replies = [awaited(task.step(answer)) for answer in answers]
    return opening, [(r.observation, dict(r.rewards), r.terminated, r.truncated) for r in replies]


def test_in_other_processes_all_is_the_same(source):
    here, there = source("slow=true"), source("slow=true", workers=1)
    for seed in (0, 1, 17, 0):
        with contextlib.closing(here.make()) as ours, contextlib.closing(there.make()) as theirs:
            assert seen(ours, seed, ["a", "say 0"]) == seen(theirs, seed, ["a", "say 0"])
            assert (ours.max_turns, ours.instances) == (theirs.max_turns, theirs.instances)


@pytest.fixture
def workers():
    made = Workers("tests.envs.text.counting:Up", ["wait=0.2"], 2)
    yield made
    made.close()


def test_processes_work_at_the_same_time(workers):
    tasks = [workers.make() for _ in range(2)]
    openings = [task.reset(seed) for seed, task in enumerate(tasks)]
    assert [opening.later() for opening in openings] == [None, None]  # nobody waits
    assert [awaited(opening).observation for opening in openings] == ["say 0", "say 1"]
    begun = time.monotonic()
    replies = [task.step("say 0") for task in tasks]
    assert [awaited(reply).success for reply in replies] == [True, False]
    assert time.monotonic() - begun < 10  # of a busy machine


def test_an_episode_that_is_left_is_forgotten(workers):
    task = workers.make()
    task.reset(1)
    task.step("left")
    assert awaited(task.reset(2)).observation == "say 2"
    assert awaited(task.step("say 2")).success
    assert not task._process._answers
    assert not task._process._forgotten
    assert not task._process._asked


def test_long_answers_do_not_hold_each_other_up():
    """More than fits between the processes, in both directions at once."""
    made = Workers("tests.envs.text.counting:Up", ["turns=100"], 1)
    tasks = [made.make() for _ in range(4)]
    for task in tasks:
        task.reset(0)
    replies = [task.step("long") for task in tasks]
    more = [task.step("y" * 1_000_000) for task in tasks]
    assert [len(awaited(reply).observation) for reply in more] == [1_000_002] * 4
    assert replies[0].later is not None
    made.close()


def test_what_a_task_raises_is_told_with_its_traceback(workers):
    task = workers.make()
    task.reset(0)
    with pytest.raises(TextTaskError, match=r"counting:Up': KeyError(.|\n)*in step"):
        awaited(task.step("raise"))
    assert awaited(task.reset(3)).observation == "say 3"
    with pytest.raises(TextTaskError, match="instances"):
        Workers("tests.envs.text.counting:Up", ["instances=0"], 1).make()


def test_a_process_that_dies_is_noticed(workers):
    task = workers.make()
    task.reset(0)
    with pytest.raises(TextTaskError, match=r"process of task .* has died by signal 9"):
        awaited(task.step("die"))
    task.close()


def test_a_process_that_hangs_is_ended(workers):
    task = workers.make()
    awaited(task.reset(0))
    task._process._limit = 0.5
    reply = task.step("hang")
    assert reply.later() is None
    with pytest.raises(TextTaskError, match=r"process of task .* has not answered for 0\.5 s"):
        awaited(reply)
    with pytest.raises(TextTaskError, match="has died by signal 9"):
        awaited(task.reset(0))

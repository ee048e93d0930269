"""ALFWorld's task: protocols, options, and who succeeds in it."""

import pathlib
import subprocess
import sys
import threading

import pytest

from jaxrl_guided.envs.alfworld.compose import wanted_in
from jaxrl_guided.envs.alfworld.package import TASK_TYPES, read_catalogue, read_scenes
from jaxrl_guided.envs.alfworld.player import AlfworldPlayer
from jaxrl_guided.envs.alfworld.room import sparse
from jaxrl_guided.envs.alfworld.text_task import INVALID, AlfworldText
from jaxrl_guided.envs.text.task import TASK
from tests.envs.alfworld.household import need

need("alfworld")

SMALL = {"compact": True, "small": True, "rooms": 1}
VARIANTS = [
    {},
    {"split": "unseen", "protocol": "admissible"},
    {"split": "seen", "compact": True},
    SMALL,
    {**SMALL, "protocol": "admissible"},
]


def play(task, player, seed):
    """Messages and answers of an episode, and its last reply."""
    said = [task.reset(seed).observation]
    player.reset(seed)
    while True:
        said.append(player.answer(said[-1]))
        reply = task.step(said[-1])
        said.append(reply.observation)
        if reply.terminated or reply.truncated:
            return said, reply


def rate(options, games):
    task, player, won = AlfworldText(**options), AlfworldPlayer(), 0
    for seed in range(games):
        said, reply = play(task, player, seed)
        assert not any(text.startswith("Note:") for text in said)
        won += reply.success
    return won / games


@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_player_finds_and_places_things(options):
    assert rate(options, 12) >= 11 / 12


@pytest.mark.slow
@pytest.mark.parametrize("options", VARIANTS, ids=str)
def test_the_player_succeeds_nearly_always(options):
    assert rate(options, 600) >= 0.98


@pytest.mark.parametrize("name", TASK_TYPES)
def test_each_type_of_task_is_won_within_an_episode(name):
    assert rate({"types": name, "split": "unseen"}, 6) >= 5 / 6


def test_rooms_of_splits_are_others():
    seen, unseen = read_scenes(False), read_scenes(True)
    assert (len(seen), len(unseen)) == (96, 24)
    numbers = {number + room for number in (0, 200, 300, 400) for room in range(1, 7)}
    assert {scene.number for scene in unseen} == numbers
    assert not numbers & {scene.number for scene in seen}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("unseen", [False, True])
def test_the_first_room_of_each_kind_is_enough_for_all_tasks(unseen, small):
    catalogue, scenes = read_catalogue(), read_scenes(unseen)
    first = {scene.kind: scene for scene in reversed(scenes)}.values()
    first = [sparse(scene, catalogue) if small else scene for scene in first]
    for task in TASK_TYPES:
        assert any(True for scene in first for _ in wanted_in(scene, task, catalogue))


def test_no_game_is_won_at_its_start():
    for options in ({}, SMALL, {"split": "unseen"}):
        task = AlfworldText(**options)
        for seed in range(80):
            task.reset(seed)
            assert not task._engine.won


def test_seeds_and_splits_are_different_games():
    openings = [
        AlfworldText(split=split).reset(seed)
        for split in ("train", "seen", "unseen")
        for seed in range(20)
    ]
    assert len({(o.observation, o.description) for o in openings}) >= 58
    assert AlfworldText().reset(4) == openings[4]
    assert AlfworldText().instances == 2**31


def test_the_description_is_the_goal():
    opening = AlfworldText().reset(0)
    goal = opening.description.removeprefix("ALFWorld: ")
    assert opening.observation.endswith(f"\n\nYour task is to: {goal}")
    compact = AlfworldText(compact=True).reset(0)
    assert compact.observation.startswith(f"Goal: {goal.rstrip('.')}\n")
    assert compact.description == opening.description


def test_the_protocol_of_the_paper():
    task = AlfworldText(max_turns=2)
    assert AlfworldText().max_turns == 40
    assert "Actions:" not in task.reset(0).observation
    first = task.step("<answer>fly</answer>")
    assert not first.acted
    assert first.rewards == {TASK: 0.0}
    assert first.observation == "Note: nothing happens, 'fly' is not possible here."
    last = task.step("<answer>look</answer>")
    assert last.acted
    assert last.truncated
    assert last.rewards == {TASK: -1.0}


def test_the_protocol_with_admissible_actions():
    task = AlfworldText(protocol="admissible", max_turns=2)
    assert AlfworldText(protocol="admissible").max_turns == 50
    opening = task.reset(0).observation
    actions = opening.rpartition("\nActions: ")[2].split(", ")
    assert {"look", "inventory"} < set(actions)
    assert "help" not in actions
    first = task.step("I fly")
    assert not first.acted
    assert first.rewards == {TASK: 0.0, INVALID: -0.1}
    assert first.observation.startswith("Note: no <answer>…</answer>")
    assert first.observation.rpartition("\nActions: ")[2].split(", ") == actions
    last = task.step(f"<answer>fly</answer> no: <answer>{actions[0]}</answer>")
    assert last.acted
    assert last.truncated
    assert last.rewards == {TASK: 0.0}


def test_a_win_is_worth_one():
    for protocol in ("paper", "admissible"):
        _, reply = play(AlfworldText(protocol=protocol), AlfworldPlayer(), 0)
        assert reply.success
        assert reply.terminated
        assert not reply.truncated
        assert reply.rewards == {TASK: 1.0}


def test_small_games_have_few_words():
    task, player, words = AlfworldText(**SMALL), AlfworldPlayer(), set()
    for seed in range(150):
        said, _ = play(task, player, seed)
        assert max(len(text.split()) for text in said) <= 30
        words |= {word for text in said for word in text.split()}
    assert len(words) < 300


def test_games_in_threads_are_the_same_games():
    def played(found, seeds):
        task, player = AlfworldText(), AlfworldPlayer()
        found.extend(play(task, player, seed)[0] for seed in seeds)

    alone, together = [], [[], []]
    played(alone, range(10))
    threads = [
        threading.Thread(target=played, args=(found, seeds))
        for found, seeds in zip(together, (range(5), range(5, 10)), strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together[0] + together[1] == alone


def test_another_process_sees_the_same_and_leaves_nothing_at_home(tmp_path):
    code = (
        "from jaxrl_guided.envs.alfworld.text_task import AlfworldText;"
        "import sys; task = AlfworldText(small=True);"
        "print([task.reset(seed) for seed in range(8)], end='');"
        "assert not {'alfworld', 'textworld', 'fast_downward'} & set(sys.modules)"
    )
    root = pathlib.Path(__file__).parents[3]
    environment = {"HOME": str(tmp_path), "PYTHONPATH": str(root), "PYTHONHASHSEED": "3"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, check=True, env=environment, capture_output=True, text=True)
    assert list(tmp_path.iterdir()) == []
    task = AlfworldText(small=True)
    assert done.stdout == str([task.reset(seed) for seed in range(8)])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"split": "test"}, "split must be one of train, seen, unseen, not 'test'"),
        ({"protocol": "x"}, "protocol must be one of paper, admissible, not 'x'"),
        ({"max_turns": -1}, "max_turns must be at least 0, not -1"),
        ({"rooms": -1}, "rooms must be at least 0, not -1"),
        ({"types": "pick"}, "types must be all, or of pick_and_place_simple, .*, not 'pick'"),
        ({"types": "all+pick_two_obj_and_place"}, "not 'all'"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        AlfworldText(**options)

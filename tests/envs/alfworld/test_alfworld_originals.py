"""A user's own games: which are found, how they are played, and what is said of those that fail."""

import json

import pytest

from jaxrl_guided.envs.alfworld.compose import Game, compose
from jaxrl_guided.envs.alfworld.package import TASK_TYPES
from jaxrl_guided.envs.alfworld.text_task import AlfworldText
from tests.envs.alfworld.household import CATALOGUE
from tests.envs.alfworld.test_compose import BEDROOM


def content(game: Game, **other):
    return {
        "pddl_domain": game.domain,
        "grammar": game.grammar,
        "pddl_problem": game.problem,
        "solvable": True,
        **other,
    }


@pytest.fixture
def root(tmp_path):
    games = [compose(f"{n}", (BEDROOM,), TASK_TYPES[n : n + 1], CATALOGUE, 1) for n in (0, 1)]
    put, look = (content(game) for game in games)
    for folder, what in (
        ("json_2.1.1/train/pick_and_place_simple-Mug-None-Desk-3/trial_1", put),
        ("json_2.1.1/train/look_at_obj_in_light-Book-None-DeskLamp-3/trial_1", look),
        ("json_2.1.1/train/pick_and_place_simple-Mug-None-Desk-3/trial_2", {**put, "solvable": 0}),
        ("json_2.1.1/train/pick_and_place_with_movable_recep-A-Mug-Desk-3/trial_1", put),
        ("json_2.1.1/train/pick_heat_then_place_in_recep-AppleSliced-None-Desk-3/trial_1", put),
        ("json_2.1.1/valid_seen/pick_and_place_simple-Mug-None-Desk-3/trial_3", put),
    ):
        directory = tmp_path / folder
        directory.mkdir(parents=True)
        (directory / "game.tw-pddl").write_text(json.dumps(what))
    return tmp_path


def test_those_that_can_be_solved_are_played(root):
    task = AlfworldText(data=str(root))
    assert task.instances == 2
    told = [task.reset(seed).description for seed in range(2)]
    assert told[0].startswith("ALFWorld: look at ")
    assert told[1].startswith("ALFWorld: put a ")
    assert task.reset(1) == task.reset(1)
    thing, place = told[1].removeprefix("ALFWorld: put a ").rstrip(".").split(" in ")
    other = {"desk": "shelf", "shelf": "desk"}[place]
    for said in (
        f"go to {other} 1",
        f"take {thing} 1 from {other} 1",
        f"go to {place} 1",
        f"move {thing} 1 to {place} 1",  # the game itself calls it put
    ):
        reply = task.step(f"<answer>{said}</answer>")
        assert reply.acted
    assert reply.success


def test_splits_and_types_choose_among_them(root):
    assert AlfworldText(data=str(root), split="seen").instances == 1
    assert AlfworldText(data=str(root), types="look_at_obj_in_light").instances == 1
    inner = root / "json_2.1.1" / "valid_seen"
    assert AlfworldText(data=str(inner), split="unseen").instances == 1
    with pytest.raises(ValueError, match=r"no file game.tw-pddl of a game that can be solved, of"):
        AlfworldText(data=str(root), split="seen", types="look_at_obj_in_light")


def test_a_type_may_stand_in_the_trajectory(root):
    directory = root / "mine"
    directory.mkdir()
    game = compose("2", (BEDROOM,), TASK_TYPES[:1], CATALOGUE, 1)
    (directory / "game.tw-pddl").write_text(json.dumps(content(game)))
    with pytest.raises(ValueError, match=r"its traj_data\.json does not tell it"):
        AlfworldText(data=str(directory))
    (directory / "traj_data.json").write_text('{"task_type": "pick_and_place_simple"}')
    assert AlfworldText(data=str(directory)).instances == 1


@pytest.mark.parametrize(
    "text, message",
    [
        ("{", "game.tw-pddl' cannot be read"),
        ("[]", "game.tw-pddl' is of an old format, without pddl_domain, grammar, pddl_problem"),
        ('{"pddl_domain": "x", "solvable": true}', "is of an old format"),
        (
            '{"pddl_domain": "(a", "grammar": "", "pddl_problem": "", "solvable": true}',
            "is not understood: .*names no task",
        ),
        (
            json.dumps(content(Game("g", "(a", '"Your task is to: go."', ""))),
            "is not understood: .*a bracket is not closed",
        ),
    ],
)
def test_a_file_that_is_no_game_is_named(tmp_path, text, message):
    directory = tmp_path / "pick_and_place_simple-Mug-None-Desk-3"
    directory.mkdir()
    (directory / "game.tw-pddl").write_text(text)
    with pytest.raises(ValueError, match=message):
        AlfworldText(data=str(tmp_path))


def test_a_directory_must_be_there(tmp_path):
    with pytest.raises(ValueError, match="there is no directory"):
        AlfworldText(data=str(tmp_path / "none"))
    with pytest.raises(ValueError, match="leave them out with data"):
        AlfworldText(data=str(tmp_path), small=True)

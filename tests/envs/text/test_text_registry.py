"""Text tasks by name: users' own, their options, and what is refused."""

import functools
import importlib
import sys

import pytest

from jaxrl_guided.envs.text.registry import (
    make_demonstrator,
    make_text_task,
    register_text_task,
    text_task_names,
)
from jaxrl_guided.envs.text.task import TASK, Opening, Reply
from jaxrl_guided.runtime.options import parse_options


class Corridor:
    """Ends with success at the answer that was told."""

    max_turns, instances = 3, 64

    def __init__(self, size: int = 2, hint: bool = False, name: str | None = None):
        self.size, self.hint, self.name = size, hint, name

    def reset(self, seed):
        self.wanted = f"door {seed % self.size}"
        return Opening("Say a door.", self.wanted if self.hint else "?", "Find the door.")

    def step(self, answer):
        return Reply("", {TASK: 1.0}, terminated=True, success=answer == self.wanted)

    def close(self):
        """Nothing to free."""


class Player:
    def reset(self, seed):
        """Nothing to forget."""

    def answer(self, observation):
        return observation


class LoudPlayer(Player):
    def __init__(self, name: str = ""):
        self.name = name


class NoTask:
    max_turns = 0

    def reset(self, seed):
        """No episode."""


@pytest.fixture
def registered(monkeypatch):
    from jaxrl_guided.envs.text import registry

    monkeypatch.setattr(registry, "_TASKS", dict(registry._TASKS))
    register_text_task("corridor", Corridor, Player)
    register_text_task("nothing", NoTask)


def test_a_task_of_ones_own_is_made_and_played_by_name(registered):
    assert "corridor" in text_task_names()
    task = make_text_task("corridor", size=3, hint=True)
    assert task.reset(5).observation == "door 2"
    assert task.step(make_demonstrator("corridor").answer("door 2")).success
    with pytest.raises(ValueError, match="'corridor' is already registered"):
        register_text_task("corridor", Corridor)
    with pytest.raises(ValueError, match="without a colon"):
        register_text_task("a:b", Corridor)


def test_a_player_is_given_those_options_of_the_task_that_it_has(registered):
    register_text_task("loud", Corridor, LoudPlayer)
    assert make_demonstrator("loud", size=3, name="mine").name == "mine"
    assert make_demonstrator("corridor", size=3).answer("door 1") == "door 1"


def test_a_module_that_is_named_registers_its_tasks(tmp_path, monkeypatch, registered):
    path = tmp_path / "text_tasks_of_mine.py"
    path.write_text(
        "from jaxrl_guided.envs.text.registry import register_text_task\n"
        "from tests.envs.text.test_text_registry import Corridor\n"
        "register_text_task('hall', Corridor)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    assert make_text_task("text_tasks_of_mine:hall").instances == 64
    with pytest.raises(ValueError, match="nobody demonstrates 'text_tasks_of_mine:hall'"):
        make_demonstrator("text_tasks_of_mine:hall")
    with pytest.raises(ValueError, match="needs the module 'no_such_module': ModuleNotFoundError"):
        make_text_task("no_such_module:hall")
    sys.modules.pop("text_tasks_of_mine")


OWN = """
from __future__ import annotations
from tests.envs.text.test_text_registry import Corridor, NoTask, Player

class Hall(Corridor):
    demonstrator = Player

    def __init__(self, size: int = 2, name: str | None = None):
        super().__init__(size, True)

class Mute(Hall):
    demonstrator = NoTask

number = 3
"""


@pytest.fixture
def own(tmp_path, monkeypatch):
    (tmp_path / "halls.py").write_text(OWN)
    (tmp_path / "broken.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("halls", None)


def test_a_class_of_a_module_is_a_task(own):
    task = make_text_task("halls:Hall", size=4)
    assert task.reset(6).observation == "door 2"
    assert task.step(make_demonstrator("halls:Hall").answer("door 2")).success


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: make_text_task("halls:Hal"),
            ValueError,
            "unknown 'halls:Hal'; did you mean halls:Hall?",
        ),
        (
            lambda: make_text_task("halls:number"),
            ValueError,
            "module 'halls' registers no such task and has no such class or function",
        ),
        (
            lambda: make_text_task("broken:Hall"),
            ValueError,
            "task: 'broken:Hall' needs the module 'broken': ModuleNotFoundError: .*no_such_module",
        ),
        (lambda: make_text_task("halls:NoTask"), ValueError, "What lacks: step, close, max_turns"),
        (lambda: make_text_task("halls:Hall", size="a"), TypeError, "type int, not 'a'"),
        (lambda: make_text_task("halls:Hall", name=1), TypeError, "type str or NoneType, not 1"),
        (
            lambda: make_demonstrator("halls:Corridor"),
            ValueError,
            "nobody demonstrates 'halls:Corridor'",
        ),
        (
            lambda: make_demonstrator("halls:Mute"),
            ValueError,
            "demonstrator of task 'halls:Mute' must have .* What lacks: answer",
        ),
    ],
)
def test_what_a_module_does_not_have_is_said(own, make, error, message):
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("corridr", {}, ValueError, "did you mean corridor"),
        ("minihack/Room-5", {}, ValueError, "unknown 'minihack/Room-5'"),
        ("nothing", {}, ValueError, "What lacks: step, close, max_turns, instances"),
        ("corridor", {"length": 2}, TypeError, "no option length; it has size, hint, name"),
        ("route", {"size": 2}, TypeError, "no option size; it has none"),
        ("corridor", {"size": 1.5}, TypeError, "size of corridor must be of type int, not 1.5"),
        ("corridor", {"size": "two"}, TypeError, "must be of type int, not 'two'"),
        ("corridor", {"size": True}, TypeError, "must be of type int, not True"),
        ("corridor", {"hint": "no"}, TypeError, "hint of corridor must be of type bool, not 'no'"),
        ("corridor", {"name": 3}, TypeError, "name of corridor must be of type str or NoneType"),
        ("minihack/Room-5x5", {"max_turns": 1.5}, TypeError, "max_turns .* of type int, not 1.5"),
        ("minihack/Room-5x5", {"compact": "no"}, TypeError, "compact .* of type bool, not 'no'"),
        ("minihack/Room-5x5", {"task": "Room-5x5"}, TypeError, "no option task; it has max_turns"),
    ],
)
def test_what_cannot_be_made_is_said(registered, name, options, error, message):
    with pytest.raises(error, match=message):
        make_text_task(name, **options)


def test_true_and_false_are_no_texts():
    found = parse_options(("a=true", "b=False", "c=FALSE", "d=truth"), {})
    assert found == {"a": True, "b": False, "c": False, "d": "truth"}


def test_options_of_functions_are_checked_too(registered):
    def make(**options):
        return Corridor(**options)

    register_text_task("any", make)
    assert make_text_task("any", size=4).size == 4
    register_text_task("some", functools.partial(Corridor, 3))
    assert make_text_task("some").size == 3
    with pytest.raises(TypeError, match="it has hint, name"):
        make_text_task("some", size=4)

"""A task with advice against the task alone."""

import numpy as np
import pytest

from jaxrl_guided.complementary.advised import NO_MORE, Advised, actions_of
from jaxrl_guided.complementary.bank import Entry
from jaxrl_guided.envs.text.task import TASK, Opening, Reply
from jaxrl_guided.learners.language.rollouts import Episode, Start

QUESTION = "hm <knowledge_search_and_ask> which way? </knowledge_search_and_ask>"
ENTRY = Entry("Walls", "Walk along them.", np.zeros(2, np.float32), id=3)


class Count:
    """Ends with success at the third step, if its limit of turns allows."""

    instances = 5

    def __init__(self, max_turns=4):
        self.max_turns = max_turns

    def reset(self, seed):
        self.steps, self.closed = 0, False
        return Opening("rules", "go", f"count {seed}")

    def step(self, answer):
        self.steps += 1
        over = self.steps == 3
        return Reply(f"{self.steps}", {TASK: float(over)}, terminated=over, success=over)

    def close(self):
        self.closed = True


def asking():
    """An `ask` that answers at the second look, and what it was asked."""
    asked = []

    def ask(question):
        asked.append(question)
        looks = iter((None, f"answer {len(asked)}"))
        return lambda: next(looks)

    return ask, asked


def test_without_help_it_is_the_task():
    task = Advised(Count())
    assert task.reset(2) == Opening("rules", "go", "count 2")
    replies = [task.step(QUESTION) for _ in range(3)]  # a question is an answer like any other
    assert [reply.observation for reply in replies] == ["1", "2", "3"]
    assert replies[-1].success
    assert task.instances == 5


def test_notes_and_the_tool_stand_in_the_system_message():
    task, (ask, _) = Advised(Count()), asking()
    opening = task.reset(0)
    full = task.help(opening, [ENTRY], ask)
    assert full.system.startswith("rules\nInstead of an action you may ask for advice, at most 2")
    assert full.system.endswith("1. <title>Walls</title><content>Walk along them.</content>")
    assert (full.observation, full.description) == ("go", "count 0")
    assert task.help(opening, [], None).system == "rules"
    assert "Walls" not in task.help(opening, [], ask).system
    silent = Advised(Count(), most=0)
    assert silent.help(silent.reset(0), [], ask).system == "rules"


def test_a_question_costs_a_turn_and_no_step():
    inner = Count()
    task, (ask, asked) = Advised(inner), asking()
    task.help(task.reset(0), [], ask)
    assert task.step("east").observation == "1"
    reply = task.step(QUESTION)
    assert (asked, inner.steps) == (["which way?"], 1)
    assert reply.later() is None
    assert reply.later() == Reply("answer 1", role="tool")
    assert task.step(QUESTION).later is not None
    refused = task.step(QUESTION)
    assert (refused.observation, refused.acted, refused.role) == (NO_MORE, False, "tool")
    assert inner.steps == 1
    assert [task.step("east").terminated for _ in range(2)] == [False, True]


@pytest.mark.parametrize("questions", [0, 2])
def test_the_limit_of_turns_is_that_of_the_task(questions):
    task, (ask, _) = Advised(Count(max_turns=2)), asking()
    task.help(task.reset(0), [], ask)
    for _ in range(questions):
        task.step(QUESTION)
    assert not task.step("east").truncated
    assert task.step("east").truncated
    assert task.max_turns == 4


def test_a_new_episode_has_no_help_of_the_last_one():
    inner = Count()
    task, (ask, asked) = Advised(inner), asking()
    task.help(task.reset(0), [], ask)
    task.step(QUESTION)
    task.reset(1)
    task.step(QUESTION)
    assert (len(asked), inner.steps) == (1, 1)
    task.close()
    assert inner.closed


def test_questions_and_unread_answers_are_no_steps_of_the_task():
    said = [
        ("system", "rules"),
        ("user", "go"),
        ("assistant", QUESTION),
        ("tool", "east"),
        ("assistant", QUESTION),
        ("tool", NO_MORE),
        ("assistant", "east"),
        ("user", "Say a direction."),
        ("assistant", QUESTION),  # of an episode that may not ask: an answer like any other
        ("user", "1"),
        ("assistant", "go east"),
    ]
    none = np.zeros(0)
    episode = Episode(Start(0, 0), "", said, none, none, none, {}, True, 5, 2, "terminated", 0)
    assert actions_of(episode) == 2

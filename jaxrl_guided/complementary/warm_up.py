"""Scripted play and scripted words for both models, from seeds that nothing else uses.

An actor learns to play in several manners, to follow a note that names one, and to ask. An
extractor learns the form of its answers: a note of what succeeded, another one in place of a note
that failed, equal notes merged. Which manner is worth a note neither is told.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from jaxrl_guided.backbones.chat import first_messages
from jaxrl_guided.complementary import prompts
from jaxrl_guided.complementary.advised import Advised
from jaxrl_guided.complementary.bank import Entry
from jaxrl_guided.complementary.bank.records import text_of
from jaxrl_guided.complementary.consolidation import distil_text
from jaxrl_guided.complementary.extractor import ExtractorConfig
from jaxrl_guided.complementary.lessons import QUESTION, Lesson
from jaxrl_guided.envs.text.task import Demonstrator, Opening, Reply, awaited
from jaxrl_guided.learners.language.demonstrations import Demonstration, demonstrate

_TOLD, _MAY_ASK, _ASKS = 0.5, 0.5, 0.5
"""Shares of episodes with a note, of those with the tool for questions, of those that use it."""

_MERGES, _ANSWERS = 4, 4
"""Episodes for each merge and each answer that are shown."""


class Taught(NamedTuple):
    """An episode of scripted play.

    Attributes:
      shown: what was said.
      description: of the task.
      lesson: number of the lesson that was played.
      told: the player was shown the lesson's note.
    """

    shown: Demonstration
    description: str
    lesson: int
    told: bool


def play_lessons(
    task: Advised, lessons: Sequence[Lesson], seeds: Iterable[int], random: np.random.Generator
) -> list[Taught]:
    """Plays an episode of each seed, in a manner drawn for it."""
    found = []
    for seed in seeds:
        number = int(random.integers(len(lessons)))
        told, may_ask, asks = random.random(3) < (_TOLD, _MAY_ASK, _ASKS)
        lesson = lessons[number]
        stage = _Stage(task, lesson, bool(told), bool(told and may_ask))
        player: Demonstrator = lesson.player()
        if told and may_ask and asks:
            player = _Asking(player)
        (shown,) = demonstrate(stage, player, [seed])
        found.append(Taught(shown, stage.description, number, bool(told)))
    return found


def extractor_lessons(
    taught: Sequence[Taught],
    lessons: Sequence[Lesson],
    config: ExtractorConfig,
    random: np.random.Generator,
) -> list[Demonstration]:
    """What an extractor says of episodes, of notes to merge, and to questions."""
    found = [_distilled(episode, lessons, config, random) for episode in taught]
    for _ in range(len(taught) // _MERGES):
        found.append(_merged(lessons, config, random))
    for number in range(len(taught) // _ANSWERS):
        found.append(_answered(taught[number % len(taught)].description, lessons, config, random))
    return found


class _Stage:
    """A task in which the player is told a lesson, and gets its note for an answer."""

    def __init__(self, task: Advised, lesson: Lesson, told: bool, may_ask: bool) -> None:
        self.max_turns, self.instances, self.description = task.max_turns, task.instances, ""
        self._task, self._lesson, self._told, self._may_ask = task, lesson, told, may_ask

    def reset(self, seed: int) -> Opening:
        opening = awaited(self._task.reset(seed))
        self.description = opening.description
        lesson = self._lesson
        notes = [Entry(lesson.title, lesson.content, np.zeros(0))] if self._told else []
        ask = (lambda text: lambda: lesson.content) if self._may_ask else None
        return self._task.help(opening, notes, ask)

    def step(self, answer: str) -> Reply:
        return awaited(self._task.step(answer))

    def close(self) -> None:
        self._task.close()


class _Asking:
    """Asks first, then plays from the message that it was first shown."""

    def __init__(self, player: Demonstrator) -> None:
        self._player, self._first, self._turn = player, "", 0

    def reset(self, seed: int) -> None:
        self._player.reset(seed)
        self._turn = 0

    def answer(self, observation: str) -> str:
        self._turn += 1
        if self._turn == 1:
            self._first = observation
            return f"<knowledge_search_and_ask>{QUESTION}</knowledge_search_and_ask>"
        return self._player.answer(self._first if self._turn == 2 else observation)


def _distilled(
    episode: Taught,
    lessons: Sequence[Lesson],
    config: ExtractorConfig,
    random: np.random.Generator,
) -> Demonstration:
    messages: list[tuple[str, str]] = [(m["role"], m["content"]) for m in episode.shown.opening]
    for said, message in episode.shown.turns:
        messages.append(("assistant", said))
        messages += [(message["role"], message["content"])] if message else []
    notes = [_text(lessons[episode.lesson])] if episode.told else []
    success = episode.shown.success
    asked = distil_text(episode.description, success, messages, notes, config.most, config.compact)
    if success == episode.told:  # a note that helped, or a failure without one
        return _said(asked, [{"operation": "return"}])
    if success:
        return _said(asked, [{"operation": "add", "new_memory": _text(lessons[episode.lesson])}])
    other = (episode.lesson + int(random.integers(1, len(lessons)))) % len(lessons)
    memory = _text(lessons[other])
    return _said(asked, [{"operation": "update", "target_idx": [1], "new_memory": memory}])


def _merged(
    lessons: Sequence[Lesson], config: ExtractorConfig, random: np.random.Generator
) -> Demonstration:
    """Equal notes become one; of notes that differ all stay."""
    size = int(random.integers(2, config.merge.chunk + 1)) if config.merge else 2
    few = random.choice(len(lessons), size=min(3, len(lessons)), replace=False)
    chosen = [int(number) for number in random.choice(few, size=size)]
    texts = [_text(lessons[number]) for number in chosen]
    asked = prompts.render("merge", config.compact, entries=prompts.numbered(texts))
    operations: list[dict[str, Any]] = []
    for number in dict.fromkeys(chosen):
        targets = [place for place, other in enumerate(chosen, 1) if other == number]
        if len(targets) > 1:
            memory = _text(lessons[number])
            operations.append({"operation": "merge", "target_idx": targets, "new_memory": memory})
    return _said(asked, operations or [{"operation": "return"}])


def _answered(
    description: str,
    lessons: Sequence[Lesson],
    config: ExtractorConfig,
    random: np.random.Generator,
) -> Demonstration:
    """The note that was found, or without one any manner of play."""
    lesson = lessons[int(random.integers(len(lessons)))]
    entry = _text(lesson) if random.random() < _TOLD else "none"
    asked = prompts.render(
        "ask", config.compact, description=description, question=QUESTION, entry=entry
    )
    return Demonstration(
        first_messages("", asked), [(f"<answer>{lesson.content}</answer>", None)], True
    )


def _said(asked: str, operations: Sequence[dict[str, Any]]) -> Demonstration:
    answer = f"<answer>{json.dumps(operations)}</answer>"
    return Demonstration(first_messages("", asked), [(answer, None)], True)


def _text(lesson: Lesson) -> str:
    return text_of(lesson.title, lesson.content)

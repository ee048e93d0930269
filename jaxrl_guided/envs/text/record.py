"""Episodes of text tasks as a person or a script plays them, on record to be played again."""

import dataclasses
import json
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from jaxrl_guided.envs.text.task import Reply, TextTask, awaited


@dataclasses.dataclass(frozen=True)
class Turn:
    """An answer and what followed.

    Attributes:
      reply: never one that comes later.
    """

    answer: str
    reply: Reply


@dataclasses.dataclass(frozen=True)
class Record:
    """An episode.

    Attributes:
      task: name, as of `make_text_task`.
      options: of the task, `NAME=VALUE` each.
      seed: of the episode.
      answers: all that was said.
      observations: what followed each answer; after the last one it may be missing.
    """

    task: str
    options: Sequence[str]
    seed: int
    answers: Sequence[str]
    observations: Sequence[str]

    def line(self) -> str:
        """One line of JSON."""
        return json.dumps(dataclasses.asdict(self), ensure_ascii=False)


def play(task: TextTask, answer: Callable[[str], str | None], observation: str) -> Iterator[Turn]:
    """Turns of an episode that was reset, until it is over or there is no answer.

    Args:
      answer: `observation -> str`; None: whoever plays has left.
      observation: of the opening.
    """
    for _ in range(task.max_turns):
        said = answer(observation)
        if said is None:
            return
        reply = awaited(task.step(said))
        yield Turn(said, reply)
        if reply.terminated or reply.truncated:
            return
        observation = reply.observation


def read_records(file: str) -> list[Record]:
    """Episodes of a file of JSON lines.

    Raises:
      ValueError: it cannot be read, or a line is no record; the line is named.
    """
    try:
        lines = pathlib.Path(file).expanduser().read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"record '{file}' cannot be read: {error}") from None
    if not lines:
        raise ValueError(f"record '{file}' is empty; experiments.play --record=FILE writes one")
    return [_record(file, number, line) for number, line in enumerate(lines, 1)]


def _record(file: str, number: int, line: str) -> Record:
    try:
        data: Mapping[str, Any] = json.loads(line)
        record = Record(**{field.name: data[field.name] for field in dataclasses.fields(Record)})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"record '{file}', line {number}, is no episode: {error}") from None
    told = (record.options, record.answers, record.observations)
    if not (isinstance(record.seed, int) and all(map(_is_texts, told))):
        raise ValueError(
            f"record '{file}', line {number}, is no episode: seed must be a number, and options, "
            "answers and observations lists of texts"
        )
    if len(record.answers) - len(record.observations) not in (0, 1):
        raise ValueError(
            f"record '{file}', line {number}, is no episode: it needs as many observations as "
            "answers, or one less"
        )
    return record


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)

"""Plays a text task in the terminal: by hand, by its scripted player, or again from a record.

    python -m experiments.play --task=sokoban
    python -m experiments.play --task=webshop --options=products=40,compact=true --seed=3
    python -m experiments.play --task=minihack/Room-5x5 --scripted
    python -m experiments.play --task=sokoban --record=mine.jsonl
    python -m experiments.play --replay=mine.jsonl
    python -m experiments.play --replay=runs/route/episodes/000300.jsonl

What you type is put into <answer>…</answer> unless it is there already. An empty line, or the end
of the input (Ctrl-D), leaves the game.
"""

import contextlib
import pathlib
from collections.abc import Callable, Iterator, Sequence

from absl import flags

from jaxrl_guided.envs.text.record import Record, Turn, play, read_records
from jaxrl_guided.envs.text.registry import text_task_names
from jaxrl_guided.envs.text.source import MIXES, TaskSource
from jaxrl_guided.envs.text.task import TextTask, awaited
from jaxrl_guided.runtime import app
from jaxrl_guided.runtime.errors import UserError, validation

_PLAIN = ", ".join((*(name for name in text_task_names() if "/" not in name), *MIXES))
_TASK = flags.DEFINE_string(
    "task",
    None,
    f"Name of a task: {_PLAIN}, minihack/… or MODULE:NAME for one of your own; names with + "
    "between them are a mix, whose episodes are of one after the other.",
)
_OPTIONS = flags.DEFINE_list(
    "options", [], "Options of the task, NAME=VALUE each; TASK.NAME=VALUE for one of a mix."
)
_SEED = flags.DEFINE_integer("seed", 0, "Which episode of the task.", 0)
_SCRIPTED = flags.DEFINE_bool("scripted", False, "Let the task's scripted player answer.")
_RECORD = flags.DEFINE_string("record", None, "File to add the episode to, as a line of JSON.")
_REPLAY = flags.DEFINE_string("replay", None, "Record to play again; checks that nothing differs.")

Answer = Callable[[str], str | None]


def run() -> None:
    """Plays what the flags say."""
    if (_TASK.value is None) == (_REPLAY.value is None):
        raise UserError("give --task to play one, or --replay to see a record, not both")
    if _REPLAY.value is not None:
        if _SCRIPTED.value or _RECORD.value or _OPTIONS.value:
            raise UserError("--replay plays what is on record: no --scripted, --record, --options")
        with validation():
            records = read_records(_REPLAY.value)
        for record in records:
            _replay(record)
        return
    if _RECORD.value and not pathlib.Path(_RECORD.value).expanduser().parent.is_dir():
        raise UserError(f"--record={_RECORD.value}: its directory does not exist; create it first")
    with _made(str(_TASK.value), _OPTIONS.value, _SEED.value) as (source, task):
        record = _play(source, task)
    if _RECORD.value:
        with validation(), pathlib.Path(_RECORD.value).expanduser().open("a") as file:
            file.write(f"{record.line()}\n")


@contextlib.contextmanager
def _made(name: str, options: Sequence[str], seed: int) -> Iterator[tuple[TaskSource, TextTask]]:
    """A task that has the episode `seed`, and where it comes from."""
    with validation():
        source = TaskSource(name, options)
        task = source.make()
    with contextlib.closing(source), contextlib.closing(task):
        if seed >= task.instances:
            raise UserError(f"--seed must be below {task.instances}, the episodes of task {name}")
        yield source, task


def _play(source: TaskSource, task: TextTask) -> Record:
    """An episode by hand or by script."""
    if _SCRIPTED.value:
        with validation():
            player = source.player(_SEED.value)
        player.reset(_SEED.value)
        answer = _aloud(player.answer)
    else:
        answer = _typed
    turns = [*_shown(task, _SEED.value, answer)]
    _conclude(task, turns)
    return Record(
        task=str(_TASK.value),
        options=_OPTIONS.value,
        seed=_SEED.value,
        answers=[turn.answer for turn in turns],
        observations=[turn.reply.observation for turn in turns],
    )


def _replay(record: Record) -> None:
    """Plays the answers again; an observation that is another one ends it."""
    answers = iter(record.answers)
    print(f"{record.task}, seed {record.seed}")
    with _made(record.task, record.options, record.seed) as (_, task):
        turns = []
        for turn in _shown(task, record.seed, _aloud(lambda _: next(answers, None))):
            turns.append(turn)
            shown = [each.reply.observation for each in turns]
            # What follows the last answer may not be on record.
            if shown[: len(record.observations)] != record.observations[: len(shown)]:
                raise UserError(
                    f"--replay={_REPLAY.value}: turn {len(turns)} of {record.task}, seed "
                    f"{record.seed}, shows something else than on record; was it made with "
                    "another version?"
                )
        _conclude(task, turns)


def _shown(task: TextTask, seed: int, answer: Answer) -> Iterator[Turn]:
    """The turns of an episode, each shown as it is played."""
    opening = awaited(task.reset(seed))
    print(f"{opening.system}\n\n{opening.observation}\n")
    for turn in play(task, answer, opening.observation):
        print(f"\n{turn.reply.observation}\n" if turn.reply.observation else "")
        yield turn


def _aloud(answer: Answer) -> Answer:
    """The same answers, shown as if they were typed."""

    def told(observation: str) -> str | None:
        said = answer(observation)
        if said is not None:
            print(f"> {said}")
        return said

    return told


def _typed(observation: str) -> str | None:
    """What a person types; None at the end of the input, or for nothing."""
    try:
        said = input("> ").strip()
    except EOFError:
        return None
    if not said:
        return None
    return said if "<" in said else f"<answer>{said}</answer>"


def _conclude(task: TextTask, turns: list[Turn]) -> None:
    rewards: dict[str, float] = {}
    for turn in turns:
        for name, reward in turn.reply.rewards.items():
            rewards[name] = rewards.get(name, 0.0) + reward
    told = ", ".join(f"{name} {reward:g}" for name, reward in rewards.items()) or "none"
    success = any(turn.reply.success for turn in turns)
    ended = "Success" if success else "No success"
    print(f"{ended} after {len(turns)} of at most {task.max_turns} turns; rewards: {told}")


if __name__ == "__main__":
    app.main(run)

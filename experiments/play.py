"""Plays a text task in the terminal: by hand, by its scripted player, or again from a record.

    python -m experiments.play --task=sokoban
    python -m experiments.play --task=webshop --options=products=40,compact=true --seed=3
    python -m experiments.play --task=minihack/Room-5x5 --scripted
    python -m experiments.play --task=sokoban --record=mine.jsonl
    python -m experiments.play --replay=mine.jsonl

What you type is put into <answer>…</answer> unless it is there already. An empty line, or the end
of the input (Ctrl-D), leaves the game.
"""

import contextlib
import pathlib
from collections.abc import Callable

from absl import flags

from jaxrl_guided.envs.text.record import Record, Turn, awaited, play, read_records
from jaxrl_guided.envs.text.registry import make_demonstrator, make_text_task, text_task_names
from jaxrl_guided.envs.text.task import TextTask
from jaxrl_guided.runtime import app
from jaxrl_guided.runtime.errors import UserError, validation
from jaxrl_guided.runtime.options import parse_options

_TASK = flags.DEFINE_string(
    "task", None, f"Name of a task: {', '.join(text_task_names()[:3])}, minihack/…, MODULE:NAME."
)
_OPTIONS = flags.DEFINE_list("options", [], "Options of the task, NAME=VALUE each.")
_SEED = flags.DEFINE_integer("seed", 0, "Which episode of the task.", 0)
_SCRIPTED = flags.DEFINE_bool("scripted", False, "Let the task's scripted player answer.")
_RECORD = flags.DEFINE_string("record", None, "File to add the episode to, as a line of JSON.")
_REPLAY = flags.DEFINE_string("replay", None, "Record to play again; checks that nothing differs.")


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
    name = str(_TASK.value)
    task = _make(name, _OPTIONS.value, _SEED.value)
    with contextlib.closing(task):
        record = _play(name, task)
    if _RECORD.value:
        with validation(), pathlib.Path(_RECORD.value).expanduser().open("a") as file:
            file.write(f"{record.line()}\n")


def _make(name: str, options: list[str], seed: int) -> TextTask:
    with validation():
        try:
            task = make_text_task(name, **parse_options(options, {}))
        except TypeError as error:
            raise UserError(f"options: {error}") from error
    if seed >= task.instances:
        task.close()
        raise UserError(f"--seed must be below {task.instances}, the episodes of task {name}")
    return task


def _play(name: str, task: TextTask) -> Record:
    """An episode by hand or by script, shown as it goes."""
    answer = _scripted(name) if _SCRIPTED.value else _typed
    opening = task.reset(_SEED.value)
    print(f"{opening.system}\n\n{opening.observation}\n")
    turns = []
    for turn in play(task, answer, opening.observation):
        turns.append(turn)
        _tell(turn)
    _conclude(task, turns)
    return Record(
        task=name,
        options=_OPTIONS.value,
        seed=_SEED.value,
        answers=[turn.answer for turn in turns],
        observations=[turn.reply.observation for turn in turns],
    )


def _scripted(name: str) -> Callable[[str], str]:
    with validation():
        player = make_demonstrator(name)
    player.reset(_SEED.value)

    def answer(observation: str) -> str:
        said = player.answer(observation)
        print(f"> {said}")
        return said

    return answer


def _typed(observation: str) -> str | None:
    """What a person types; None at the end of the input, or for nothing."""
    try:
        said = input("> ").strip()
    except EOFError:
        return None
    if not said:
        return None
    return said if "<" in said else f"<answer>{said}</answer>"


def _tell(turn: Turn) -> None:
    print(f"\n{turn.reply.observation}\n" if turn.reply.observation else "")


def _conclude(task: TextTask, turns: list[Turn]) -> None:
    rewards: dict[str, float] = {}
    for turn in turns:
        for name, reward in turn.reply.rewards.items():
            rewards[name] = rewards.get(name, 0.0) + reward
    told = ", ".join(f"{name} {reward:g}" for name, reward in rewards.items()) or "none"
    success = any(turn.reply.success for turn in turns)
    ended = "Success" if success else "No success"
    print(f"{ended} after {len(turns)} of at most {task.max_turns} turns; rewards: {told}")


def _replay(record: Record) -> None:
    """Plays the answers again; an observation that is another one ends it."""
    task = _make(record.task, [*record.options], record.seed)
    with contextlib.closing(task):
        opening = task.reset(record.seed)
        print(f"{record.task}, seed {record.seed}\n{opening.system}\n\n{opening.observation}\n")
        turns = []
        for number, (answer, observation) in enumerate(
            zip(record.answers, record.observations, strict=True), 1
        ):
            turn = Turn(answer, awaited(task.step(answer)))
            print(f"> {answer}")
            _tell(turn)
            turns.append(turn)
            if turn.reply.observation != observation:
                raise UserError(
                    f"--replay={_REPLAY.value}: turn {number} of {record.task}, seed "
                    f"{record.seed}, shows something else than on record; was it made with "
                    "another version?"
                )
        _conclude(task, turns)


if __name__ == "__main__":
    app.main(run)

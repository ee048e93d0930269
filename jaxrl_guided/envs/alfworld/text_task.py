"""ALFWorld in text (Shridhar et al. 2021): find things in a household, change and place them."""

from collections.abc import Callable, Sequence

from jaxrl_guided.envs.alfworld.compose import compose
from jaxrl_guided.envs.alfworld.engine import Engine
from jaxrl_guided.envs.alfworld.originals import FOLDERS, find_games, read_game
from jaxrl_guided.envs.alfworld.package import (
    TASK_TYPES,
    read_catalogue,
    read_scenes,
)
from jaxrl_guided.envs.alfworld.room import sparse
from jaxrl_guided.envs.alfworld.wording import meant, short_command, short_names, short_text
from jaxrl_guided.envs.text.answers import last_answer, shortened
from jaxrl_guided.envs.text.task import TASK, Opening, Reply

INVALID = "invalid"
"""Name of the reward for an answer that is no admissible action."""

PROTOCOLS = {"paper": 40, "admissible": 50}
"""Turns of an episode."""

_PENALTY = 0.1
_MOST_ALIKE, _MOST_ALIKE_SMALL = 3, 1
_HIDDEN = "help"
_BANNER, _GOAL = "=-", "Your task is to:"
_SYSTEM = (
    "You are in a room of a household and have a task to do there. In each turn you are told what "
    "you see. Think as briefly as you can, then give one action as <answer>ACTION</answer>.\n"
    "Actions, for a receptacle R and an object O by their names with numbers: go to R, open R, "
    "close R, take O from R, move O to R, clean O with R, heat O with R, cool O with R, use O, "
    "slice O with O, examine R, examine O, look, inventory. You can hold one object. Clean things "
    "in a sink basin, heat them in a microwave, cool them in a fridge; to look at a thing in the "
    "light, hold it and use the lamp."
)
_COMPACT = "House. Answers: <answer>go|open|take|put|clean|heat|cool|use NAME</answer>"


class AlfworldText:
    """One game after the other.

    Protocol `paper`: the return is 1 for a solved task, −1 for one that is not after the last
    turn. `admissible`: 1 or 0, the actions that are possible are listed, and an answer that is
    none of them costs .1 as the reward `invalid`.

    Args:
      split: `train` and `seen` are games in the same rooms, `unseen` those in others.
      types: of tasks, `all` or names of `TASK_TYPES` with `+` between them.
      protocol: see above.
      data: a directory with a user's own games (see `find_games`); empty for composed ones.
      max_turns: answers in an episode; 0 for 40, or 50 with the protocol `admissible`.
      compact: few words, for models that learn them from scratch.
      rooms: how many rooms of each kind are used; 0 for all.
      small: few receptacles and objects in each room, one of a type.

    Raises:
      ValueError: unknown or contradictory options, the extra is not installed, or a file of `data`
        cannot be read.
    """

    def __init__(
        self,
        split: str = "train",
        types: str = "all",
        protocol: str = "paper",
        data: str = "",
        max_turns: int = 0,
        compact: bool = False,
        rooms: int = 0,
        small: bool = False,
    ) -> None:
        if split not in FOLDERS:
            raise ValueError(f"split must be one of {', '.join(FOLDERS)}, not '{split}'")
        if protocol not in PROTOCOLS:
            raise ValueError(f"protocol must be one of {', '.join(PROTOCOLS)}, not '{protocol}'")
        for name, value in {"max_turns": max_turns, "rooms": rooms}.items():
            if value < 0:
                raise ValueError(f"{name} must be at least 0, not {value}")
        tasks = _tasks(types)
        if data and (rooms or small):
            raise ValueError("rooms and small are for composed games; leave them out with data")
        self.max_turns = max_turns or PROTOCOLS[protocol]
        self._is_paper, self._compact = protocol == "paper", compact
        self._start, self.instances = (
            _original_games(data, split, tasks) if data else _composed(split, tasks, rooms, small)
        )

    def reset(self, seed: int) -> Opening:
        """Starts the game of that seed."""
        self._engine, self._turn = self._start(seed), 0
        self._short = short_names(self._engine.names.values())
        system = _COMPACT if self._compact else _SYSTEM
        return Opening(system, self._opening(), f"ALFWorld: {self._engine.goal}.")

    def step(self, answer: str) -> Reply:
        """One action; what is none changes nothing but takes a turn."""
        self._turn += 1
        note = self._act(answer)
        won, last = self._engine.won, self._turn >= self.max_turns
        rewards = {TASK: 1.0 if won else -1.0 if self._is_paper and last else 0.0}
        if note and not self._is_paper:
            rewards[INVALID] = -_PENALTY
        return Reply(
            "" if won else self._render(note or self._seen()),
            rewards,
            terminated=won,
            truncated=last and not won,
            success=won,
            acted=not note,
        )

    def close(self) -> None:
        """Nothing to free."""

    def _act(self, answer: str) -> str:
        """Does what an answer says, or says why not."""
        said = last_answer(answer)
        if said is None:
            example = "go fridge" if self._compact else "go to fridge 1"
            return f"Note: no <answer>…</answer>; answer as <answer>{example}</answer>."
        command = meant(said, self._engine.admissible, self._short)
        if command is None:
            return f"Note: nothing happens, '{shortened(said, 60)}' is not possible here."
        self._engine.step(command)
        return ""

    def _opening(self) -> str:
        text = self._engine.text.rpartition(_BANNER)[2].strip()
        if self._compact:
            return self._render(
                f"Goal: {self._engine.goal}\n{self._brief(text.partition(_GOAL)[0])}"
            )
        return self._render(text)

    def _seen(self) -> str:
        return self._brief(self._engine.text) if self._compact else self._engine.text.strip()

    def _brief(self, text: str) -> str:
        return short_text(text, self._short)

    def _render(self, text: str) -> str:
        if self._is_paper:
            return text
        names = [name for name in self._engine.admissible if name != _HIDDEN]
        if self._compact:
            names = sorted({short_command(name, self._short) for name in names})
        return f"{text}\nActions: {', '.join(names)}"


def _tasks(types: str) -> Sequence[str]:
    names = TASK_TYPES if types == "all" else tuple(types.split("+"))
    if unknown := [name for name in names if name not in TASK_TYPES]:
        raise ValueError(
            f"types must be all, or of {', '.join(TASK_TYPES)} with + between them, "
            f"not '{unknown[0]}'"
        )
    return names


_Games = tuple[Callable[[int], Engine], int]
"""Starts the game of a seed, and how many seeds there are."""


def _original_games(data: str, split: str, tasks: Sequence[str]) -> _Games:
    paths = find_games(data, split, tasks)

    def start(seed: int) -> Engine:
        return read_game(paths[seed])

    start(0)  # rules and texts are the same in all of them
    return start, len(paths)


def _composed(split: str, tasks: Sequence[str], rooms: int, small: bool) -> _Games:
    catalogue, scenes = read_catalogue(), read_scenes(split == "unseen")
    kinds = dict.fromkeys(scene.kind for scene in scenes)
    if rooms:
        scenes = [s for kind in kinds for s in [s for s in scenes if s.kind == kind][:rooms]]
    if small:
        scenes = [sparse(scene, catalogue) for scene in scenes]
    most = _MOST_ALIKE_SMALL if small else _MOST_ALIKE

    def start(seed: int) -> Engine:
        return Engine(compose(f"{split} {seed}", scenes, tasks, catalogue, most))

    return start, 2**31

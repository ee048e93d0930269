"""Games of one's own ALFWORLD_DATA: files `game.tw-pddl`, each with all that it needs."""

import json
import pathlib
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from jaxrl_guided.envs.alfworld.compose import Game
from jaxrl_guided.envs.alfworld.engine import Engine
from jaxrl_guided.envs.alfworld.package import TASK_TYPES

FOLDERS = {"train": "train", "seen": "valid_seen", "unseen": "valid_unseen"}
"""Where the games of a split are."""

_FILE = "game.tw-pddl"
_KEYS = ("pddl_domain", "grammar", "pddl_problem")
_SKIPPED = ("movable", "Sliced")
_GOAL = re.compile(r'Your task is to: ((?:[^"\\]|\\.)*?)\.?\s*"')


def find_games(data: str, split: str, types: Collection[str]) -> Sequence[pathlib.Path]:
    """Files of all games that can be solved, sorted.

    Args:
      data: a directory, ALFWORLD_DATA itself or one with games of any split.
      split: one of `FOLDERS`; of no meaning where there are no such directories.
      types: of tasks.

    Raises:
      ValueError: there are no such games, or a file cannot be read or is of an old format.
    """
    root = pathlib.Path(data).expanduser()
    if not root.is_dir():
        raise ValueError(f"data: there is no directory '{data}'")
    inner = [root / "json_2.1.1" / FOLDERS[split], root / FOLDERS[split], root]
    folder = next(path for path in inner if path.is_dir())
    found = []
    for path in sorted(folder.rglob(_FILE)):
        if not any(word in str(path.relative_to(root)) for word in _SKIPPED):
            content = _read(path)
            if content.get("solvable") is True and _type_of(path, root) in types:
                found.append(path)
    if not found:
        raise ValueError(
            f"data: '{folder}' has no file {_FILE} of a game that can be solved, of type "
            f"{' or '.join(types)}; alfworld-download fetches them"
        )
    return found


def read_game(path: pathlib.Path) -> Engine:
    """Starts the game of a file.

    Raises:
      ValueError: it cannot be read, is of an old format, or is not understood.
    """
    content = _read(path)
    try:
        goal = _GOAL.search(content["grammar"])
        if goal is None:
            raise ValueError("its grammar names no task")
        said = json.loads(f'"{goal[1]}"')
        return Engine(Game(said, *(content[key] for key in _KEYS)))
    except (ValueError, LookupError, TypeError) as error:
        raise ValueError(f"data: '{path}' is not understood: {error!r}") from None


def _read(path: pathlib.Path) -> Mapping[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ValueError(f"data: '{path}' cannot be read: {error}") from None
    if not isinstance(content, dict) or not all(isinstance(content.get(k), str) for k in _KEYS):
        raise ValueError(
            f"data: '{path}' is of an old format, without {', '.join(_KEYS)}; "
            "alfworld-download fetches new ones"
        )
    return content


def _type_of(path: pathlib.Path, root: pathlib.Path) -> str:
    """The type of task that a directory is named after, as in `pick_and_place_simple-Mug-…`."""
    for part in path.relative_to(root).parts[::-1]:
        if (name := part.partition("-")[0]) in TASK_TYPES:
            return name
    try:
        return str(json.loads((path.parent / "traj_data.json").read_text())["task_type"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"data: of '{path}' no directory is named after its type of task, and its "
            f"traj_data.json does not tell it: {error!r}"
        ) from None

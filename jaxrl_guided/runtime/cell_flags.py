"""The flags with which a grid calls a script for one of its cells (`cells.script_command`)."""

from typing import TypeVar

from absl import flags

from jaxrl_guided.runtime import compile_cache, config, files, signals
from jaxrl_guided.runtime.errors import UserError

T = TypeVar("T")

_CELL = flags.DEFINE_string("cell", None, "JSON file with the whole configuration, from a grid.")
_RESULT = flags.DEFINE_string("result", None, "JSON file for the result of a cell.")
_CACHE = flags.DEFINE_string("compile_cache", None, "Directory for compiled programs.")


def given() -> bool:
    """Whether the script is to run a cell.

    Raises:
      UserError: one of `--cell` and `--result` is given alone.
    """
    if bool(_CELL.value) != bool(_RESULT.value):
        raise UserError("--cell and --result need each other")
    return bool(_CELL.value)


def begin(config_class: type[T]) -> tuple[T, str]:
    """The cell's configuration and the path of its result; from now on it ends with the grid.

    Raises:
      UserError: the configuration cannot be read, or compiled programs cannot be kept.
    """
    cell, result = _CELL.value, _RESULT.value
    assert cell is not None
    assert result is not None
    signals.end_with_parent()
    settings = config.from_dict(config_class, files.read_json(cell), "--cell")
    if _CACHE.value:
        compile_cache.enable(_CACHE.value)
    return settings, result

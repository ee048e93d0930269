"""The flags with which a grid calls a script for one of its cells (`cells.script_command`)."""

from typing import TypeVar

from absl import flags

from jaxrl_guided.runtime import compile_cache, config, files, signals
from jaxrl_guided.runtime.errors import UserError

T = TypeVar("T")

_CELL = flags.DEFINE_string("cell", None, "JSON file with the whole configuration, from a grid.")
_RESULT = flags.DEFINE_string("result", None, "JSON file for the result of a cell.")
_CACHE = flags.DEFINE_string("compile_cache", None, "Directory for compiled programs.")


def read(kind: type[T], config_flags: config.ConfigFlags[T] | None = None) -> tuple[T, str] | None:
    """The cell's configuration and the path of its result; None where the script runs no cell.

    A cell ends with the grid that has started it.

    Args:
      config_flags: of the script; a cell brings all that they would say.

    Raises:
      UserError: one of `--cell` and `--result` is given alone, or the first with flags of the
        configuration; it cannot be read, or compiled programs cannot be kept.
    """
    cell, result = _CELL.value, _RESULT.value
    if _CACHE.value:
        compile_cache.enable(_CACHE.value)
    if cell is None and result is None:
        return None
    if cell is None or result is None:
        raise UserError("--cell and --result need each other")
    if config_flags is not None and (given := config_flags.given()):
        raise UserError(f"--cell holds the whole configuration; leave out {', '.join(given)}")
    signals.end_with_parent()
    return config.from_dict(kind, files.read_json(cell), "--cell"), result

"""Modules of a user's own, by name."""

import importlib
import types


def import_named(module: str, name: str, kind: str) -> types.ModuleType:
    """Imports the module in the name of an environment or of another `kind`.

    Raises:
      ValueError: that fails, whatever it raises.
    """
    try:
        return importlib.import_module(module)
    except Exception as error:
        raise ValueError(
            f"{kind}: '{name}' needs the module '{module}': {type(error).__name__}: {error}"
        ) from error

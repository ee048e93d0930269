"""What parts of the package need beyond the packages that are always there."""

import importlib.util
from collections.abc import Sequence


def check_installed(subject: str, modules: Sequence[str], extra: str) -> None:
    """Raises ValueError, which says what to install, unless all modules are there.

    Args:
      subject: what needs them, as the message begins.
      extra: of this package, which brings them.
    """
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        raise ValueError(f"{subject} needs {' and '.join(missing)}; install jaxrl_guided[{extra}]")

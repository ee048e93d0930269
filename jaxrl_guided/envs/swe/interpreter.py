"""The Python environment in which tests run, and what of it a sandbox shows."""

import dataclasses
import functools
import json
import pathlib
import subprocess
import sys
from collections.abc import Iterable

_ASK = """
import json, os, sys, sysconfig
found = {
    "prefixes": [sys.prefix, sys.base_prefix, os.path.dirname(os.path.dirname(
        os.path.realpath(sys.executable)))],
    "sites": [sysconfig.get_path(name) for name in ("purelib", "platlib")],
}
try:
    import pytest
    found["pytest"] = pytest.__version__
except ImportError:
    pass
print(json.dumps(found))
"""
_SYSTEM_SITES = ("lib/python3*/dist-packages", "lib/python3*/site-packages")


@dataclasses.dataclass(frozen=True)
class Interpreter:
    """A Python with pytest.

    Attributes:
      python: path of it.
      prefixes: folders that it needs to run: of the virtual environment, and of the real one.
      sites: folders of installed packages.
    """

    python: pathlib.Path
    prefixes: tuple[pathlib.Path, ...]
    sites: tuple[pathlib.Path, ...]

    def copies_of(self, names: Iterable[str]) -> list[pathlib.Path]:
        """Installed packages of these names: what may not be seen while one of them is repaired."""
        sites = [*self.sites]
        for prefix in (*self.prefixes, pathlib.Path("/usr"), pathlib.Path("/usr/local")):
            sites += [site for pattern in _SYSTEM_SITES for site in prefix.glob(pattern)]
        patterns = []
        for name in names:
            patterns += [name, f"{name}.py", f"{name}-*.dist-info", f"{name}-*.egg-info"]
            patterns += [f"*/_vendor/{name}", f"*/_vendor/{name}.py"]
        return sorted({copy for site in sites for part in patterns for copy in site.glob(part)})


@functools.cache
def interpreter(python: str = "") -> Interpreter:
    """Looks at a Python.

    Args:
      python: its path; empty: the one that runs this.

    Raises:
      ValueError: it does not run, or has no pytest.
    """
    path = pathlib.Path(python or sys.executable).absolute()
    try:
        said = subprocess.run([path, "-I", "-c", _ASK], capture_output=True, text=True, timeout=60)
        found = json.loads(said.stdout)
    except (OSError, subprocess.TimeoutExpired, json.JSONDecodeError) as error:
        raise ValueError(f"python: '{path}' must be a Python interpreter that runs") from error
    if "pytest" not in found:
        raise ValueError(f"python: '{path}' must have pytest installed; it has not")
    prefixes = tuple(dict.fromkeys(pathlib.Path(prefix) for prefix in found["prefixes"]))
    return Interpreter(path, prefixes, tuple(pathlib.Path(site) for site in found["sites"]))

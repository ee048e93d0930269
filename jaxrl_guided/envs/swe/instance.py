"""A task of software engineering: a repository, what is wrong with it, and the tests that tell."""

import dataclasses
import fnmatch
import functools
import pathlib
import re

_CONFIGURATION = (
    *("conftest.py", "pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml"),
    *("pyproject.toml", "setup.cfg", "tox.ini", "*.pth", "sitecustomize.py", "usercustomize.py"),
    *("*.egg-info", "*.dist-info", "*.egg-link", "pyvenv.cfg"),
)
_COMPILED = ["__pycache__", "*.pyc", "*.pyo", "*.so", "*.pyd"]
_TESTS = ["tests", "test", "test_*.py", "*_test.py", "tests.py", "test.py"]
_TOUCHED = re.compile(r"^(?:---|\+\+\+) (?:[ab]/)?([^\t\n]+)", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Instance:
    """One task.

    Attributes:
      name: of it, `instance_id` of SWE-Bench.
      repository: folder with the source, a clone of git or not.
      problem: what is wrong, in words.
      fail_to_pass: ids of tests, as pytest writes them, that a solution makes pass.
      pass_to_pass: of those that pass already, and are to do so afterwards.
      commit: of the repository, where it is a clone; empty: the folder as it is.
      test_patch: changes the tests, for scoring only.
      bug_patch: puts the mistake in, before an episode.
      fix: a known solution, a patch; empty: none is known.
    """

    name: str
    repository: pathlib.Path
    problem: str
    fail_to_pass: tuple[str, ...]
    pass_to_pass: tuple[str, ...] = ()
    commit: str = ""
    test_patch: str = ""
    bug_patch: str = ""
    fix: str = ""

    @property
    def tests(self) -> tuple[str, ...]:
        """Ids of all tests that must pass."""
        return tuple(dict.fromkeys((*self.fail_to_pass, *self.pass_to_pass)))

    def protects(self, path: pathlib.PurePath) -> bool:
        """Whether a file is a test's, or says how tests run, so that an agent's copy never counts.

        Args:
          path: below the repository.
        """
        above = {path.as_posix(), *(parent.as_posix() for parent in path.parents)}
        return bool(self._files & above) or is_protected(path)

    @functools.cached_property
    def _files(self) -> set[str]:
        """Of the tests."""
        return {file_of(test) for test in self.tests} | touched_by(self.test_patch)


def is_protected(path: pathlib.PurePath) -> bool:
    """By its name alone, or that of a folder above it: tests, configuration, compiled files."""
    patterns = [*_CONFIGURATION, *_COMPILED, *_TESTS, ".git"]
    return any(fnmatch.fnmatch(part, pattern) for part in path.parts for pattern in patterns)


def is_test(path: pathlib.PurePath) -> bool:
    """Whether pytest would look for tests in a file."""
    return any(fnmatch.fnmatch(path.name, pattern) for pattern in _TESTS if pattern[-3:] == ".py")


def file_of(test: str) -> str:
    """The file of a test's id."""
    return test.split("::")[0]


def touched_by(patch: str) -> set[str]:
    """Files that a patch makes, changes or removes."""
    return {path for path in _TOUCHED.findall(patch) if path != "/dev/null"}

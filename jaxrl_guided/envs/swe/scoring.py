"""Whether tests pass, told from outside the process in which they run.

What counts is reported line by line with a number drawn for this run, and must be whole: each test
once, the end of the session, and a control test that fails, so that code which makes all tests pass
gives itself away. One hole remains, as wherever tests and the code that they test share a process:
code that searches the interpreter's memory for the reporter, and lies for some tests only, is
believed.
"""

import dataclasses
import json
import pathlib
import secrets
from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.swe import repository
from jaxrl_guided.envs.swe.instance import Instance, file_of
from jaxrl_guided.envs.swe.interpreter import Interpreter
from jaxrl_guided.envs.swe.sandbox import WORK, Limits, Sandbox

_RUNNER = (pathlib.Path(__file__).parent / "runner.py").read_text()
_START = "import sys; sys.path.remove(''); exec(sys.argv.pop())"  # none of the agent's modules
_TESTS_FAILED = 1
_REPORT_BYTES = 64 * 1024 * 1024


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Of a test.

    Attributes:
      result: `passed`, `failed` or `skipped`.
      symptom: of a failed one: its line that failed, and what was raised.
    """

    result: str
    symptom: str = ""


@dataclasses.dataclass(frozen=True)
class Report:
    """Of a run of tests.

    Attributes:
      outcomes: by test; none if the run cannot be believed.
      files: of the repository, that were imported.
      trouble: why there are no outcomes; empty: there are.
    """

    outcomes: Mapping[str, Outcome]
    files: Sequence[str] = ()
    trouble: str = ""

    def passed(self, test: str) -> bool:
        """Whether a test was run and has passed."""
        return test in self.outcomes and self.outcomes[test].result == "passed"


@dataclasses.dataclass(frozen=True)
class Tester:
    """Runs tests.

    Attributes:
      python: under which.
      limits: of a run, all its tests together.
      seconds: of a test.
      plugins: installed plugins of pytest are loaded, whether the tests need them or not.
    """

    python: Interpreter
    limits: Limits
    seconds: float = 20.0
    plugins: bool = True

    def __post_init__(self) -> None:
        if not self.seconds >= 0.1:
            raise ValueError(f"test_seconds must be at least 0.1, not {self.seconds}")

    def run(
        self, tree: pathlib.Path, files: Sequence[str], tests: Sequence[str] | None = None
    ) -> Report:
        """Runs tests of a folder, in which it leaves traces.

        Args:
          files: of tests.
          tests: ids of those to run; None: all in the files.
        """
        nonce, control = secrets.token_hex(16), f"test_{secrets.token_hex(8)}.py"
        (tree / control).write_text("def test_control():\n    assert 1 == 2\n")
        control_id = f"{control}::test_control"
        request = {
            "nonce": nonce,
            "files": [*files, control],
            "tests": None if tests is None else [*tests, control_id],
            "roots": [f"{WORK}/{root}".rstrip("/") for root in roots_of(tree)],
            "seconds": self.seconds,
        }
        limits = dataclasses.replace(self.limits, output=_REPORT_BYTES)
        hidden = self.python.copies_of(packages_of(tree))
        done = Sandbox(tree, limits, self.python.prefixes, hidden).run(
            [str(self.python.python), "-c", _START, _RUNNER],
            {} if self.plugins else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
            json.dumps(request).encode(),
        )
        if done.beyond:
            return Report({}, trouble=done.beyond)
        return _read(done.output, nonce, control_id)

    def solves(self, instance: Instance, work: pathlib.Path) -> bool:
        """Whether all tests of an instance pass with what an agent has written."""
        with repository.Folder() as pristine, repository.Folder() as scored:
            repository.make_tree(instance, pristine, with_tests=True)
            repository.make_scored(instance, pristine, work, scored)
            files = dict.fromkeys(map(file_of, instance.tests))
            report = self.run(scored, [*files], instance.tests)
        return all(map(report.passed, instance.tests))


def roots_of(tree: pathlib.Path) -> list[str]:
    """Folders from which a repository's code is imported."""
    return ["", "src"] if (tree / "src").is_dir() else [""]


def packages_of(tree: pathlib.Path) -> list[str]:
    """Names under which a repository's code is imported."""
    found = []
    for root in roots_of(tree):
        for path in sorted((tree / root).iterdir()):
            if path.is_dir() and any(path.glob("*.py")):
                found.append(path.name)
            elif path.suffix == ".py":
                found.append(path.stem)
    return [name for name in found if name.isidentifier()]


def _read(output: str, nonce: str, control: str) -> Report:
    """What a run has reported, if it can be believed."""
    outcomes: dict[str, Outcome] = {}
    end: Mapping[str, object] | None = None
    for line in output.splitlines():
        said = _said(line, nonce)
        if said is None:
            continue
        if end is not None or said.get("test") in outcomes:
            return Report({}, trouble="the report says one thing twice")
        if "test" in said:
            outcomes[said["test"]] = Outcome(said["outcome"], said["symptom"])
        else:
            end = said
    if end is None:
        return Report({}, trouble="the tests have not run to their end")
    if outcomes.pop(control, Outcome("")).result != "failed" or end["exit"] != _TESTS_FAILED:
        return Report({}, trouble="a test that must fail did not")
    files = end["files"]
    assert isinstance(files, list)
    return Report(outcomes, files)


def _said(line: str, nonce: str) -> dict | None:
    """A line of the report; None for what others have written."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) and said.get("nonce") == nonce else None

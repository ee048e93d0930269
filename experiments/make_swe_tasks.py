"""Makes tasks of software engineering from a package with tests, by putting mistakes into it.

    python -m experiments.make_swe_tasks --package=DIR --out=tasks.jsonl --count=50

Each line of the file is a task with the fields of SWE-Bench. The package must stay where it is: its
folder is looked for by name in what the task's option `repos` names.
"""

import collections
import json
import pathlib
import time

from absl import flags

from jaxrl_guided.envs.swe import bugs
from jaxrl_guided.envs.swe.interpreter import interpreter
from jaxrl_guided.envs.swe.sandbox import Limits, check_sandbox
from jaxrl_guided.envs.swe.scoring import Tester
from jaxrl_guided.runtime import app, files
from jaxrl_guided.runtime.errors import validation

_PACKAGE = flags.DEFINE_string("package", None, "Folder with source and tests.", required=True)
_OUT = flags.DEFINE_string("out", None, "File of JSON lines to write.", required=True)
_COUNT = flags.DEFINE_integer("count", 50, "Tasks to make.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 0, "Of the choice of mistakes.")
_SECONDS = flags.DEFINE_float("seconds", 300.0, "Longest run of all tests.", 0.1)
_TEST_SECONDS = flags.DEFINE_float("test_seconds", 20.0, "Longest run of a test.", 0.1)
_PYTHON = flags.DEFINE_string("python", "", "Python that runs the tests; default: this one.")
_PLUGINS = flags.DEFINE_bool("plugins", True, "Load all plugins of pytest that are installed.")


def run() -> None:
    """Makes the tasks and says how many of the mistakes were any."""
    files.check_new(_OUT.value, "out")
    with validation():
        check_sandbox()
        tester = Tester(
            interpreter(_PYTHON.value),
            Limits(_SECONDS.value),
            _TEST_SECONDS.value,
            _PLUGINS.value,
        )
        package = bugs.Package(pathlib.Path(_PACKAGE.value), tester)
    start, tried, lines, kinds = time.monotonic(), 0, list[str](), collections.Counter[str]()
    for bug, task in bugs.tasks_of(package, _COUNT.value, _SEED.value):
        tried += 1
        if task is not None:
            lines.append(json.dumps(bugs.as_json(task), ensure_ascii=False) + "\n")
            kinds[bug.mutation.kind] += 1
    files.write_text(_OUT.value, "".join(lines))
    minutes = (time.monotonic() - start) / 60
    print(
        f"{len(lines)} tasks of {tried} mistakes, {len(lines) / max(minutes, 1e-9):.0f} a minute, "
        f"in {_OUT.value}; its option repos is {package.folder.parent}"
    )
    print(", ".join(f"{kind} {count}" for kind, count in kinds.most_common()))


if __name__ == "__main__":
    app.main(run)

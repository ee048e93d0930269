"""Mistakes put into source, and which of them are tasks."""

import ast
import collections
import difflib
import json
import textwrap

import pytest
import small_package

from jaxrl_guided.envs.swe import bugs, repository
from jaxrl_guided.envs.swe.dataset import read_tasks
from jaxrl_guided.envs.swe.mutations import KINDS, Source, mutations
from jaxrl_guided.envs.swe.scoring import Outcome, Report


def changed(body, kind):
    """Bodies of a function with each mistake of a kind."""
    text = "def f(a, b):\n" + textwrap.indent(body + "\n", "    ")
    source = Source(text)
    found = [source.changed(made) for made in mutations(source) if made.kind == kind]
    return [textwrap.dedent(new.split("\n", 1)[1]).strip() for new in found if new is not None]


@pytest.mark.parametrize(
    "kind, body, expected",
    [
        ("comparison", "a < b  # <", ["a <= b  # <"]),
        ("comparison", "a == b <= 1", ["a != b <= 1", "a == b < 1"]),
        ("comparison", "a is  not b", ["a is b"]),
        ("comparison", "(a) in (b)", ["(a) not in (b)"]),
        ("comparison", "'é' not\\\n in b", ["'é' in b"]),
        ("comparison", "(a  # >\n > b)", []),
        ("arithmetic", "a - (-b)", ["a + (-b)"]),
        ("arithmetic", "a // b", ["a / b"]),
        ("arithmetic", "a += b", ["a -= b"]),
        ("arithmetic", "a ** b", []),
        ("boolean", "a and b or a", ["a and b and a", "a or b or a"]),
        ("boolean", "a or b or a", ["a and b and a"]),
        ("off by one", "a[0]", ["a[1]"]),
        ("off by one", "a[0x10:]", ["a[17:]", "a[15:]"]),
        ("off by one", "a[True]", []),
        ("off by one", "f'{a[1]}'", []),
        ("swapped arguments", "a(b, 1, c=2)", ["a(1, b, c=2)"]),
        ("swapped arguments", "a(*b, 1)", []),
        ("swapped arguments", "a(b, b)", []),
        ("swapped branches", "a if b else 1", ["1 if b else a"]),
        (
            "swapped branches",
            "if a:\n    b()\n    b()\nelse:\n    # here\n    a()",
            ["if a:\n    a()\nelse:\n    # here\n    b()\n    b()"],
        ),
        ("swapped branches", "if a:\n    b()\nelif b:\n    a()", []),
        ("dropped not", "not (a)", ["(a)"]),
        ("dropped not", "return not a", ["return a"]),
        ("changed return", "return a", ["return None"]),
        ("changed return", "return None", []),
        ("changed return", "return", []),
        ("removed statement", "a = b  # why", ["pass  # why"]),
        ("removed statement", '"""Text."""', []),
        ("removed statement", "a(b,\n  b); a()", ["pass; a()", "a(b,\n  b); pass"]),
    ],
)
def test_mistakes(kind, body, expected):
    assert changed(body, kind) == expected


def test_only_code_in_functions_is_changed():
    text = "A = 1 + 1\n@f(1, 2)\ndef f(a: 1 + 1 = 2) -> 1 + 1:\n    b: 1 + 1 = a\n"
    assert [made.kind for made in mutations(Source(text))] == []


def test_every_mistake_is_python_and_leaves_the_rest_alone():
    source = Source(small_package.SOURCE.lstrip())
    kinds = collections.Counter[str]()
    for made in mutations(source):
        text = source.changed(made)
        if text is None:
            continue
        kinds[made.kind] += 1
        assert ast.dump(ast.parse(text)) != ast.dump(source.tree)
        assert text.count("#") == source.text.count("#")
        pairs = zip(text.splitlines(), source.text.splitlines(), strict=False)
        assert sum(new != old for new, old in pairs) <= 4
    assert set(kinds) == {*KINDS}


@pytest.fixture(scope="module")
def made(request, tmp_path_factory):
    """A package, and what was made of it twice."""
    request.getfixturevalue("sandboxed")
    from jaxrl_guided.envs.swe.interpreter import interpreter
    from jaxrl_guided.envs.swe.sandbox import Limits
    from jaxrl_guided.envs.swe.scoring import Tester

    tester = Tester(interpreter(), Limits(30.0), seconds=1.0, plugins=False)
    folder = small_package.write(tmp_path_factory.mktemp("repos"))
    package = bugs.Package(folder, tester)
    return package, tester, [*bugs.tasks_of(package, 2, seed=1)]


def test_tasks_are_unsolved_until_their_fix(made, tmp_path):
    package, tester, tried = made
    tasks = [task for _, task in tried if task is not None]
    assert [task.name for task in tasks] == ["letters-1.0-1-0", "letters-1.0-1-1"]
    for bug, task in tried:
        if task is None:
            continue
        work = tmp_path / task.name
        work.mkdir()
        repository.make_tree(task, work)
        assert (work / bug.path).read_text() == bug.text
        assert not tester.solves(task, work)
        repository.git(work, "apply", stdin=task.fix)
        pristine = (package.folder / bug.path).read_text()
        assert (work / bug.path).read_text() == pristine
        assert tester.solves(task, work)
        assert set(task.fail_to_pass) | set(task.pass_to_pass) == {
            *small_package.RATIO,
            *small_package.OTHERS,
        }
        assert not set(task.fail_to_pass) & set(task.pass_to_pass)
        assert bug.path not in task.problem
        new = [line for line in difflib.ndiff(pristine.split("\n"), bug.text.split("\n"))]
        for line in (line[2:].strip() for line in new if line[0] in "+-" and len(line) > 8):
            assert line not in task.problem


@pytest.mark.slow
def test_tasks_depend_on_the_seed_alone(made):
    package, _, tried = made
    assert [bug for bug, _ in tried] == [
        bug for bug, _ in zip(package.bugs(1), tried, strict=False)
    ]
    first = [bug.mutation for bug, _ in zip(package.bugs(1), range(9), strict=False)]
    assert first != [bug.mutation for bug, _ in zip(package.bugs(2), range(9), strict=False)]
    bug, task = next((bug, task) for bug, task in tried if task is not None)
    assert package.instance(bug, task.name) == task


def test_kinds_take_turns(made):
    package, _, _ = made
    counts = collections.Counter(bug.mutation.kind for bug in package.bugs(0))
    assert len(counts) >= 6
    early = collections.Counter(
        bug.mutation.kind for bug, _ in zip(package.bugs(0), range(18), strict=False)
    )
    assert max(early.values()) <= 9


def test_what_is_written_can_be_read(made, tmp_path):
    package, _, tried = made
    tasks = [task for _, task in tried if task is not None]
    file = tmp_path / "tasks.jsonl"
    file.write_text("".join(json.dumps(bugs.as_json(task)) + "\n" for task in tasks))
    assert read_tasks(str(file), str(package.folder.parent)) == tasks


def test_the_problem_tells_symptoms():
    outcomes = {f"t.py::{n}": Outcome("failed", f"f({n})\nE: <a at 0x7f{n}>") for n in range(7)}
    told = bugs.problem_of(Report(outcomes), [*outcomes])
    lines = told.splitlines()
    assert (
        lines[0] == "7 tests that should pass fail; the mistake is in the source, not in the tests."
    )
    assert lines[1:4] == ["- t.py::0", "    f(0)", "    E: <a at 0x...>"]
    assert lines[-1] == "- and 2 more"
    assert bugs.problem_of(Report(outcomes), ["t.py::0"]).startswith(
        "A test that should pass fails;"
    )


BROKEN = {
    "must be a folder with source and tests": None,
    "has no tests, files named test_….py": {},
    "must pass; test_a.py::test_it": {"test_a.py": "def test_it():\n    assert False\n"},
    "must pass; none was found": {"test_a.py": ""},
    "must pass; the tests have not run to their end": {"test_a.py": "import os\nos._exit(0)\n"},
}


@pytest.mark.parametrize("message", BROKEN)
def test_packages_without_passing_tests_are_refused(tester, tmp_path, message):
    folder, files = tmp_path / "broken", BROKEN[message]
    if files is not None:
        folder.mkdir()
        for name, text in files.items():
            (folder / name).write_text(text)
    with pytest.raises(ValueError, match=f"^package: .*'{folder}' {message}"):
        bugs.Package(folder, tester)

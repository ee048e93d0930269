"""Scores of repositories, honest and tampered with."""

import dataclasses
import os
import pathlib
import textwrap

import pytest
import small_package
from small_package import OTHERS, RATIO

from jaxrl_guided.envs.swe import repository
from jaxrl_guided.envs.swe.instance import Instance, is_protected, touched_by
from jaxrl_guided.envs.swe.scoring import packages_of, roots_of

WORDS = "letters/words.py"


@pytest.fixture
def instance(tmp_path):
    package = small_package.write(tmp_path / "repos")
    return Instance("a", package, "", RATIO, OTHERS, bug_patch=small_package.BUG)


@pytest.fixture
def work(instance, tmp_path):
    folder = tmp_path / "work"
    folder.mkdir()
    repository.make_tree(instance, folder)
    repository.commit_all(folder)
    return folder


def mend(work):
    path = work / WORDS
    path.write_text(path.read_text().replace("part * whole", "part / whole"))


def add(work, name, text):
    path = work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text((path.read_text() if path.exists() else "") + textwrap.dedent(text))


def test_the_work_copy_has_one_commit_and_no_other_copies(work):
    assert repository.git(work, "log", "--format=%an %ad %s", "--date=short").splitlines() == [
        "agent 2000-01-01 Start"
    ]
    assert repository.git(work, "status", "--porcelain") == ""
    assert not (work / "build").exists()
    assert not [*work.rglob("*.pyc")]
    assert "part * whole" in (work / WORDS).read_text()
    for path in work.rglob("*"):
        if path.is_file():
            assert b"part / whole" not in path.read_bytes()


def test_a_clone_is_read_at_a_commit(instance, tmp_path):
    clone = instance.repository
    repository.commit_all(clone)
    commit = repository.git(clone, "rev-parse", "HEAD").strip()
    (clone / WORDS).write_text("later")
    repository.commit_all(clone)
    before = repository.git(clone, "status", "--porcelain")
    tree = tmp_path / "tree"
    tree.mkdir()
    repository.make_tree(dataclasses.replace(instance, commit=commit), tree)
    assert "part * whole" in (tree / WORDS).read_text()
    assert not (tree / ".git").exists()
    assert repository.git(clone, "status", "--porcelain") == before


def test_a_repair_scores_and_nothing_else_does(tester, instance, work):
    assert not tester.solves(instance, work)
    mend(work)
    assert tester.solves(instance, work)
    add(work, WORDS, "\ndef between(value, low, high):\n    return False\n")
    assert not tester.solves(instance, work)


def test_a_report_says_all_of_each_test(tester, work):
    report = tester.run(work, ["tests/test_words.py"])
    assert report.trouble == ""
    assert {test for test in report.outcomes if report.passed(test)} == set(OTHERS)
    assert report.outcomes["tests/test_words.py::test_skipped"].result == "skipped"
    failed = report.outcomes[RATIO[0]]
    assert failed.result == "failed"
    assert failed.symptom.splitlines() == [
        "assert w.ratio(part, 2) == share",
        "AssertionError: assert 2 == 0.5",
    ]
    assert {"letters/__init__.py", WORDS} <= set(report.files)


@pytest.mark.parametrize(
    "test",
    [
        RATIO[0],
        pytest.param("tests/test_words.py::test_new", marks=pytest.mark.slow),
        pytest.param("tests/no.py::test_a", marks=pytest.mark.slow),
    ],
)
def test_a_test_that_is_not_there_has_not_passed(tester, instance, work, test):
    mend(work)
    tests = work / "tests" / "test_words.py"
    assert tester.solves(instance, work)
    if test == RATIO[0]:
        source = tests.read_text().replace("(1, 0.5), ", "")
        (instance.repository / "tests" / "test_words.py").write_text(source)
    else:
        instance = dataclasses.replace(instance, pass_to_pass=(test,))
    assert not tester.solves(instance, work)


TAMPERED = {
    "tests edited": ("tests/test_words.py", "def test_ratio(part=1, share=1): pass\n"),
    "conftest": (
        "conftest.py",
        """
        import pytest
        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_makereport(item, call):
            outcome = yield
            outcome.get_result().outcome = "passed"
        """,
    ),
    "conftest of the tests": (
        "tests/conftest.py",
        "from letters import words\nwords.ratio = max\n",
    ),
    "pytest.ini": ("pytest.ini", "addopts = --collect-only\n"),
    "a plugin by configuration": ("pyproject.toml", "[tool.pytest.ini_options]\naddopts='-p x'\n"),
    "sitecustomize": ("sitecustomize.py", "import os\nos._exit(0)\n"),
    "usercustomize": ("usercustomize.py", "import os\nos._exit(0)\n"),
    "a path file": ("a.pth", "import os; os._exit(0)\n"),
    "an entry point": ("x.egg-info/entry_points.txt", "[pytest11]\nx = letters.words\n"),
    "a module of pytest": ("pytest.py", "def main(*_, **__): return 1\n"),
    "a module of Python": ("json.py", "import os\nos._exit(0)\n"),
    "exit": (WORDS, "import os\nos._exit(0)\n"),
    "exit of the session": (WORDS, "import pytest\npytest.exit('all passed', 0)\n"),
    "system exit": (WORDS, "raise SystemExit(0)\n"),
    "exit in a function": (WORDS, "def ratio(part, whole):\n    import os\n    os._exit(0)\n"),
    "a skip": (WORDS, "import pytest\npytest.skip(allow_module_level=True)\n"),
    "a skip in a function": (
        WORDS,
        "def ratio(part, whole):\n    import pytest\n    pytest.skip()\n",
    ),
    "an expected failure": (
        WORDS,
        "def ratio(part, whole):\n    import pytest\n    pytest.xfail()\n",
    ),
    "all reports pass": (
        WORDS,
        """
        import _pytest.reports as r
        make = r.TestReport.from_item_and_call
        def forged(item, call):
            report = make(item, call)
            report.outcome = "passed"
            return report
        r.TestReport.from_item_and_call = forged
        """,
    ),
    "all calls pass": (
        WORDS,
        """
        import _pytest.python
        _pytest.python.Function.runtest = lambda self: None
        """,
    ),
    "a report on all outputs": (
        WORDS,
        """
        import json, os
        tests = ["tests/test_words.py::test_ratio[1-0.5]", "tests/test_words.py::test_ratio[2-1.0]"]
        said = {"outcome": "passed", "symptom": "", "nonce": ""}
        lines = [json.dumps({"test": test, **said}) for test in tests]
        for number in range(20):
            try:
                os.write(number, ("\\n".join(lines) + "\\n").encode())
            except OSError:
                pass
        """,
    ),
    "a report in files": (
        WORDS,
        """
        for name in ("junit.xml", "report.json", "/tmp/report.json"):
            with open(name, "w") as file:
                file.write('<testsuite failures="0"/>')
        """,
    ),
    "a test without end": (WORDS, "def ratio(part, whole):\n    while True:\n        pass\n"),
    "a test that ignores its end": (
        WORDS,
        """
        def ratio(part, whole):
            import signal
            signal.signal(signal.SIGALRM, signal.SIG_IGN)
            import time
            time.sleep(60)
        """,
    ),
}


HARMLESS = [name for name, (path, _) in TAMPERED.items() if is_protected(pathlib.PurePath(path))]
FAST = ("exit", "all reports pass", "a test without end")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in FAST else pytest.mark.slow)
        for name in TAMPERED
        if name not in HARMLESS
    ],
)
def test_tampering_makes_nothing_pass(tester, instance, work, name):
    tester = dataclasses.replace(tester, seconds=0.5)
    if name == "a test that ignores its end":
        tester = dataclasses.replace(tester, limits=dataclasses.replace(tester.limits, seconds=3.0))
    add(work, *TAMPERED[name])
    assert not tester.solves(instance, work)


def test_tampering_with_what_does_not_count_changes_no_score(tester, instance, work):
    for name in HARMLESS:
        add(work, *TAMPERED[name])
    assert not tester.solves(instance, work)
    mend(work)
    assert tester.solves(instance, work)


def test_links_and_odd_files_lead_nowhere(tester, instance, work, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "conftest.py").write_text("kept")
    (work / "tests").rename(work / "moved")
    (work / "tests").symlink_to(outside)
    (work / "conftest.py").unlink()
    (work / "conftest.py").symlink_to(outside / "conftest.py")
    (work / "pytest.ini").unlink()
    (work / "pytest.ini").mkdir()
    (work / "loop").symlink_to(work)
    os.mkfifo(work / "pipe")
    mend(work)
    assert tester.solves(instance, work)
    assert [path.name for path in outside.iterdir()] == ["conftest.py"]
    assert (outside / "conftest.py").read_text() == "kept"


@pytest.mark.slow
def test_a_file_in_the_place_of_a_folder(tester, instance, work, tmp_path):
    inner = "letters/tests/test_inner.py"
    add(instance.repository, inner, "def test_inner(): pass\n")
    instance = dataclasses.replace(instance, pass_to_pass=(f"{inner}::test_inner",))
    (work / "letters").rename(work / "moved")
    (work / "letters").symlink_to("moved")
    assert not tester.solves(instance, work)
    (work / "letters").unlink()
    (work / "letters").write_text("a file")
    assert not tester.solves(instance, work)


@pytest.mark.slow
def test_tests_that_come_with_a_patch(tester, instance, work):
    patch = textwrap.dedent(
        """\
        --- /dev/null
        +++ b/checks/check_ratio.py
        @@ -0,0 +1,4 @@
        +from letters import words
        +
        +def test_it():
        +    assert words.ratio(1, 4) == 0.25
        """
    )
    fails = "checks/check_ratio.py::test_it"
    instance = dataclasses.replace(instance, test_patch=patch, fail_to_pass=(fails,))
    assert touched_by(patch) == {"checks/check_ratio.py"}
    add(work, "checks/check_ratio.py", "def test_it(): pass\n")
    assert not tester.solves(instance, work)
    mend(work)
    assert tester.solves(instance, work)


def test_a_patch_that_does_not_fit_is_named(instance, tmp_path):
    (instance.repository / WORDS).write_text("other")
    with pytest.raises(ValueError, match="a: a patch does not fit: git apply: error: patch failed"):
        repository.make_tree(instance, tmp_path)


@pytest.mark.parametrize(
    "path, protected",
    [
        ("a/conftest.py", True),
        ("setup.cfg", True),
        ("a/tests/data/x.txt", True),
        ("test_a.py", True),
        ("a_test.py", True),
        ("a/__pycache__/b.pyc", True),
        ("x.dist-info/RECORD", True),
        ("a/contest.py", False),
        ("a/testing.py", False),
        ("README.md", False),
    ],
)
def test_what_is_protected(path, protected):
    assert is_protected(pathlib.PurePath(path)) == protected


def test_where_packages_are(tmp_path):
    for name in ("src/one/__init__.py", "two/__init__.py", "three.py", "docs/a.txt", "a-b/c.py"):
        add(tmp_path, name, "")
    assert roots_of(tmp_path) == ["", "src"]
    assert packages_of(tmp_path) == ["three", "two", "one"]


def test_folders_are_gone_however_deep_or_closed():
    with repository.Folder() as folder:
        here = os.open(folder, os.O_RDONLY)
        for _ in range(1100):
            os.mkdir("a", dir_fd=here)
            below = os.open("a", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = below
        os.close(here)
        (folder / "closed").mkdir(mode=0)
    assert not folder.exists()

"""Files of tasks, right and wrong."""

import json
import re

import pytest
import small_package
from small_package import BUG, FIX, OTHERS, RATIO, task

from jaxrl_guided.envs.swe import repository
from jaxrl_guided.envs.swe.dataset import read_tasks
from jaxrl_guided.envs.swe.instance import Instance


@pytest.fixture
def repos(tmp_path):
    small_package.write(tmp_path)
    return tmp_path


def write(repos, *lines):
    file = repos / "tasks.jsonl"
    file.write_text(
        "".join(f"{line if isinstance(line, str) else json.dumps(line)}\n" for line in lines)
    )
    return str(file)


def test_a_task_is_read(repos):
    (made,) = read_tasks(write(repos, task(base_commit="abc", extra=1), ""))
    problem = "ratio(1, 2) is 2, not 0.5."
    assert made == Instance(
        "letters-1", repos / "letters-1.0", problem, RATIO, OTHERS, bug_patch=BUG, fix=FIX
    )


def test_tests_may_be_json_in_a_text(repos):
    line = task(FAIL_TO_PASS=json.dumps(RATIO), PASS_TO_PASS="[]", patch=None)
    (made,) = read_tasks(write(repos, line), str(repos))
    assert (made.fail_to_pass, made.pass_to_pass, made.fix) == (RATIO, (), "")


@pytest.mark.parametrize("place", ["owner/name", "owner__name", "name"])
def test_where_repositories_are(repos, place):
    (repos / place).parent.mkdir(exist_ok=True)
    (repos / "letters-1.0").rename(repos / place)
    (made,) = read_tasks(write(repos, task(repo="owner/name")))
    assert made.repository == repos / place


def test_a_clone_has_commits(repos):
    clone = repos / "letters-1.0"
    repository.commit_all(clone)
    commit = repository.git(clone, "rev-parse", "HEAD").strip()
    (clone / "tests" / "test_words.py").unlink()
    (made,) = read_tasks(write(repos, task(base_commit=commit)))
    assert made.commit == commit
    with pytest.raises(ValueError, match=r"line 1 of .*: git ls-tree: fatal: "):
        read_tasks(write(repos, task(base_commit="0" * 40)))


def test_tests_of_a_patch_need_not_be_there(repos):
    patch = "--- /dev/null\n+++ b/tests/test_new.py\n@@ -0,0 +1 @@\n+def test_a(): pass\n"
    line = task(FAIL_TO_PASS=["tests/test_new.py::test_a"], test_patch=patch)
    assert len(read_tasks(write(repos, line))) == 1


def without(name):
    line = task()
    del line[name]
    return line


WRONG = [
    ('{"instance_id": ', "no JSON: Expecting value"),
    ("[1]", "must be an object of JSON, not [1]"),
    (without("problem_statement"), "problem_statement must be given"),
    ({"repo": "a"}, "instance_id, problem_statement, FAIL_TO_PASS, PASS_TO_PASS must be given"),
    (task(problem_statement=3), "problem_statement must be a text, not 3"),
    (task(patch=["a"]), "patch must be a text, not ['a']"),
    (task(repo="none/such"), "repository 'none/such' is not in"),
    (task(repo="../letters-1.0"), "repo must be owner/name or name, not '../letters-1.0'"),
    (task(repo=""), "repo must be owner/name or name, not ''"),
    (task(FAIL_TO_PASS="[1"), "FAIL_TO_PASS must be a list, or JSON of one"),
    (task(FAIL_TO_PASS=[1]), "FAIL_TO_PASS must be a list of tests, not [1]"),
    (task(FAIL_TO_PASS=[]), "FAIL_TO_PASS must name a test; it names none"),
    (task(PASS_TO_PASS=["test_a (a.B)"]), "ids of pytest, FILE.py::TEST, not 'test_a (a.B)'"),
    (task(PASS_TO_PASS=["../a.py::b"]), "ids of pytest, FILE.py::TEST, not '../a.py::b'"),
    (
        task(PASS_TO_PASS=["tests/test_no.py::test_a"]),
        "repository 'letters-1.0' has no tests 'tests/test_no.py', and test_patch makes none",
    ),
]


@pytest.mark.parametrize("line, message", WRONG)
def test_wrong_lines_are_named(repos, line, message):
    file = write(repos, task(), line)
    pattern = f"^tasks: line 2 of '{re.escape(file)}': .*{re.escape(message)}"
    with pytest.raises(ValueError, match=pattern) as caught:
        read_tasks(file)
    assert "\n" not in str(caught.value)


def test_wrong_files_are_named(repos):
    with pytest.raises(ValueError, match="tasks: '/nowhere' must be a file of JSON lines: "):
        read_tasks("/nowhere")
    with pytest.raises(ValueError, match="repos: '/nowhere' must be a folder with repositories"):
        read_tasks(write(repos, task()), "/nowhere")
    with pytest.raises(ValueError, match="must have a task, a line of JSON; it has none"):
        read_tasks(write(repos, ""))
    with pytest.raises(ValueError, match="each instance_id must stand once in"):
        read_tasks(write(repos, task(), task()))

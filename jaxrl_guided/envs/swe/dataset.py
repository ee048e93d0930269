"""Tasks from a file of JSON lines with the fields of SWE-Bench, and repositories of one's own."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

from jaxrl_guided.envs.swe.instance import Instance, file_of, touched_by
from jaxrl_guided.envs.swe.repository import git

_NEEDED = ("instance_id", "repo", "problem_statement", "FAIL_TO_PASS", "PASS_TO_PASS")
_OPTIONAL = ("base_commit", "test_patch", "patch", "bug_patch")


def read_tasks(path: str, repos: str = "") -> list[Instance]:
    """All tasks of a file.

    `FAIL_TO_PASS` and `PASS_TO_PASS` are lists, or JSON of lists. `base_commit` counts where the
    repository is a clone. `bug_patch`, of `experiments.make_swe_tasks`, puts a mistake into it.

    Args:
      path: of the file.
      repos: folder of the repositories: that of `owner/name` is `owner/name`, `owner__name` or
        `name` in it. Empty: the file's folder.

    Raises:
      ValueError: a line is no task; says which and why.
    """
    file = pathlib.Path(path).expanduser()
    folder = pathlib.Path(repos).expanduser() if repos else file.parent
    if not folder.is_dir():
        raise ValueError(f"repos: '{repos}' must be a folder with repositories")
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"tasks: '{path}' must be a file of JSON lines: {error}") from error
    found = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                found.append(_instance(_fields(line), folder))
            except ValueError as error:
                raise ValueError(f"tasks: line {number} of '{path}': {error}") from error
    if not found:
        raise ValueError(f"tasks: '{path}' must have a task, a line of JSON; it has none")
    if len({instance.name for instance in found}) < len(found):
        raise ValueError(f"tasks: each instance_id must stand once in '{path}'")
    return found


def _fields(line: str) -> Mapping[str, Any]:
    try:
        fields = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error}") from error
    if not isinstance(fields, dict):
        raise ValueError(f"must be an object of JSON, not {line[:40]}")
    if missing := [name for name in _NEEDED if name not in fields]:
        raise ValueError(f"{', '.join(missing)} must be given")
    for name in (*_NEEDED[:3], *_OPTIONAL):
        if not isinstance(fields.get(name) or "", str):
            raise ValueError(f"{name} must be a text, not {fields[name]!r}")
    return fields


def _instance(fields: Mapping[str, Any], folder: pathlib.Path) -> Instance:
    repository = _repository(fields["repo"], folder)
    base_commit, test_patch, fix, bug_patch = (fields.get(name) or "" for name in _OPTIONAL)
    fail_to_pass = _tests(fields, "FAIL_TO_PASS")
    if not fail_to_pass:
        raise ValueError("FAIL_TO_PASS must name a test; it names none")
    made = Instance(
        fields["instance_id"],
        repository,
        fields["problem_statement"],
        fail_to_pass,
        _tests(fields, "PASS_TO_PASS"),
        base_commit if (repository / ".git").exists() else "",
        test_patch,
        bug_patch,
        fix,
    )
    _check_files(made)
    return made


def _repository(name: str, folder: pathlib.Path) -> pathlib.Path:
    if not name or ".." in pathlib.PurePath(name).parts or name.startswith("/"):
        raise ValueError(f"repo must be owner/name or name, not '{name}'")
    for place in (name, name.replace("/", "__"), name.split("/")[-1]):
        if (folder / place).is_dir():
            return (folder / place).resolve()
    raise ValueError(f"repository '{name}' is not in '{folder}'; put it there, or give repos")


def _tests(fields: Mapping[str, Any], name: str) -> tuple[str, ...]:
    tests = fields[name]
    if isinstance(tests, str):
        try:
            tests = json.loads(tests)
        except json.JSONDecodeError as error:
            raise ValueError(f"{name} must be a list, or JSON of one: {error}") from error
    if not isinstance(tests, list) or not all(isinstance(test, str) for test in tests):
        raise ValueError(f"{name} must be a list of tests, not {tests!r}")
    for test in tests:
        if "::" not in test or file_of(test).startswith("/") or ".." in file_of(test):
            raise ValueError(f"{name} must have ids of pytest, FILE.py::TEST, not '{test}'")
    return tuple(tests)


def _check_files(instance: Instance) -> None:
    """Raises ValueError if a test's file is in neither the repository nor the patch of tests."""
    there = touched_by(instance.test_patch)
    if instance.commit:
        listed = git(instance.repository, "ls-tree", "-r", "-z", "--name-only", instance.commit)
        there |= set(listed.split("\0"))
    for file in dict.fromkeys(map(file_of, instance.tests)):
        if file not in there and (instance.commit or not (instance.repository / file).is_file()):
            raise ValueError(
                f"repository '{instance.repository.name}' has no tests '{file}', and test_patch "
                "makes none"
            )

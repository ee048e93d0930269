"""Tasks from any package of plain Python that brings its tests: a mistake is put into its source.

A mistake counts if some tests fail by it and others do not, twice the same. What the agent is told
are those tests and what they show, not where the mistake is.
"""

import contextlib
import dataclasses
import pathlib
import random
import re
from collections.abc import Iterator, Mapping, Sequence

from jaxrl_guided.envs.swe import repository
from jaxrl_guided.envs.swe.instance import Instance, is_protected, is_test
from jaxrl_guided.envs.swe.mutations import KINDS, Mutation, Source, mutations
from jaxrl_guided.envs.swe.scoring import Report, Tester

_SHOWN = 5
_ADDRESS = re.compile(r"\b0x[0-9a-fA-F]+")


@dataclasses.dataclass(frozen=True)
class Bug:
    """A mistake in a package.

    Attributes:
      path: of the file, below the package.
      mutation: in it.
      text: of the file with the mistake.
    """

    path: str
    mutation: Mutation
    text: str


class Package:
    """A package whose tests pass.

    Args:
      folder: with source and tests.
      tester: runs the tests.

    Raises:
      ValueError: there are no tests, none passes, or some fail.
    """

    def __init__(self, folder: pathlib.Path, tester: Tester) -> None:
        if not folder.is_dir():
            raise ValueError(f"package: '{folder}' must be a folder with source and tests")
        self.folder, self._tester = folder.resolve(), tester
        self._tree = repository.Folder()
        repository.copy_source(self.folder, self._tree.path)
        files = sorted(path.relative_to(self._tree.path) for path in self._tree.path.rglob("*.py"))
        self._tests = [path.as_posix() for path in files if is_test(path)]
        if not self._tests:
            raise ValueError(f"package: '{folder}' has no tests, files named test_….py")
        report = self._run(None)
        failed = [test for test, outcome in report.outcomes.items() if outcome.result == "failed"]
        passed = [test for test in report.outcomes if report.passed(test)]
        if report.trouble or failed or not passed:
            why = report.trouble or ", ".join(sorted(failed)[:3]) or "none was found"
            raise ValueError(f"package: all tests of '{folder}' must pass; {why}")
        self._passing = frozenset(passed)
        self._sources: dict[str, Source] = {}
        for name in filter(self._counts, report.files):
            with contextlib.suppress(SyntaxError, UnicodeDecodeError):  # in another encoding
                self._sources[name] = Source((self.folder / name).read_bytes().decode())

    def bugs(self, seed: int) -> Iterator[Bug]:
        """All mistakes that can be made in what the tests import, in random order.

        Kinds of mistakes take turns by chance, however many places there are for each.
        """
        chance = random.Random(seed)
        by_kind: dict[str, list[tuple[str, Mutation]]] = {kind: [] for kind in KINDS}
        for name, source in self._sources.items():
            for mutation in mutations(source):
                by_kind[mutation.kind].append((name, mutation))
        for places in by_kind.values():
            chance.shuffle(places)
        while left := [kind for kind, places in by_kind.items() if places]:
            name, mutation = by_kind[chance.choice(left)].pop()
            if (text := self._sources[name].changed(mutation)) is not None:
                yield Bug(name, mutation, text)

    def instance(self, bug: Bug, name: str) -> Instance | None:
        """A task of a mistake; None if it is none that tests find."""
        report = self._run(bug)
        fails = [test for test in report.outcomes if self._fails(report, test)]
        if not 0 < len(fails) < len(self._passing) or self._passing - set(report.outcomes):
            return None
        again = self._run(bug)
        if again.trouble or [test for test in again.outcomes if self._fails(again, test)] != fails:
            return None
        return Instance(
            name,
            self.folder,
            problem_of(report, fails),
            tuple(fails),
            tuple(test for test in report.outcomes if test in self._passing and test not in fails),
            bug_patch=self._patch(bug),
            fix=self._patch(bug, "-R", "--src-prefix=b/", "--dst-prefix=a/"),
        )

    def _fails(self, report: Report, test: str) -> bool:
        return test in self._passing and not report.passed(test)

    def _counts(self, name: str) -> bool:
        path = pathlib.PurePath(name)
        return path.suffix == ".py" and not is_protected(path) and (self.folder / path).is_file()

    def _run(self, bug: Bug | None) -> Report:
        with repository.Folder() as tree:
            repository.copy_source(self._tree.path, tree)
            if bug is not None:
                (tree / bug.path).write_bytes(bug.text.encode())
            return self._tester.run(tree, self._tests)

    def _patch(self, bug: Bug, *options: str) -> str:
        with repository.Folder() as tree:
            place = tree / bug.path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(self._sources[bug.path].data)
            repository.commit_all(tree)
            place.write_bytes(bug.text.encode())
            return repository.git(tree, "diff", "--no-color", *options)


def problem_of(report: Report, fails: Sequence[str]) -> str:
    """What an agent is told: which tests fail, and what they show."""
    tests = (
        f"{len(fails)} tests that should pass fail"
        if fails[1:]
        else "A test that should pass fails"
    )
    lines = [f"{tests}; the mistake is in the source, not in the tests."]
    for test in fails[:_SHOWN]:
        lines.append(f"- {test}")
        symptom = _ADDRESS.sub("0x...", report.outcomes[test].symptom)
        lines += [f"    {line[:300]}" for line in symptom.splitlines()]
    if len(fails) > _SHOWN:
        lines.append(f"- and {len(fails) - _SHOWN} more")
    return "\n".join(lines)


def tasks_of(package: Package, count: int, seed: int) -> Iterator[tuple[Bug, Instance | None]]:
    """Tries mistakes until so many are tasks, or no more are left."""
    made = 0
    for bug in package.bugs(seed):
        if made == count:
            return
        instance = package.instance(bug, f"{package.folder.name}-{seed}-{made}")
        made += instance is not None
        yield bug, instance


def as_json(instance: Instance) -> Mapping[str, object]:
    """A task as a line of a file, with the names of SWE-Bench."""
    return {
        "instance_id": instance.name,
        "repo": instance.repository.name,
        "base_commit": instance.commit,
        "problem_statement": instance.problem,
        "bug_patch": instance.bug_patch,
        "patch": instance.fix,
        "test_patch": instance.test_patch,
        "FAIL_TO_PASS": list(instance.fail_to_pass),
        "PASS_TO_PASS": list(instance.pass_to_pass),
    }

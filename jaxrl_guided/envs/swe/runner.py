"""Runs tests inside the sandbox: a program of its own, of which only the text leaves this file.

It reads a request from its input, a JSON object: `nonce`, `files` (pytest's arguments), `tests`
(ids to run; null for all), `roots` (folders to import from) and `seconds` (of a test). It writes a
JSON object per line and test, with the nonce, and one at the end. The code under test runs in the
same process, but sees neither the nonce's file nor the output: it would have to search the memory
of Python for them.

It runs under the Python of the tests, which may be an older one than ours.
"""

import json
import os
import signal
import sys


class TooSlow(BaseException):
    """A test has taken too long; no `except Exception` holds it."""


def main():  # type: ignore[no-untyped-def]
    """Runs what is asked for."""
    asked = json.loads(sys.stdin.buffer.read().decode())
    out = os.fdopen(os.dup(1), "w")
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(null, standard)
    import pytest

    sys.path[:0] = asked["roots"]  # pytest itself is imported by now
    reporter, say = make_reporter(asked, out)
    options = ["-q", "-p", "no:cacheprovider", "--rootdir=.", "--continue-on-collection-errors"]
    code = pytest.main([*options, *asked["files"]], plugins=[reporter])
    here = os.getcwd() + os.sep
    files = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    used = sorted({name[len(here) :] for name in files if name.startswith(here)})
    say(exit=int(code), files=used)
    out.flush()
    os._exit(0)


def make_reporter(asked, out):  # type: ignore[no-untyped-def]
    """A plugin of pytest, and what writes a line; the nonce is an attribute of neither."""
    import pytest

    nonce, seconds = asked.pop("nonce"), asked["seconds"]
    wanted = None if asked["tests"] is None else set(asked["tests"])
    dumps = json.dumps

    def say(**fields):  # type: ignore[no-untyped-def]
        out.write(dumps(dict(fields, nonce=nonce)) + "\n")

    def too_slow(*_):  # type: ignore[no-untyped-def]
        raise TooSlow(f"more than {seconds:g} seconds")

    class Reporter:
        """Says what became of each test."""

        def __init__(self):  # type: ignore[no-untyped-def]
            self.outcome, self.symptom = "passed", ""

        @pytest.hookimpl(trylast=True)
        def pytest_collection_modifyitems(self, items):  # type: ignore[no-untyped-def]
            if wanted is not None:
                items[:] = [item for item in items if item.nodeid in wanted]

        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_protocol(self, item):  # type: ignore[no-untyped-def]
            self.outcome, self.symptom = "passed", ""
            signal.signal(signal.SIGALRM, too_slow)
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            yield
            signal.setitimer(signal.ITIMER_REAL, 0)
            say(test=item.nodeid, outcome=self.outcome, symptom=self.symptom)

        @pytest.hookimpl(hookwrapper=True)
        def pytest_runtest_makereport(self, item, call):  # type: ignore[no-untyped-def]
            report = (yield).get_result()
            if report.outcome != "passed" and self.outcome != "failed":
                self.outcome = report.outcome
                if report.outcome == "failed":
                    self.symptom = symptom_of(item, call.excinfo)

    return Reporter(), say


def symptom_of(item, excinfo):  # type: ignore[no-untyped-def]
    """The line of the test that failed, and the first line of what was raised."""
    if excinfo is None:
        return ""
    lines = [
        str(entry.statement).strip()
        for entry in excinfo.traceback
        if str(entry.path) == str(item.path)
    ]
    raised = excinfo.exconly().strip().splitlines()[:1]
    return "\n".join(lines[-1:] + raised)


if __name__ == "__main__":
    main()

"""Signals become a flag, and handlers come back."""

import os
import signal
import subprocess
import sys
import threading

import pytest

from jaxrl_guided.runtime.signals import catch_signals


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_signal_raises_the_flag_and_is_acknowledged(signum, capfd):
    before = signal.getsignal(signum)
    with catch_signals() as stop:
        assert not stop.requested
        os.kill(os.getpid(), signum)
        assert stop.requested
        assert stop.signum == signum
    assert signal.getsignal(signum) is before
    assert "stopping at the next checkpoint" in capfd.readouterr().err


def test_second_interrupt_ends_at_once_and_handlers_come_back():
    counts = []

    def interrupt_twice():
        with catch_signals():
            for i in range(2):
                counts.append(i)
                os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        interrupt_twice()
    assert counts == [0, 1]
    assert signal.getsignal(signal.SIGINT) is before


def test_repeated_preemption_notice_does_not_break_the_save():
    with catch_signals() as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.requested


def test_other_threads_get_a_flag_that_stays_down():
    flags = []

    def work():
        with catch_signals() as stop:
            flags.append(stop.requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert flags == [False]


@pytest.mark.skipif(sys.platform != "linux", reason="the system call is Linux's")
def test_a_child_does_not_outlive_its_parent(tmp_path):
    child = (
        "import time; from jaxrl_guided.runtime.signals import catch_signals, end_with_parent\n"
        "with catch_signals() as stop:\n"
        "    end_with_parent(); print('ready', flush=True)\n"
        "    while not stop.requested: time.sleep(.01)\n"
        f"open({str(tmp_path / 'ended')!r}, 'w').write(str(stop.signum))"
    )
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline() == b"ready\n"
        process.kill()
        process.stdout.read()  # until the child has ended, too
    assert (tmp_path / "ended").read_text() == str(int(signal.SIGTERM))

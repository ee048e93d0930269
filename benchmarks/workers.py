"""Live processes of contenders: started, asked line by line (`peers.protocol`), closed."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

ROOT = pathlib.Path(__file__).parents[1]

_ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "CUDA_VISIBLE_DEVICES": "",
}
_PATIENCE = 30.0
"""Seconds that a process has to end."""

_NOT_PASSED = ("PYTHONPATH", "VIRTUAL_ENV", "JAX_COMPILATION_CACHE_DIR")


class ContenderFailed(Exception):
    """A contender died or answered what is no answer; the message is its last line."""


class Worker:
    """A contender's process, on the cores of this one.

    Attributes:
      ready: what it answered when it was ready.
      started: `time.perf_counter()` before the process was started.
    """

    def __init__(self, command: Sequence[str], task: Mapping[str, Any]) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115, closed by `close`
        passed = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED}
        self.started = time.perf_counter()
        self._process = subprocess.Popen(
            [*command, json.dumps(dict(task))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            cwd=ROOT,
            env=passed | _ONE_THREAD,
        )
        self.ready = self._answer()

    def ask(self, line: str) -> dict[str, Any]:
        """Its answer.

        Raises:
          ContenderFailed: there is none.
        """
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except OSError:
            pass  # it is dead, and the reason stands in what it wrote
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        """The next line that is JSON; what libraries print while they are imported is not."""
        assert self._process.stdout is not None
        printed = ""
        for line in self._process.stdout:
            if line.startswith("{"):
                return json.loads(line)
            printed = line.strip() or printed
        code = self._process.wait()
        self._errors.seek(0)
        written = [text.strip() for text in self._errors if text.strip()]
        raise ContenderFailed(written[-1] if written else printed or f"exit status {code}")

    def close(self) -> None:
        """End the process, by force if it does not end by itself."""
        try:
            self._process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

"""Trains an actor and an experience extractor that evolve together, or one of the arms beside them.

    python -m experiments.complementary --preset=nano --run_dir=runs/room
    python -m experiments.complementary --preset=nano --arm=baseline --run_dir=runs/room-baseline
    python -m experiments.complementary --task=mix3 --run_dir=runs/mix
    python -m experiments.complementary --preset=nano --task=minihack/Room-Random-5x5+webshop
    python -m experiments.complementary --role=actor --cluster=HOST:6379 --run_dir=runs/room
    python -m experiments.complementary --role=extractor --cluster=HOST:6379 --run_dir=runs/scribe

`nano` has two small models with words of their own, warmed up by scripted play of MiniHack's rooms,
of WebShop and ALFWorld, one of them or a mix (`nano_mix` has the sizes and settings for mixes);
`smollm2` trains adapters on SmolLM2-135M-Instruct; `qwen` has the paper's shapes and settings with
random weights: name directories with weights and `random_weights=false`. The run directory gets
configuration, metrics, checkpoints, the bank (`python -m experiments.bank show RUN`), both models,
judged episodes, the bank's best and worst entries, curves and a summary. A run that was stopped
goes on with the same command and `--run_dir`.

With `--role` actor and extractor are two programs on hosts of a Ray cluster (extra `ray`; `ray
start --head` on one, `ray start --address=HOST:PORT` on the others), started with the same
settings, by which they find each other. They exchange text, token ids and outcomes; bank, curves
and summary are the actor's. Each saves its own model. If one ends, so does the other, and both go
on together.
"""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

from absl import flags

from jaxrl_guided.complementary.presets import PRESETS, on_task
from jaxrl_guided.complementary.run_config import ComplementaryConfig
from jaxrl_guided.runtime import app, cell_flags, config
from jaxrl_guided.runtime.errors import UserError
from jaxrl_guided.runtime.post import Line, PeerGone
from jaxrl_guided.runtime.signals import StopFlag, Stopped

_TASK = flags.DEFINE_string(
    "task", None, "Task or mix, with the options that the preset has for it; else --config.task."
)
_ARM = flags.DEFINE_string("arm", None, "What is compared, in place of --config.arm.")
_DEVICE = flags.DEFINE_integer(
    "extractor_device", 0, "Number of the device that the extractor's model is on.", 0
)
_WARM = flags.DEFINE_string(
    "warm_cache",
    None,
    "Directory that keeps models after their warm-up, for runs that begin alike.",
)
_ROLE = flags.DEFINE_enum(
    "role", "both", ["both", "actor", "extractor"], "Which of the two programs this is, or both."
)
_CLUSTER = flags.DEFINE_string(
    "cluster", None, "HOST:PORT of the Ray cluster in which the programs of both roles meet."
)
_PATIENCE = flags.DEFINE_float(
    "patience", 60.0, "Seconds without a sign of life after which the other program is gone.", 8.0
)
_CONFIG = config.define(PRESETS)
flags.adopt_module_key_flags(cell_flags)


def run() -> None:
    """Trains, judges and prints the summary, or is at the service of who does."""
    from jaxrl_guided.complementary.arms import settled
    from jaxrl_guided.complementary.report import summary_text
    from jaxrl_guided.complementary.table import run_cell
    from jaxrl_guided.runtime import errors, signals

    alone = _ROLE.value == "both"
    _check_role()
    if cell := cell_flags.read(ComplementaryConfig, _CONFIG):
        if not alone:
            raise UserError("--role must be left out with --cell")
        settings, path = cell
        result = run_cell(settings, app.RUN_DIR.value, path, _WARM.value)
        print(summary_text(settings, result))
        return
    task = _TASK.value
    with errors.validation():
        settings = _CONFIG.build(None if task is None else lambda _: on_task(_CONFIG.preset, task))
    if _ARM.value is not None:
        settings = dataclasses.replace(settings, arm=_ARM.value)
    with errors.validation():
        if not alone and not settled(settings).experience:
            raise UserError(f"--role must be left out with arm {settings.arm}: it has no extractor")
    with signals.catch_signals() as stop:
        if alone:
            _train(settings, stop, None)
            return
        try:
            with _meeting(settings, stop) as line:
                (_train if _ROLE.value == "actor" else _serve)(settings, stop, line)
        except PeerGone as gone:
            if stop.requested:  # as both are, before one sees that the other has ended
                raise Stopped("start both programs again to go on") from gone
            raise


def _check_role() -> None:
    """Refuses flags that do not go together."""
    alone = _ROLE.value == "both"
    if alone != (_CLUSTER.value is None):
        raise UserError("--role=actor and --role=extractor need --cluster=HOST:PORT, and it them")
    if _DEVICE.value and not alone:
        raise UserError(f"--extractor_device must be left out with --role={_ROLE.value}")


def _train(settings: ComplementaryConfig, stop: StopFlag, line: Line | None) -> None:
    """The actor, with the extractor beside it or behind a line."""
    from jaxrl_guided.complementary.job import run_complementary
    from jaxrl_guided.complementary.preparation import prepare
    from jaxrl_guided.complementary.report import summary_text
    from jaxrl_guided.complementary.training import ComplementaryRun
    from jaxrl_guided.runtime import errors, rundir

    job = prepare(settings, extractor=line is None)
    with errors.validation():
        work = ComplementaryRun(job, _extractor_device(), _WARM.value, line)
    with (
        contextlib.closing(work),
        rundir.open_run(app.RUN_DIR.value, settings.arm, settings) as run_dir,
    ):
        result = run_complementary(work, run_dir, stop)
    print(summary_text(settings, result))
    print(f"results in {run_dir.home}")


def _serve(settings: ComplementaryConfig, stop: StopFlag, line: Line) -> None:
    """The extractor, for an actor behind the line."""
    from jaxrl_guided.complementary.extractor_program import (
        ExtractorProgram,
        failures_told,
        serve,
    )
    from jaxrl_guided.complementary.pairs import check_role
    from jaxrl_guided.complementary.preparation import prepare_extractor
    from jaxrl_guided.runtime import errors, rundir

    with failures_told(line):
        settled, prepared = prepare_extractor(settings)
        with rundir.open_run(app.RUN_DIR.value, f"{settings.arm}-extractor", settings) as run:
            check_role(run, "extractor")
            with errors.validation():
                program = ExtractorProgram(settled, prepared, line, run, stop, _WARM.value)
            with program:
                serve(program, settled.steps, stop)
    print(f"the run is finished; the extractor's model is in {run.home}")


@contextlib.contextmanager
def _meeting(settings: ComplementaryConfig, stop: StopFlag) -> Iterator[Line]:
    """The line to the other program, which has the same settings."""
    from jaxrl_guided.runtime import cluster

    name, address = config.config_hash(config.to_dict(settings)), _CLUSTER.value
    assert address is not None  # which was checked
    if _ROLE.value == "actor":
        with cluster.open_post(address, name, _PATIENCE.value) as line:
            yield line
    else:
        with cluster.reach_post(address, name, _PATIENCE.value, stop) as line:
            yield line


def _extractor_device() -> Any:
    """None beside the actor, where nothing need be moved."""
    import jax

    there = jax.local_devices()
    if _DEVICE.value >= len(there):
        raise UserError(f"--extractor_device must be below {len(there)}, the number of devices")
    return there[_DEVICE.value] if _DEVICE.value else None


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

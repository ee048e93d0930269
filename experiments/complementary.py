"""Trains an actor and an experience extractor that evolve together, or one of the arms beside them.

    python -m experiments.complementary --preset=nano --run_dir=runs/room
    python -m experiments.complementary --preset=nano --arm=baseline --run_dir=runs/room-baseline
    python -m experiments.complementary --task=mix3 --run_dir=runs/mix
    python -m experiments.complementary --preset=nano --task=minihack/Room-Random-5x5+webshop

`nano` has two small models with words of their own, warmed up by scripted play of MiniHack's rooms,
of WebShop and ALFWorld, one of them or a mix (`nano_mix` has the sizes and settings for mixes);
`smollm2` trains adapters on SmolLM2-135M-Instruct; `qwen` has the paper's shapes and settings with
random weights: name directories with weights and `random_weights=false`. The run directory gets
configuration, metrics, checkpoints, the bank (`python -m experiments.bank show RUN`), both models,
judged episodes, the bank's best and worst entries, curves and a summary. A run that was stopped
goes on with the same command and `--run_dir`.
"""

import contextlib
import dataclasses
from typing import Any

from absl import flags

from jaxrl_guided.complementary.presets import PRESETS, on_task
from jaxrl_guided.runtime import app, cell_flags, config
from jaxrl_guided.runtime.errors import UserError

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
_CONFIG = config.define(PRESETS)
flags.adopt_module_key_flags(cell_flags)


def run() -> None:
    """Trains, judges and prints the summary."""
    from jaxrl_guided.complementary.job import run_complementary
    from jaxrl_guided.complementary.preparation import prepare
    from jaxrl_guided.complementary.report import summary_text
    from jaxrl_guided.complementary.run_config import ComplementaryConfig
    from jaxrl_guided.complementary.table import run_cell
    from jaxrl_guided.complementary.training import ComplementaryRun
    from jaxrl_guided.runtime import errors, rundir, signals

    if cell := cell_flags.read(ComplementaryConfig, _CONFIG):
        settings, path = cell
        result = run_cell(settings, app.RUN_DIR.value, path, _WARM.value)
        print(summary_text(settings, result))
        return
    task = _TASK.value
    with errors.validation():
        settings = _CONFIG.build(None if task is None else lambda _: on_task(_CONFIG.preset, task))
    if _ARM.value is not None:
        settings = dataclasses.replace(settings, arm=_ARM.value)
    with signals.catch_signals() as stop:
        job = prepare(settings)
        with errors.validation():
            work = ComplementaryRun(job, _extractor_device(), _WARM.value)
        with (
            contextlib.closing(work),
            rundir.open_run(app.RUN_DIR.value, settings.arm, settings) as run_dir,
        ):
            result = run_complementary(work, run_dir, stop)
    print(summary_text(settings, result))
    print(f"results in {run_dir.home}")


def _extractor_device() -> Any:
    """None beside the actor, where nothing need be moved."""
    import jax

    there = jax.local_devices()
    if _DEVICE.value >= len(there):
        raise UserError(f"--extractor_device must be below {len(there)}, the number of devices")
    return there[_DEVICE.value] if _DEVICE.value else None


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

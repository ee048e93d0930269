"""Trains PPO or SAC on any environment of the registry, several seeds side by side.

    python -m experiments.train --preset=cartpole --config.seeds=0,1,2 --run_dir=runs/cartpole
    python -m experiments.train --config.env=gymnax/Acrobot-v1
    python -m experiments.train --preset=pendulum --config.algorithm=sac
    python -m experiments.train --config.env=brax/reacher --config.options=backend=spring

The run directory gets configuration, metrics, checkpoints, the final policies, a curve and a
summary. A run that was stopped goes on with the same command and `--run_dir`. Devices share the
work, as many as divide it: whole seeds where their number allows it, environments else; on several
machines start the same command on each (see `experiments/tpu_job.sh`). The grid `learners` calls it
with `--cell` and `--result`.
"""

import contextlib

from absl import flags

from jaxrl_guided.learners.presets import PRESETS
from jaxrl_guided.runtime import app, cell_flags, config, devices

_CONFIG = config.define(PRESETS)
flags.adopt_module_key_flags(devices)
flags.adopt_module_key_flags(cell_flags)


def run() -> None:
    """Trains, evaluates and prints the summary."""
    from jaxrl_guided.learners.build import prepare
    from jaxrl_guided.learners.job import run_job, summary_text
    from jaxrl_guided.learners.job_config import TrainConfig
    from jaxrl_guided.learners.standard import run_cell
    from jaxrl_guided.runtime import rundir, signals
    from jaxrl_guided.runtime.mesh import is_leader

    if cell := cell_flags.read(TrainConfig, _CONFIG):
        settings, path = cell
        print(summary_text(settings, run_cell(settings, app.RUN_DIR.value, path)))
        return
    settings = _CONFIG.build()
    _CONFIG.refuse(settings.unread, f"algorithm {settings.algorithm}")
    count = devices.start()
    with signals.catch_signals() as stop:
        name = settings.env.replace("/", "-")
        with (
            contextlib.closing(prepare(settings, len(settings.seeds), count)) as job,
            rundir.open_run(app.RUN_DIR.value, name, settings, remote=True) as run_dir,
        ):
            result = run_job(job, run_dir, stop)
    if is_leader():
        print(summary_text(settings, result))
        print(f"results in {run_dir.home}")


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

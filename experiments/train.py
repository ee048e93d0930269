"""Trains PPO or SAC on any environment of the registry, several seeds side by side.

    python -m experiments.train --preset=cartpole --config.seeds=0,1,2 --run_dir=runs/cartpole
    python -m experiments.train --config.env=gymnax/Acrobot-v1
    python -m experiments.train --preset=pendulum --config.algorithm=sac
    python -m experiments.train --config.env=brax/reacher --config.options=backend=spring

The run directory gets configuration, metrics, checkpoints, the final policies, a curve and a
summary. A run that was stopped goes on with the same command and `--run_dir`. All devices share the
work, whole seeds where their number allows it and environments else; on several machines start the
same command on each (see `experiments/tpu_job.sh`).
"""

from absl import flags

from jaxrl_guided.learners.presets import PRESETS
from jaxrl_guided.runtime import app, config, devices

_CONFIG = config.define(PRESETS)
flags.adopt_module_key_flags(devices)


def run() -> None:
    """Trains, evaluates and prints the summary."""
    from jaxrl_guided.learners.job import make_learner, place, run_job, summary_text
    from jaxrl_guided.runtime import rundir, signals
    from jaxrl_guided.runtime.mesh import is_leader

    settings, mesh = _CONFIG.build(), devices.start()
    make_learner(settings, place(settings, len(settings.seeds), mesh))
    name = settings.env.replace("/", "-")
    with (
        rundir.open_run(app.RUN_DIR.value, name, settings, remote=True) as run_dir,
        signals.catch_signals() as stop,
    ):
        result = run_job(settings, mesh, run_dir, stop)
    if is_leader():
        print(summary_text(settings, result))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

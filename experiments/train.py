"""Trains PPO or SAC on any environment of the registry, several seeds side by side.

    python -m experiments.train --preset=cartpole --config.seeds=0,1,2 --run_dir=runs/cartpole
    python -m experiments.train --config.env=gymnax/Acrobot-v1
    python -m experiments.train --preset=pendulum --config.algorithm=sac
    python -m experiments.train --config.env=brax/reacher --config.options=backend=spring

The run directory gets configuration, metrics, checkpoints, the final policies, a curve and a
summary. A run that was stopped goes on with the same command and `--run_dir`.
"""

from jaxrl_guided.learners.presets import PRESETS
from jaxrl_guided.runtime import app, config

_CONFIG = config.define(PRESETS)


def run() -> None:
    """Trains, evaluates and prints the summary."""
    from jaxrl_guided.learners.job import make_learner, run_job, summary_text
    from jaxrl_guided.runtime import rundir, signals

    settings = _CONFIG.build()
    make_learner(settings)
    name = settings.env.replace("/", "-")
    with (
        rundir.open_run(app.RUN_DIR.value, name, settings) as run_dir,
        signals.catch_signals() as stop,
    ):
        result = run_job(settings, run_dir, stop)
    print(summary_text(settings, result))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

"""Trains every combination of hyper-parameters, with several seeds, in one program.

    python -m experiments.sweep --preset=cartpole --config.seeds=0,1,2 \\
        --vary=learning_rate=1e-4,1e-3 --vary=entropy_weight=0,0.01

What may vary are the fields of the algorithm's `Hyper`: learning_rate, gamma, gae_lambda, clip and
entropy_weight of PPO; actor_rate, critic_rate, alpha_rate, gamma and tau of SAC.
"""

from absl import flags

from jaxrl_guided.learners.presets import PRESETS
from jaxrl_guided.runtime import app, config

_VARY = flags.DEFINE_multi_string("vary", [], "NAME=VALUE,VALUE,… of a hyper-parameter.")
_CONFIG = config.define(PRESETS)


def run() -> None:
    """Trains, evaluates and prints the table."""
    from jaxrl_guided.learners.job import make_learner
    from jaxrl_guided.learners.sweep import SweepConfig, run_sweep, sweep_text
    from jaxrl_guided.runtime import errors, rundir, signals

    train = _CONFIG.build()
    with errors.validation():
        settings = SweepConfig(train, tuple(_VARY.value))
    make_learner(train)
    name = f"sweep-{train.env.replace('/', '-')}"
    with (
        rundir.open_run(app.RUN_DIR.value, name, settings) as run_dir,
        signals.catch_signals() as stop,
    ):
        result = run_sweep(settings, run_dir, stop)
    print(sweep_text(settings, result))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

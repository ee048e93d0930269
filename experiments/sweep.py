"""Trains every combination of hyper-parameters, with several seeds, in one program.

    python -m experiments.sweep --preset=cartpole --config.seeds=0,1,2 \\
        --vary=learning_rate=1e-4,1e-3 --vary=entropy_weight=0,0.01

What may vary are the fields of the algorithm's `Hyper`: learning_rate, gamma, gae_lambda, clip and
entropy_weight of PPO; actor_rate, critic_rate, alpha_rate, gamma and tau of SAC.
"""

import contextlib

from absl import flags

from jaxrl_guided.learners.presets import PRESETS
from jaxrl_guided.runtime import app, config, devices

_VARY = flags.DEFINE_multi_string("vary", [], "NAME=VALUE,VALUE,… of a hyper-parameter.")
_CONFIG = config.define(PRESETS)
flags.adopt_module_key_flags(devices)


def run() -> None:
    """Trains, evaluates and prints the table."""
    from jaxrl_guided.learners.sweep import SweepConfig, prepare_sweep, run_sweep, sweep_text
    from jaxrl_guided.runtime import errors, rundir, signals
    from jaxrl_guided.runtime.mesh import is_leader

    train = _CONFIG.build()
    _CONFIG.refuse(train.unread, f"algorithm {train.algorithm}")
    with errors.validation():
        settings = SweepConfig(train, tuple(_VARY.value))
    count = devices.start()
    with signals.catch_signals() as stop:
        name = f"sweep-{train.env.replace('/', '-')}"
        with (
            contextlib.closing(prepare_sweep(settings, count)) as job,
            rundir.open_run(app.RUN_DIR.value, name, settings, remote=True) as run_dir,
        ):
            result = run_sweep(settings, job, run_dir, stop)
    if is_leader():
        print(sweep_text(settings, result))
        print(f"results in {run_dir.home}")


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

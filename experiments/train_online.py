"""Stage 2 of LaGO: one arm on one level, several seeds side by side.

    python -m experiments.train_online --config.level=real --config.arm=lago --prior=priors/smollm2

A preset gives each arm what the main job gives to it (see `AloneConfig`); flags change that. Arms
that start from behaviour cloning need `--data`. `--cell` and `--result` are how grids call it.
"""

from absl import flags

from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.presets import PRESETS
from jaxrl_guided.runtime import app, cell_flags, config

_PRIOR = flags.DEFINE_string("prior", None, "Prior directory, for guided arms.")
_DATA = flags.DEFINE_string("data", None, "Dataset directory, for arms with behaviour cloning.")
_CONFIG = config.define({name: preset.online for name, preset in PRESETS.items()})
flags.adopt_module_key_flags(cell_flags)


def run() -> None:
    """Trains and evaluates; prints the final success."""
    from jaxrl_guided.lago.cell import run_cell, summary_text

    settings, path = cell_flags.read(OnlineConfig, _CONFIG) or (
        _CONFIG.build(lambda given: PRESETS[_CONFIG.preset].settings(given.arm)),
        None,
    )
    result = run_cell(settings, _PRIOR.value, _DATA.value, app.RUN_DIR.value, path)
    print(summary_text(settings, result))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

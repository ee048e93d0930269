"""Stage 2 of LaGO: one arm on one level, several seeds side by side.

    python -m experiments.train_online --config.level=real --config.arm=lago --prior=priors/smollm2

A preset gives each arm what the main job gives to it (see `AloneConfig`); flags change that. Arms
that start from behaviour cloning need `--data`. `--cell` and `--out` are how grids call it.
"""

from absl import flags

from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.lago.presets import PRESETS
from jaxrl_guided.runtime import app, config

_PRIOR = flags.DEFINE_string("prior", None, "Prior directory, for guided arms.")
_DATA = flags.DEFINE_string("data", None, "Dataset directory, for arms with behaviour cloning.")
_CELL = flags.DEFINE_string("cell", None, "JSON file with the whole configuration.")
_OUT = flags.DEFINE_string("out", None, "JSON file for the result of a cell.")
_CACHE = flags.DEFINE_string("compile_cache", None, "Directory for compiled programs.")
_CONFIG = config.define({name: preset.online for name, preset in PRESETS.items()})


def run() -> None:
    """Trains and evaluates; prints the final success."""
    from jaxrl_guided.lago.cell import run_cell, summary_text
    from jaxrl_guided.runtime import compile_cache, files, signals

    if _CELL.value:
        signals.end_with_parent()
        settings = config.from_dict(OnlineConfig, files.read_json(_CELL.value), "--cell")
    else:
        settings = _CONFIG.build(lambda given: PRESETS[_CONFIG.preset].settings(given.arm))
    if _CACHE.value:
        compile_cache.enable(_CACHE.value)
    result = run_cell(settings, _PRIOR.value, _DATA.value, app.RUN_DIR.value, _OUT.value)
    print(summary_text(settings, result))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

"""One cell of the backbone comparison: fine-tunes a prior and measures what it learned.

`--cell` and `--out` are how `python -m experiments.grid lago_backbones` calls it.
"""

from absl import flags

from jaxrl_guided.runtime import app

_CELL = flags.DEFINE_string("cell", None, "JSON file with the whole configuration.", required=True)
_DATA = flags.DEFINE_string("data", None, "Dataset directory from `collect`.", required=True)
_OUT = flags.DEFINE_string("out", None, "JSON file for the result.")
_CACHE = flags.DEFINE_string("compile_cache", None, "Directory for compiled programs.")


def run() -> None:
    """Measures and prints the numbers."""
    from jaxrl_guided.lago.comparison import BackboneCell, result_text, run_backbone
    from jaxrl_guided.runtime import compile_cache, config, files, signals

    signals.end_with_parent()
    cell = config.from_dict(BackboneCell, files.read_json(_CELL.value), "--cell")
    if _CACHE.value:
        compile_cache.enable(_CACHE.value)
    print(result_text(run_backbone(cell, _DATA.value, app.RUN_DIR.value, _OUT.value)))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

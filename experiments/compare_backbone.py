"""One cell of the backbone comparison: fine-tunes a prior and measures what it learned.

`--cell` and `--result` are how `python -m experiments.grid lago_backbones` calls it.
"""

from absl import flags

from jaxrl_guided.runtime import app, cell_flags

_DATA = flags.DEFINE_string("data", None, "Dataset directory from `collect`.", required=True)
flags.adopt_module_key_flags(cell_flags)


def run() -> None:
    """Measures and prints the numbers."""
    from jaxrl_guided.lago.backbone_grid import BackboneCell, result_text, run_backbone
    from jaxrl_guided.runtime.errors import UserError

    read = cell_flags.read(BackboneCell)
    if read is None:
        raise UserError("--cell and --result are needed: start the grid lago_backbones")
    cell, path = read
    print(result_text(run_backbone(cell, _DATA.value, app.RUN_DIR.value, path)))


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

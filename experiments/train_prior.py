"""Stage 1 of LaGO: fine-tunes a backbone into a latent action prior on collected data.

python -m experiments.train_prior --data=data/real --out=priors/smollm2 --run_dir=runs/prior
"""

import dataclasses

from absl import flags

from jaxrl_guided.lago.presets import PRESETS
from jaxrl_guided.runtime import app, config, files

_DATA = flags.DEFINE_string("data", None, "Dataset directory from `collect`.", required=True)
_OUT = flags.DEFINE_string("out", None, "Prior directory to write.", required=True)
_BACKBONE = flags.DEFINE_string(
    "backbone", None, "Short for --config.backbone.name: a name, a model directory or a GGUF file."
)
_FSDP = flags.DEFINE_integer(
    "fsdp", 1, "Devices among which the backbone's weights and the rows of a batch are divided.", 1
)
_TENSOR = flags.DEFINE_integer(
    "tensor", 1, "Devices that share each matrix product, for each of --fsdp.", 1
)
_CONFIG = config.define({name: preset.prior for name, preset in PRESETS.items()})


def run() -> None:
    """Trains, with early stopping on held-out Real, and saves the best prior."""
    from jaxrl_guided.backbones.sharding import make_model_mesh
    from jaxrl_guided.lago.offline import load_data, train_prior
    from jaxrl_guided.lago.sft import check_rows
    from jaxrl_guided.runtime import errors, rundir, signals

    settings = _CONFIG.build()
    if _BACKBONE.value:
        choice = dataclasses.replace(settings.backbone, name=_BACKBONE.value)
        settings = dataclasses.replace(settings, backbone=choice)
    episodes = load_data(_DATA.value)
    files.check_new(_OUT.value, "out")
    with errors.validation():
        mesh = make_model_mesh(_FSDP.value, _TENSOR.value)
        check_rows(settings.sft, mesh)
    settings.check_backbone()
    with (
        rundir.open_run(app.RUN_DIR.value, "prior", settings) as run_dir,
        signals.catch_signals() as stop,
    ):
        card = train_prior(settings, episodes, run_dir, _OUT.value, stop, mesh)
        text = (
            f"prior in {_OUT.value}: held-out nll {card.training['held_out_nll']:.3f} "
            f"after {card.training['updates']} updates"
        )
        run_dir.write_summary(card.training, text + "\n")
    print(text)


if __name__ == "__main__":
    app.main(run, uses_run_dir=True)

"""Collects the scripted experts' rollouts into a dataset directory.

python -m experiments.collect --out=data/real --config.episodes=100000
python -m experiments.collect --env=metaworld --out=data/metaworld --config.episodes=2000
"""

from absl import flags

from jaxrl_guided.envs import make
from jaxrl_guided.lago.config import check_level
from jaxrl_guided.lago.families import FAMILIES
from jaxrl_guided.lago.offline import collect_data
from jaxrl_guided.lago.presets import FIRST_PRESETS, PRESETS
from jaxrl_guided.runtime import app, config, files
from jaxrl_guided.runtime.errors import UserError, validation

_ENV = flags.DEFINE_enum("env", "clevr", list(FAMILIES), "Environment family.")
_OUT = flags.DEFINE_string("out", None, "Dataset directory to write.", required=True)
_HORIZON = flags.DEFINE_integer(
    "horizon", None, "Longest episode, in steps; by default that of the family.", lower_bound=1
)
_CONFIG = config.define({name: preset.data for name, preset in PRESETS.items()})


def run() -> None:
    """Collects, saves and says how well the expert did."""
    _CONFIG.prefer(FIRST_PRESETS[_ENV.value])
    settings = _CONFIG.build()
    family = PRESETS[_CONFIG.preset].online.env
    if _ENV.present and family != _ENV.value:
        raise UserError(f"--preset={_CONFIG.preset} is of {family}, but --env={_ENV.value}")
    with validation():
        check_level(family, settings.level)
    files.check_new(_OUT.value, "out")
    horizon = _HORIZON.value or FAMILIES[family].horizon
    with validation():
        make(f"{family}/{settings.level}", horizon=horizon).close()
    episodes = collect_data(settings, horizon, _OUT.value, family)
    meta = episodes.metadata
    print(
        f"{meta['env']}: {episodes.num_episodes:,} episodes, {episodes.num_steps:,} steps, "
        f"success {100 * meta['success_rate']:.1f} %, mean length {meta['mean_length']:.1f}, "
        f"in {_OUT.value}"
    )


if __name__ == "__main__":
    app.main(run)

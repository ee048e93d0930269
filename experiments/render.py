"""Draws one episode of CLEVR-Robot or Meta-World: a GIF that moves and a PNG strip of its steps.

Both show where things are, Meta-World from above and from the right; they are no camera's pictures.

    python -m experiments.render --env=clevr/real --policy=expert --seed=3 --out=pictures
    python -m experiments.render --env=clevr/real --run=runs/lago --out=pictures
    python -m experiments.render --env=metaworld/door-open --out=pictures

With `--run` the first policy of a finished run of `train_online` acts, greedily.
"""

import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np
from absl import flags

from jaxrl_guided.envs import make, registry
from jaxrl_guided.envs.clevr import drawing
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago import judge, online
from jaxrl_guided.lago.config import OnlineConfig
from jaxrl_guided.runtime import app
from jaxrl_guided.runtime.errors import UserError, validation

_ENV = flags.DEFINE_string("env", "clevr/real", "Environment, clevr/LEVEL or metaworld/LEVEL.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the episode.", 0, 2**31 - 1)
_POLICY = flags.DEFINE_enum(
    "policy", "expert", ["expert", "random"], "Who acts where no --run is given."
)
_RUN = flags.DEFINE_string("run", None, "Run directory of `train_online` whose policy acts.")
_OUT = flags.DEFINE_string("out", ".", "Directory for episode.gif and episode.png.")

MILLISECONDS = {"clevr": 450, "metaworld": 80}
"""Of a picture."""


def run() -> None:
    """Plays the episode and writes both pictures."""
    with validation():
        registry.check(_ENV.value)
    family, _, level = _ENV.value.partition("/")
    if family not in MILLISECONDS:
        raise UserError(
            f"--env: only clevr/LEVEL and metaworld/LEVEL can be drawn, not '{_ENV.value}'"
        )
    if _RUN.value and _POLICY.present:
        raise UserError("give one of --policy and --run")
    draw = (_clevr if family == "clevr" else _metaworld)(level)
    out = pathlib.Path(_OUT.value)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out={out} cannot be made: {error.strerror}") from error
    if not os.access(out, os.W_OK):
        raise UserError(f"--out={out} cannot be written to")
    text, frames, drawn = draw()
    (first, *others), duration = drawn.moving(text, frames), MILLISECONDS[family]
    first.save(out / "episode.gif", save_all=True, append_images=others, duration=duration, loop=0)
    drawn.strip(text, frames).save(out / "episode.png")
    print(f"{text}\n{frames[-1].caption}\nwrote {out / 'episode.gif'} and {out / 'episode.png'}")


Draw = Callable[[], tuple[str, Sequence[Any], Any]]
"""Plays: the instruction, the frames, and the module that draws them."""


def _clevr(level: str) -> Draw:
    env, act = make(f"clevr/{level}"), drawing.scripted(level, _POLICY.value == "expert")
    if _RUN.value:
        settings, act = _trained("clevr", level)
        env = judge.level_env(settings, level, 1)
    texts = instruction_set(level).texts
    return lambda: (*drawing.play(env, texts, act, _SEED.value), drawing)


def _metaworld(level: str) -> Draw:
    from jaxrl_guided.envs.metaworld import drawing  # an extra

    scripted = drawing.scripted(level, _POLICY.value == "expert", _SEED.value)
    if not _RUN.value:
        return lambda: (*drawing.play(level, scripted, _SEED.value), drawing)
    settings, trained = _trained("metaworld", level)
    chosen = jax.jit(trained)

    def act(obs: dict[str, Any]) -> np.ndarray:
        batch = jax.tree.map(lambda x: np.asarray(x)[None], obs)
        return np.asarray(chosen(jax.random.key(0), batch))[0]

    return lambda: (*drawing.play(level, act, _SEED.value, settings.horizon), drawing)


def _trained(family: str, level: str) -> tuple[OnlineConfig, drawing.Act]:
    """A run of `train_online`, and its first policy, which acts greedily."""
    settings = online.load_settings(str(_RUN.value))
    if settings.env != family:
        raise UserError(f"--run={_RUN.value} is of {settings.env}, but --env of {family}")
    act = judge.make_act(settings, level)
    policy = jax.tree.map(lambda x: x[0], online.load_policy(settings, str(_RUN.value)))
    return settings, lambda key, obs: act(policy, {}, key, obs, greedy=True)[1]


if __name__ == "__main__":
    app.main(run)

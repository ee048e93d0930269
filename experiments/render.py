"""Draws one episode of CLEVR-Robot or Meta-World: a GIF that moves and a PNG strip of its steps.

    python -m experiments.render --env=clevr/real --policy=expert --seed=3 --out=pictures
    python -m experiments.render --env=clevr/real --run=runs/lago --out=pictures
    python -m experiments.render --env=metaworld/door-open --out=pictures

With `--run` the first policy of a finished run of `train_online` acts, greedily.
"""

import pathlib
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from absl import flags
from PIL import Image

from jaxrl_guided.envs import make, registry
from jaxrl_guided.envs.clevr import drawing
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.types import VectorEnv
from jaxrl_guided.lago import judge, online
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
    text, last, (first, *others), strip = draw()
    duration = MILLISECONDS[family]
    first.save(out / "episode.gif", save_all=True, append_images=others, duration=duration, loop=0)
    strip.save(out / "episode.png")
    print(f"{text}\n{last}\nwrote {out / 'episode.gif'} and {out / 'episode.png'}")


Pictures = tuple[str, str, list[Image.Image], Image.Image]
"""The instruction, the last caption, a picture of each step, and all of them in one."""


def _clevr(level: str) -> Callable[[], Pictures]:
    if _RUN.value:
        env, actor = _trained("clevr", level)
    else:
        env, actor = make(f"clevr/{level}"), drawing.scripted(level, _POLICY.value == "expert")

    def draw() -> Pictures:
        text, frames = drawing.play(env, instruction_set(level).texts, actor, _SEED.value)
        moving, strip = drawing.moving(text, frames), drawing.strip(text, frames)
        return text, frames[-1].caption, moving, strip

    return draw


def _metaworld(level: str) -> Callable[[], Pictures]:
    from jaxrl_guided.envs.metaworld import drawing  # an extra

    actor = drawing.scripted(level, _POLICY.value == "expert", _SEED.value)
    if _RUN.value:
        env, chosen = _trained("metaworld", level)
        env.close()  # its episodes are those of many environments
        chosen = jax.jit(chosen)

        def actor(obs: dict[str, Any]) -> np.ndarray:
            batch = jax.tree.map(lambda x: np.asarray(x)[None], obs)
            return np.asarray(chosen(jax.random.key(0), batch))[0]

    def draw() -> Pictures:
        text, frames = drawing.play(level, actor, _SEED.value)
        moving, strip = drawing.moving(text, frames), drawing.strip(text, frames)
        return text, frames[-1].caption, moving, strip

    return draw


def _trained(family: str, level: str) -> tuple[VectorEnv, drawing.Act]:
    """The first policy of a run of `train_online`, which acts greedily, and one environment."""
    settings = online.load_settings(str(_RUN.value))
    if settings.env != family:
        raise UserError(f"--run={_RUN.value} is of {settings.env}, but --env of {family}")
    env = judge.level_env(settings, level, 1)
    act = judge.make_act(settings, level, env)
    policy = jax.tree.map(lambda x: x[0], online.load_policy(settings, str(_RUN.value)))
    return env, lambda key, obs: act(policy, {}, key, obs, greedy=True)[1]


if __name__ == "__main__":
    app.main(run)

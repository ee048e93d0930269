"""Draws one episode of CLEVR-Robot: a GIF that moves and a PNG strip of its steps.

    python -m experiments.render --env=clevr/real --policy=expert --seed=3 --out=pictures
    python -m experiments.render --env=clevr/real --online=runs/lago --out=pictures

With `--online` the first policy of a finished run of `train_online` acts, greedily.
"""

import pathlib

import jax
from absl import flags

from jaxrl_guided.envs import make, registry
from jaxrl_guided.envs.clevr import drawing
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.types import VectorEnv
from jaxrl_guided.lago import judge, online
from jaxrl_guided.learners.ppo import act
from jaxrl_guided.runtime import app
from jaxrl_guided.runtime.errors import UserError, validation

_ENV = flags.DEFINE_string("env", "clevr/real", "Environment, clevr/LEVEL.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the episode.", 0, 2**31 - 1)
_POLICY = flags.DEFINE_enum(
    "policy", "expert", ["expert", "random"], "Who acts where no --online is given."
)
_ONLINE = flags.DEFINE_string("online", None, "Run directory of `train_online` whose policy acts.")
_OUT = flags.DEFINE_string("out", ".", "Directory for episode.gif and episode.png.")

MILLISECONDS = 450


def run() -> None:
    """Plays the episode and writes both pictures."""
    with validation():
        registry.check(_ENV.value)
    family, _, level = _ENV.value.partition("/")
    if family != "clevr":
        raise UserError(f"--env: only clevr/LEVEL can be drawn, not '{_ENV.value}'")
    if _ONLINE.value and _POLICY.present:
        raise UserError("give one of --policy and --online")
    env, actor = _actor(level)
    out = pathlib.Path(_OUT.value)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out={out} cannot be made: {error.strerror}") from error
    text, frames = drawing.play(env, instruction_set(level).texts, actor, _SEED.value)
    first, *others = drawing.moving(text, frames)
    first.save(
        out / "episode.gif", save_all=True, append_images=others, duration=MILLISECONDS, loop=0
    )
    drawing.strip(text, frames).save(out / "episode.png")
    print(f"{text}\n{frames[-1].caption}\nwrote {out / 'episode.gif'} and {out / 'episode.png'}")


def _actor(level: str) -> tuple[VectorEnv, drawing.Act]:
    """The environment, and who acts in it."""
    if _ONLINE.value is None:
        return make(f"clevr/{level}"), drawing.scripted(level, _POLICY.value == "expert")
    settings = online.load_settings(_ONLINE.value)
    env = judge.level_env(settings, level, 1)
    network = judge.make_network(settings, level, env)
    policy = jax.tree.map(lambda x: x[0], online.load_policy(settings, _ONLINE.value))
    return env, lambda key, obs: act(network, policy, {}, key, obs, greedy=True)[1]


if __name__ == "__main__":
    app.main(run)

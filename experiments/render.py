"""Draws one episode of CLEVR-Robot: a GIF that moves and a PNG strip of its steps.

`python -m experiments.render --env=clevr/real --policy=expert --seed=3 --out=pictures`
"""

import pathlib

from absl import flags

from jaxrl_guided.runtime import app
from jaxrl_guided.runtime.errors import UserError, validation

_ENV = flags.DEFINE_string("env", "clevr/real", "Environment, clevr/LEVEL.")
_SEED = flags.DEFINE_integer("seed", 0, "Seed of the episode.", 0, 2**31 - 1)
_POLICY = flags.DEFINE_enum("policy", "expert", ["expert", "random"], "Who acts.")
_OUT = flags.DEFINE_string("out", ".", "Directory for episode.gif and episode.png.")

MILLISECONDS = 450


def run() -> None:
    """Plays the episode and writes both pictures."""
    from jaxrl_guided.envs import make
    from jaxrl_guided.envs.clevr import drawing

    with validation():
        make(_ENV.value)
        if not _ENV.value.startswith("clevr/"):
            raise UserError(f"--env: only clevr/LEVEL can be drawn, not '{_ENV.value}'")
    out = pathlib.Path(_OUT.value)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--out={out} cannot be made: {error.strerror}") from error
    text, frames = drawing.play(_ENV.value, _POLICY.value, _SEED.value)
    first, *others = drawing.moving(text, frames)
    first.save(
        out / "episode.gif", save_all=True, append_images=others, duration=MILLISECONDS, loop=0
    )
    drawing.strip(text, frames).save(out / "episode.png")
    print(f"{text}\n{frames[-1].caption}\nwrote {out / 'episode.gif'} and {out / 'episode.png'}")


if __name__ == "__main__":
    app.main(run)

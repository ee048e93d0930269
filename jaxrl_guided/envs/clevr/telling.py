"""Episodes of CLEVR-Robot in text."""

import numpy as np

from jaxrl_guided.envs.clevr.grammar import COLOURS
from jaxrl_guided.envs.clevr.instructions import InstructionSet
from jaxrl_guided.envs.clevr.table import DIRECTIONS, NUM_BALLS
from jaxrl_guided.envs.text.telling import Teller
from jaxrl_guided.envs.types import PyTree

_CENTIMETRES = 100


def make_teller(instructions: InstructionSet) -> Teller:
    """Tells where the balls are, in whole centimetres (right, rear), and which one is pushed."""
    return Teller(
        lambda obs: instructions.texts[int(obs["instruction"])],
        _tell_state,
        _tell_action,
    )


def _tell_state(obs: PyTree) -> str:
    centres = np.asarray(obs["state"])[: 2 * NUM_BALLS].reshape(NUM_BALLS, 2)
    places = np.rint(centres * _CENTIMETRES).astype(int)
    return ", ".join(f"{colour} {x} {y}" for colour, (x, y) in zip(COLOURS, places, strict=True))


def _tell_action(action: int) -> str:
    ball, push = divmod(int(action), len(DIRECTIONS))
    x, y = DIRECTIONS[push]
    words = [word for word in (_word(y, "front", "rear"), _word(x, "left", "right")) if word]
    return f"push {COLOURS[ball]} to the {' '.join(words)}"


def _word(force: float, negative: str, positive: str) -> str:
    return positive if force > 0 else negative if force < 0 else ""

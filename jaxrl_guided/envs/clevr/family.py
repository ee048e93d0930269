"""`clevr/LEVEL`: CLEVR-Robot with the instructions of a level."""

from collections.abc import Sequence
from typing import Any

from jaxrl_guided.envs.clevr.env import make_clevr
from jaxrl_guided.envs.clevr.instructions import LEVELS, instruction_set
from jaxrl_guided.envs.types import VectorEnv


def list_names() -> Sequence[str]:
    """The levels."""
    return LEVELS


def make_level(
    level: str,
    num_envs: int,
    *,
    confounded: bool = False,
    allow_conflicts: bool = False,
    **options: Any,
) -> VectorEnv:
    """`num_envs` tables; options are those of `make_clevr` and `instruction_set`."""
    instructions = instruction_set(level, confounded=confounded, allow_conflicts=allow_conflicts)
    return make_clevr(instructions, num_envs, **options)

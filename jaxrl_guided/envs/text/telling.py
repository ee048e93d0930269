"""Steps of an environment told in text, for those who read episodes that others have played."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxrl_guided.envs.types import PyTree


@dataclasses.dataclass(frozen=True)
class Teller:
    """Functions of numpy arrays of one environment.

    Attributes:
      description: `obs -> str`, what an episode asks for, from its first observation.
      observation: `obs -> str`.
      action: `action -> str`.
    """

    description: Callable[[PyTree], str]
    observation: Callable[[PyTree], str]
    action: Callable[[Any], str]


def messages_of(
    teller: Teller, observations: list[PyTree], actions: np.ndarray
) -> list[tuple[str, str]]:
    """An episode as a conversation: what was seen (`user`), and what was done (`assistant`).

    Args:
      observations: T that were acted on.
      actions: `[T, …]`.
    """
    told = []
    for obs, action in zip(observations, actions, strict=True):
        told += [("user", teller.observation(obs)), ("assistant", teller.action(action))]
    told[0] = ("user", f"{teller.description(observations[0])}\n{told[0][1]}")
    return told

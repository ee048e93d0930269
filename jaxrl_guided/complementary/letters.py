"""What the actor's and the extractor's programs write each other: text, token ids, outcomes."""

import dataclasses
from collections.abc import Sequence

from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.rollouts import Episode, Start


@dataclasses.dataclass(frozen=True)
class Begin:
    """To the extractor: it shall be as it was at the actor's checkpoint of `step`; 0: at first.

    `pair` is the run's (`pairs`).
    """

    pair: str
    step: int


@dataclasses.dataclass(frozen=True)
class Begun:
    """From the extractor: it is."""


@dataclasses.dataclass(frozen=True)
class Asked:
    """To the extractor: requests, `Start.seed` their numbers, and their texts."""

    starts: Sequence[Start]
    texts: Sequence[str]


@dataclasses.dataclass(frozen=True)
class Answered:
    """From the extractor: requests as episodes of one turn."""

    episodes: Sequence[Episode]


@dataclasses.dataclass(frozen=True)
class Lessons:
    """To the extractor: samples of an update."""

    samples: Sequence[Sample]


@dataclasses.dataclass(frozen=True)
class Save:
    """To the extractor: a checkpoint of this step is due, and nothing more was asked before it."""

    step: int


@dataclasses.dataclass(frozen=True)
class Saved:
    """From the extractor: it is saved."""

    step: int


@dataclasses.dataclass(frozen=True)
class End:
    """To the extractor: the run is finished."""


@dataclasses.dataclass(frozen=True)
class Ended:
    """From the extractor: its model is written, and it needs the line no more."""


@dataclasses.dataclass(frozen=True)
class Failed:
    """From the extractor: it ends before the run does, and why."""

    reason: str

"""What the actor's and the extractor's programs write each other: text, token ids, outcomes."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from jaxrl_guided.learners.language.batches import Sample
from jaxrl_guided.learners.language.rollouts import Episode, Start


class Begin(NamedTuple):
    """To the extractor: it shall be as it was at the actor's checkpoint of a step; 0: at first."""

    step: int


class Begun(NamedTuple):
    """From the extractor: it is."""


class Asked(NamedTuple):
    """To the extractor: requests, `Start.seed` their numbers, and their texts."""

    starts: Sequence[Start]
    texts: Sequence[str]


class Answered(NamedTuple):
    """From the extractor: requests as episodes of one turn."""

    episodes: Sequence[Episode]


class Lessons(NamedTuple):
    """To the extractor: samples of an update."""

    samples: Sequence[Sample]


class Learned(NamedTuple):
    """From the extractor: metrics of an update."""

    metrics: Mapping[str, float]


class Save(NamedTuple):
    """To the extractor: a checkpoint of this step is due, and it was asked nothing more."""

    step: int


class Saved(NamedTuple):
    """From the extractor: it is saved."""

    step: int


class End(NamedTuple):
    """To the extractor: the run is finished."""


class Ended(NamedTuple):
    """From the extractor: it has read that."""


class Failed(NamedTuple):
    """From the extractor: it ends, and why."""

    reason: str

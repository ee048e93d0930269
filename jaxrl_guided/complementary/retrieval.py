"""Which of the entries that are near a question are shown: diversified retrieval.

The same pure function serves the host (numpy) and the device (jax.numpy).
"""

import dataclasses
from typing import Any, Literal

import numpy as np

from jaxrl_guided.runtime.ranges import COUNT, NOT_NEGATIVE, check, check_choice

Recency = Literal["seconds", "steps"]


@dataclasses.dataclass(frozen=True)
class RetrievalConfig:
    """Diversification (arXiv 2603.17621; numbers of the released configuration).

    Attributes:
      top: entries that an episode is shown.
      oversampling: so many times `top` are looked at; 1 and weights of 0 give plain search.
      usage_weight: of log(1 + retrievals).
      recent_weight: of having been shown a short while ago.
      recency: what a short while is measured in, `seconds` or actor `steps`.
      recent: length of a short while.
    """

    top: int = 1
    oversampling: int = 16
    usage_weight: float = 0.4
    recent_weight: float = 1.0
    recency: Recency = "seconds"
    recent: float = 300.0

    def __post_init__(self) -> None:
        check(self, COUNT, "top", "oversampling", part="retrieval.")
        check(self, NOT_NEGATIVE, "usage_weight", "recent_weight", "recent", part="retrieval.")
        check_choice(self, "recency", ("seconds", "steps"), part="retrieval.")

    @property
    def candidates(self) -> int:
        """Entries that are looked at."""
        return self.top * self.oversampling


def diversified(
    config: RetrievalConfig, retrievals: Any, ages: Any, there: Any, numpy: Any = np
) -> Any:
    """Places of the `top` entries to show, out of candidates in order of nearness.

    score = −rank − usage_weight · log(1 + retrievals) − recent_weight · [age < recent]

    Args:
      retrievals: `i32[..., C]`, times that each was shown.
      ages: `f[..., C]`, how long ago it was shown last; inf for never.
      there: `bool[..., C]`, False where there are fewer candidates; at the end.
      numpy: the module that computes, `numpy` or `jax.numpy`.

    Returns:
      `i[..., top]`; C stands for none.
    """
    count = retrievals.shape[-1]
    ranks = numpy.arange(count)
    recent = (ages < config.recent).astype(np.float32)
    score = -ranks - config.usage_weight * numpy.log1p(retrievals) - config.recent_weight * recent
    score = numpy.where(there, score, -np.inf)
    best = numpy.argsort(-score, axis=-1, stable=True)[..., : config.top]
    return numpy.where(numpy.take_along_axis(there, best, axis=-1), best, count)

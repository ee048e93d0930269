"""Our search as a contender of `benchmarks.bank`; tasks are those of `peers/bank_search.py`."""

from typing import Any

import numpy as np

from benchmarks.peers import protocol
from benchmarks.peers.bank_search import Searching, vectors_of
from jaxrl_guided.complementary.bank.index import View, search


class Ours(Searching):
    """The bank's index."""

    def prepare(self) -> float | None:
        entries = self.task["entries"]
        self.view = View(
            1,
            np.arange(entries),
            vectors_of(entries, self.task["dim"]),
            np.ones(entries, bool),
            np.zeros(entries, np.int32),
            np.zeros(entries, np.int32),
            np.full(entries, -np.inf),
            np.full(entries, -1, np.int32),
        )
        return None

    def search(self, questions: np.ndarray) -> Any:
        return search(self.view, questions, self.task["k"])


if __name__ == "__main__":
    protocol.serve(Ours)

"""Searches by faiss and by a numpy loop as contenders of `benchmarks.bank`.

A task has `entries`, `dim`, `batch`, `k`, `batches` and `form`, `faiss` or `numpy`.
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from benchmarks.peers import protocol


def vectors_of(entries: int, dim: int, seed: int = 0) -> np.ndarray:
    """Random unit vectors `f32[entries, dim]`."""
    vectors = np.random.default_rng(seed).standard_normal((entries, dim), np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


class Searching(protocol.Contender):
    """Answers batches of questions; subclasses prepare and search."""

    def run(self, seed: int) -> tuple[int, float]:
        task = self.task
        shape = task["batches"] * task["batch"], task["dim"]
        questions = vectors_of(*shape, seed=seed + 1).reshape(-1, task["batch"], task["dim"])
        start = time.perf_counter()
        for batch in questions:
            self.search(batch)
        return task["batches"] * task["batch"], time.perf_counter() - start

    def search(self, questions: np.ndarray) -> Any:
        """The `k` nearest of each question `f32[batch, dim]`."""
        raise NotImplementedError


class Faiss(Searching):
    """A flat index of inner products."""

    def prepare(self) -> float | None:
        import faiss

        faiss.omp_set_num_threads(1)
        self.index = faiss.IndexFlatIP(self.task["dim"])
        self.index.add(vectors_of(self.task["entries"], self.task["dim"]))
        return None

    def search(self, questions: np.ndarray) -> Any:
        return self.index.search(questions, self.task["k"])

    def note(self) -> str:
        return protocol.versions("faiss-cpu")


class Loop(Searching):
    """One question after the other: all products, then a partial sort."""

    def prepare(self) -> float | None:
        self.vectors = vectors_of(self.task["entries"], self.task["dim"])
        return None

    def search(self, questions: np.ndarray) -> Any:
        found = []
        for question in questions:
            products = self.vectors @ question
            best = np.argpartition(-products, self.task["k"])[: self.task["k"]]
            found.append(best[np.argsort(-products[best])])
        return found

    def note(self) -> str:
        return protocol.versions("numpy")


if __name__ == "__main__":
    protocol.serve(lambda task: {"faiss": Faiss, "numpy": Loop}[task["form"]](task))

"""Single requests of many threads, answered in batches."""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Generic, TypeVar

import numpy as np

from jaxrl_guided.backbones.embedders import Embedder

A = TypeVar("A")
B = TypeVar("B")


def wait_for_more(count: int, oldest: float, now: float, most: int, seconds: float) -> float:
    """Seconds until a batch is taken: 0 if it is full, or its oldest request is that old."""
    if count >= most:
        return 0.0
    return max(0.0, oldest + seconds - now)


class Batcher(Generic[A, B]):
    """Answers single requests by a function of many; flushes at `most` or after `seconds`.

    Args:
      work: answers to requests, in their order; its error is that of all requests of the batch.
      most: requests of a batch.
      seconds: that the first of a batch waits at most for others.
      workers: batches at a time.
      clock: seconds, for tests.
    """

    def __init__(
        self,
        work: Callable[[Sequence[A]], Sequence[B]],
        most: int = 16,
        seconds: float = 0.001,
        workers: int = 4,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if most < 1 or workers < 1 or not seconds >= 0:
            raise ValueError(
                "most and workers must be at least 1 and seconds not negative, got "
                f"{most}, {workers}, {seconds}"
            )
        self._work, self._most, self._seconds, self._clock = work, most, seconds, clock
        self._waiting: deque[tuple[float, A, Future[B]]] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, name="batcher", daemon=True)
            for _ in range(workers)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, request: A) -> "Future[B]":
        """The answer to come.

        Raises:
          RuntimeError: it is closed.
        """
        future: Future[B] = Future()
        with self._changed:
            if self._closed:
                raise RuntimeError("the batcher is closed")
            self._waiting.append((self._clock(), request, future))
            self._changed.notify()
        return future

    def __call__(self, request: A) -> B:
        """Asks, and waits for the answer."""
        return self.submit(request).result()

    def close(self) -> None:
        """Answers what waits, and ends the threads. Again: does nothing."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while batch := self._take():
            requests = [request for _, request, _ in batch]
            try:
                answers: Sequence[B] = self._work(requests)
                if len(answers) != len(requests):
                    raise RuntimeError(f"{len(answers)} answers to {len(requests)} requests")
            except BaseException as error:
                for _, _, future in batch:
                    future.set_exception(error)
                continue
            for (_, _, future), answer in zip(batch, answers, strict=True):
                future.set_result(answer)

    def _take(self) -> list[tuple[float, A, "Future[B]"]]:
        """The next batch; none when all is done."""
        with self._changed:
            while True:
                if not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                    continue
                oldest = self._waiting[0][0]
                left = wait_for_more(
                    len(self._waiting), oldest, self._clock(), self._most, self._seconds
                )
                if left <= 0 or self._closed:
                    count = min(self._most, len(self._waiting))
                    return [self._waiting.popleft() for _ in range(count)]
                self._changed.wait(left)


class CachedEmbedder:
    """Remembers the vectors of texts that were asked for lately. Any thread may ask.

    Args:
      embed: makes them.
      size: texts that are remembered.
    """

    def __init__(self, embed: Embedder, size: int = 4096) -> None:
        self.name, self.dim = embed.name, embed.dim
        self._embed, self._size = embed, size
        self._kept: OrderedDict[str, np.ndarray] = OrderedDict()
        self._lock = threading.Lock()
        self.hits = self.misses = 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        with self._lock:
            known = {text: self._kept[text] for text in texts if text in self._kept}
            for text in known:
                self._kept.move_to_end(text)
            self.hits += sum(text in known for text in texts)
            self.misses += sum(text not in known for text in texts)
        new = [text for text in dict.fromkeys(texts) if text not in known]
        if new:
            made = dict(zip(new, self._embed(new), strict=True))
            with self._lock:
                self._kept.update(made)
                while len(self._kept) > self._size:
                    self._kept.popitem(last=False)
            known |= made
        return np.array([known[text] for text in texts], np.float32).reshape(-1, self.dim)

"""The experience bank: exact search beside faiss and a numpy loop, and what threads see of it.

`python -m benchmarks.bank`: questions per second on one core; the time from a question to its
answer for 64 threads while another one writes, on all cores; durable writes per second.
"""

import dataclasses
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import common, contenders
from benchmarks.peers.bank_search import vectors_of
from jaxrl_guided.backbones.embedders import make_embedder
from jaxrl_guided.complementary.bank import Bank, Draft, Write
from jaxrl_guided.complementary.bank.database import Durability
from jaxrl_guided.complementary.bank.index import search
from jaxrl_guided.complementary.batching import Batcher, CachedEmbedder
from jaxrl_guided.runtime import versions

NAME = "bank"
DIM, K = 384, 16
FAISS, LOOP = "faiss flat", "numpy loop"
OF_FAISS, MOST_MS = 1.0, 10.0
CLIENTS = 64


@dataclasses.dataclass(frozen=True)
class Case:
    """A search.

    Attributes:
      entries: in the bank.
      batch: questions at a time.
      batches: in a measured run.
    """

    entries: int
    batch: int
    batches: int

    @property
    def name(self) -> str:
        """What `--only` is matched with."""
        return f"search, {self.entries:,} entries, batch {self.batch}"

    def task(self, form: str) -> dict[str, Any]:
        """Of a contender."""
        return {"work": "search", "form": form, "dim": DIM, "k": K, **dataclasses.asdict(self)}


CASES = tuple(
    Case(entries, batch, max(1, 2_000_000 // entries // batch))
    for entries in (1_000, 20_000, 1_000_000)
    for batch in (1, 16)
)
LATENCY, WRITES = "search by 64 threads, 20,000 entries, one writer", "durable writes"


def measure_search(case: Case, command: Sequence[str]) -> common.Row:
    """Runs a case."""
    print(f"{case.name} …", flush=True)
    given: dict[str, Any] = {"ours": (contenders.ours("ours_bank"), case.task("ours"))}
    if command:
        given[FAISS] = ([*command], case.task("faiss"))
        given[LOOP] = ([*command], case.task("numpy"))
    goals = {FAISS: OF_FAISS} if case.batch == 16 else {}
    found, _ = contenders.measure(given, 5)
    return contenders.speed_row(case.name, "questions per second on one core", found, goals)


def filled(path: Path, entries: int, durability: Durability = "full") -> Bank:
    """A bank of random entries, at its capacity."""
    bank = Bank(path, DIM, capacity=entries, durability=durability)
    vectors = vectors_of(entries, DIM)
    bank.write(Write(tuple(Draft(f"title {i}", "", v) for i, v in enumerate(vectors))))
    return bank


def under_load(
    bank: Bank, ask: Callable[[int], Any], seconds: float
) -> tuple[np.ndarray, float, float]:
    """Closed loops of `CLIENTS` threads beside a writer.

    Returns:
      Seconds from each question to its answer; questions and writes per second.
    """
    stop, times, writes = threading.Event(), list[list[float]](), [0]
    vectors = vectors_of(1024, DIM, seed=9)

    def write() -> None:
        while not stop.is_set():
            vector = vectors[writes[0] % len(vectors)]
            bank.write(Write((Draft("new", "", vector),)))
            writes[0] += 1

    def client(number: int) -> None:
        mine: list[float] = []
        times.append(mine)
        while not stop.is_set():
            start = time.perf_counter()
            ask(number + CLIENTS * len(mine))
            mine.append(time.perf_counter() - start)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(CLIENTS)]
    threads.append(threading.Thread(target=write))
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - start
    found = np.concatenate([each[len(each) // 10 :] for each in times])  # without the start
    return found, sum(map(len, times)) / took, writes[0] / took


def measure_latency(entries: int, seconds: float) -> list[common.Row]:
    """From a vector, and from a text, to the nearest entries."""
    print(f"{LATENCY} …", flush=True)
    rows = []
    embed = CachedEmbedder(make_embedder(f"hashed-{DIM}"))
    questions = vectors_of(4096, DIM, seed=1)
    with tempfile.TemporaryDirectory() as folder, filled(Path(folder) / "bank", entries) as bank:

        def find(vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
            return list(search(bank.view, np.array(vectors), K).rows)

        searching = Batcher(find)
        embedding: Batcher[str, np.ndarray] = Batcher(lambda texts: list(embed(texts)))
        asks: dict[str, Callable[[int], Any]] = {
            "from a vector": lambda i: searching(questions[i % len(questions)]),
            "from a text": lambda i: searching(embedding(f"room {i} with {i % 7} doors")),
        }
        for name, ask in asks.items():
            times, rate, writes = under_load(bank, ask, seconds)
            half, most = (1e3 * float(np.quantile(times, q)) for q in (0.5, 0.99))
            judged = name == "from a vector"
            rows.append(
                common.Row(
                    LATENCY,
                    f"{name} to its entries, 99th percentile",
                    "ms",
                    most,
                    {},
                    f"≤ {MOST_MS:g} ms" if judged else "",
                    most <= MOST_MS if judged else None,
                    f"median {half:.2f} ms; {rate:,.0f} questions and {writes:,.0f} durable writes "
                    f"per second on {len(versions.cores())} cores; batches of up to 16, 1 ms",
                )
            )
        searching.close()
        embedding.close()
    return rows


def measure_writes(count: int) -> list[common.Row]:
    """One entry after the other, each on the disk before the next."""
    print(f"{WRITES} …", flush=True)
    vectors, rows = vectors_of(count, DIM), []
    for durability in ("full", "normal"):
        with (
            tempfile.TemporaryDirectory() as folder,
            Bank(Path(folder) / "bank", DIM, durability=durability) as bank,
        ):
            start = time.perf_counter()
            for vector in vectors:
                bank.write(Write((Draft("title", "content", vector),)))
            took = time.perf_counter() - start
        rows.append(
            common.Row(
                WRITES,
                f"entries per second, durability {durability}",
                "1/s",
                count / took,
            )
        )
    return rows


def run() -> None:
    """Measures, prints and writes."""
    quick = common.QUICK.value
    common.check_only([*(case.name for case in CASES), LATENCY, WRITES])
    rows = []
    if common.fits(LATENCY):  # before this process is bound to one core
        rows += measure_latency(1_000 if quick else 20_000, 1.0 if quick else 20.0)
    if common.fits(WRITES):
        rows += measure_writes(100 if quick else 2_000)
    cases = [case for case in CASES if common.fits(case.name)]
    command: list[str] = []
    if quick:
        cases = [dataclasses.replace(case, batches=10) for case in cases if case.entries == 1_000]
    elif cases:
        command, _ = contenders.peer("faiss", "bank_search.py")
    common.pin_to_core()
    rows += [measure_search(case, command) for case in cases]
    common.write_results(NAME, rows, common.results_path(NAME))


if __name__ == "__main__":
    common.main(run)

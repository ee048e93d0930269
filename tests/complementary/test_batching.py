"""Batches of single requests: how many, when, and what errors do."""

import threading
import time

import numpy as np
import pytest

from jaxrl_guided.backbones.embedders import HashedEmbedder
from jaxrl_guided.complementary.batching import Batcher, CachedEmbedder, wait_for_more


def test_a_batch_is_taken_when_full_or_old():
    assert wait_for_more(16, 0.0, 0.0, 16, 0.001) == 0
    assert wait_for_more(15, 10.0, 10.0, 16, 0.001) == pytest.approx(0.001)
    assert wait_for_more(15, 10.0, 10.0004, 16, 0.001) == pytest.approx(0.0006)
    assert wait_for_more(1, 10.0, 10.002, 16, 0.001) == 0


@pytest.fixture
def served():
    batches = []

    def double(requests):
        batches.append(list(requests))
        time.sleep(0.002)
        return [2 * request for request in requests]

    batcher = Batcher(double, most=4, seconds=0.005, workers=2)
    yield batcher, batches
    batcher.close()


def test_every_request_has_its_own_answer(served):
    batcher, batches = served
    found = {}

    def ask(number):
        for i in range(20):
            found[number, i] = batcher(1000 * number + i)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {(n, i): 2 * (1000 * n + i) for n in range(16) for i in range(20)}
    assert max(map(len, batches)) == 4
    assert sorted(x for batch in batches for x in batch) == sorted(x // 2 for x in found.values())


def test_full_batches_wait_for_nobody():
    batcher = Batcher(lambda requests: requests, most=3, seconds=1000.0, workers=1)
    futures = [batcher.submit(i) for i in range(7)]
    assert [future.result(timeout=60) for future in futures[:6]] == list(range(6))
    assert not futures[6].done()
    batcher.close()  # answers what waits
    assert futures[6].result() == 6


def test_an_error_is_that_of_its_batch_alone():
    def work(requests):
        if 13 in requests:
            raise ValueError("unlucky")
        return [None] * (2 if 7 in requests else len(requests))

    batcher = Batcher(work, most=1)
    with pytest.raises(ValueError, match="unlucky"):
        batcher(13)
    with pytest.raises(RuntimeError, match="2 answers to 1 requests"):
        batcher(7)
    assert batcher(1) is None
    batcher.close()
    batcher.close()
    with pytest.raises(RuntimeError, match="closed"):
        batcher.submit(1)
    for options in ({"most": 0}, {"workers": 0}, {"seconds": -1}):
        with pytest.raises(ValueError, match="must be at least 1"):
            Batcher(work, **options)


def test_known_texts_are_not_embedded_again():
    asked = []

    class Counted(HashedEmbedder):
        def __call__(self, texts):
            asked.extend(texts)
            return super().__call__(texts)

    embed, plain = CachedEmbedder(Counted(16), size=3), HashedEmbedder(16)
    for texts in (["a", "b", "a"], ["b", "c"], [], ["d"], ["a"], ["b", "d"]):
        np.testing.assert_array_equal(embed(texts), plain(texts).reshape(-1, 16))
    # d pushed a out, and a then b: those that were asked for longest ago.
    assert asked == ["a", "b", "c", "d", "a", "b"]
    assert (embed.hits, embed.misses) == (2, 7)
    assert (embed.name, embed.dim) == ("hashed-16", 16)

"""What the benchmark of the dual loop makes of its seconds, and the extractor that only waits."""

import numpy as np

from benchmarks import dual_loop
from benchmarks.ours_dual_loop import Stub
from jaxrl_guided.complementary.operations import parse
from jaxrl_guided.learners.language.rollouts import Start


def test_ratios_are_of_pairs_and_judged_if_all_agree(monkeypatch):
    seconds = {
        "stub": [[1.0, 1.0, 11.0], [2.0, 2.02, 22.0], [1.0, 1.01, 12.0]],
        "device-1": [[1.0, 1.0], [1.0, 1.1], [1.0, 1.01]],
        "device-0": [[1.0, 2.0]] * 3,
    }
    monkeypatch.setattr(dual_loop, "_seconds", lambda case, repeats: seconds[case])
    beside, waiting, other, same = dual_loop.rows(3)
    np.testing.assert_allclose([beside.ours, waiting.ours], [1.01, 11])
    assert [beside.met, waiting.met] == [True, True]
    assert (other.ours, other.met) == (1.01, None)  # one repeat is above the goal
    assert (same.ours, same.goal, same.met) == (2, "", None)


def test_the_stub_answers_when_its_time_has_come():
    stub = Stub()
    stub.seconds = 1000.0
    stub.add([Start(0, 0)])
    assert stub.finish() == []
    assert stub.busy
    stub.seconds = 0.0
    stub.add([Start(1, 0)])
    (episode,) = stub.finish()
    assert episode.start == Start(1, 0)
    assert parse(episode.messages[-1][1], 0) == []

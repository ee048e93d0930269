"""The benchmark of guided PPO on a tiny case."""

import jax
import pytest

from benchmarks import guided
from benchmarks.guided import Arm, Case
from jaxrl_guided.lago.artifact import freeze

CASE = Case(4, 64, (), iterations=2, repeats=2)


@pytest.fixture(scope="module", autouse=True)
def quick_compilation():
    """Toy programs compile for seconds and run for milliseconds."""
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", False)


def test_the_state_goes_on_from_call_to_call(monkeypatch):
    """All texts alike: the real ones take long to encode."""
    monkeypatch.setattr(
        guided, "freeze", lambda *parts: freeze(*parts[:3], ("Push.",) * len(parts[3]))
    )
    arm = Arm(CASE, "none")
    assert arm() == 2
    assert arm() == 4
    assert 0 <= arm.summary["success"] <= 1
    assert arm.compile_seconds > 0


def test_guided_rows_stand_beside_ppo_alone(monkeypatch):
    """PPO alone does 512 steps in 2 seconds, guided in 5 with noise."""
    timings = {
        "PPO": guided.common.Timing(2.0, 2.0, 2.0),
        "guided by an untrained nano prior, history none": guided.common.Timing(5.0, 4.0, 6.0),
        "guided by an untrained nano prior, history episode": guided.common.Timing(3.0, 3.0, 3.0),
    }
    monkeypatch.setattr(guided, "Arm", StandIn)
    monkeypatch.setattr(guided.common, "measure_interleaved", lambda arms, repeats: timings)
    case = Case(4, 64, ("none", "episode"), iterations=2, repeats=2)
    alone, noisy, good = guided.measure(case)
    assert (alone.ours, alone.met, dict(alone.peers)) == (256, None, {})
    assert noisy.met is None
    assert "void" in noisy.note
    assert good.peers == {"PPO alone": 256}
    assert good.met
    assert good.note == "training success 0.25; compiled in 1.5 s"


class StandIn:
    """An arm that was run."""

    def __init__(self, case, history):
        self.compile_seconds = 1.5
        self.summary = {"success": 0.25}

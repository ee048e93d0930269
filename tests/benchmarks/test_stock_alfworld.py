"""The benchmark of ALFWorld: both engines are timed, and a difference is found."""

import pytest

from benchmarks import stock_alfworld
from tests.envs.alfworld.household import need

need("alfworld", "textworld", "fast_downward")


@pytest.fixture(autouse=True)
def small(monkeypatch):
    from tests.envs.alfworld.test_same_texts import small_game

    monkeypatch.setattr(
        stock_alfworld, "make_game", lambda seed: small_game(seed, "look_at_obj_in_light")
    )


def test_rates_and_resets_of_both():
    speed, reset = stock_alfworld.compare(1, 6)
    assert speed.ours > 0
    assert speed.peers["PddlEnv"] > 0
    assert reset.unit == "s"


def test_a_difference_is_an_error(monkeypatch):
    class Other(stock_alfworld.Stock):
        @property
        def text(self):
            return super().text.replace("drawer", "box").replace("shelf", "box").lower()

    monkeypatch.setattr(stock_alfworld, "Stock", Other)
    with pytest.raises(RuntimeError, match="the texts of game 0 are not those of PddlEnv"):
        stock_alfworld.compare(1, 2)

"""A spare environment: the next episode is begun ahead, and no number changes."""

from typing import ClassVar

import numpy as np
import pytest

from jaxrl_guided.envs.bridge.slot import Slot, interface_of
from tests.envs.bridge import hosts


class Watched(hosts.Counter):
    """Writes down the seeds of its resets; fails as often as it is told to."""

    log: ClassVar[list] = []
    failures = 0

    def reset(self, *, seed=None, options=None):
        self.log.append(seed)
        if type(self).failures:
            type(self).failures -= 1
            raise KeyError("lost the key")
        return super().reset(seed=seed)


@pytest.fixture
def make(monkeypatch):
    """Makes slots, with arrays of their own."""
    monkeypatch.setattr(Watched, "log", [])
    monkeypatch.setattr(Watched, "failures", 0)

    def build(spare):
        interface = interface_of(Watched(), ("success",), 50)
        arrays = {f.name: np.zeros((1, *f.shape), f.dtype) for f in interface.fields()}
        arrays["seed"][:] = 7
        slot = Slot(Watched, 0, interface, arrays, restarts=False, spare=spare)
        return slot, arrays

    return build


def play(slot, arrays, steps=13, prepare=True):
    """All arrays after the reset and each step."""
    slot.reset()
    seen = [{name: array.copy() for name, array in arrays.items()}]
    for number in range(steps):
        if prepare and number % 2:
            slot.prepare()
        arrays["action"][:] = number % 4
        slot.step()
        seen.append({name: array.copy() for name, array in arrays.items()})
    return seen


def test_numbers_are_those_without(make):
    for one, other in zip(play(*make(True)), play(*make(False)), strict=True):
        for name in one:
            np.testing.assert_array_equal(one[name], other[name], err_msg=name)


def test_an_episode_is_begun_once_and_before_it_is_needed(make):
    slot, arrays = make(True)
    assert not slot.prepare()  # no episode is known yet
    slot.reset()
    assert slot.prepare()
    assert not slot.prepare()
    begun = len(Watched.log)
    for _ in range(5):  # to the end of the episode
        slot.step()
    assert arrays["terminated"][0]
    assert arrays["episode"][0] == 1
    assert len(Watched.log) == begun == 2
    assert slot.prepare()
    assert len(set(Watched.log)) == 3


def test_what_was_begun_for_another_seed_is_not_used(make):
    slot, arrays = make(True)
    slot.reset()
    slot.prepare()
    arrays["seed"][:] = 8
    slot.reset()
    again, others = make(False)
    others["seed"][:] = 8
    again.reset()
    np.testing.assert_array_equal(arrays["obs:draw"], others["obs:draw"])
    for _ in range(5):
        slot.step()
        again.step()
    np.testing.assert_array_equal(arrays["obs:draw"], others["obs:draw"])


def test_a_spare_that_fails_is_silent_and_the_episode_begins_in_its_turn(make):
    slot, arrays = make(True)
    slot.reset()
    Watched.failures = 1
    assert slot.prepare()
    assert not slot.prepare()
    for _ in range(5):
        slot.step()
    assert arrays["episode"][0] == 1
    assert Watched.log[-1] == Watched.log[-2]

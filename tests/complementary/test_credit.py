"""Credit of generations: who gets it, when it is learned from, and what a checkpoint keeps."""

import dataclasses

import numpy as np
import pytest

from jaxrl_guided.complementary.credit import CreditBuffer, CreditConfig, Generation, Outcome

CONFIG = CreditConfig(batch=3, capacity=5)


def generation(number):
    size = 2 + number % 3
    return Generation(
        np.full(size, number, np.int32),
        np.arange(size) > 0,
        np.full(size, -0.5 * number, np.float32),
        1.0,
    )


def filled(count, config=CONFIG):
    buffer = CreditBuffer(config)
    assert [buffer.add(generation(number)) for number in range(count)] == list(range(count))
    return buffer


def credited(buffer, number, success, **which):
    buffer.credit(Outcome(0, success, (), **which), [number])


def taken(samples):
    return {int(sample.tokens[0]): sample.advantage for sample in samples}


def test_a_generation_has_the_mean_outcome_of_all_its_episodes():
    buffer = filled(4)
    for number, outcomes in ((0, [1, 1, 0]), (2, [0]), (3, [1])):
        for outcome in outcomes:
            credited(buffer, number, bool(outcome))
    assert buffer.waiting(step=0) == 3
    samples = buffer.take(step=0)
    rewards = np.array([1 / 3, -1, 1])  # generation 1 was never used
    expected = rewards - rewards.mean()
    assert taken(samples) == pytest.approx(dict(zip([0, 2, 3], expected, strict=True)), rel=1e-6)
    for sample in samples:
        number = int(sample.tokens[0])
        np.testing.assert_array_equal(sample.log_probs, generation(number).log_probs)


def test_an_update_waits_for_new_outcomes():
    buffer = filled(5)
    assert buffer.take(step=0) == []
    for number in range(5):
        credited(buffer, number, number < 2)
    assert list(taken(buffer.take(step=1))) == [0, 1, 2]  # the oldest first
    assert (buffer.waiting(step=9), buffer.take(step=9)) == (2, [])
    credited(buffer, 0, True)
    assert list(taken(buffer.take(step=9))) == [0, 3, 4]


def test_relative_reward_is_what_guided_episodes_are_ahead_of_free_ones():
    buffer = filled(4, dataclasses.replace(CONFIG, reward="relative"))
    for group, free in ((0, (True, False, False, False)), (1, (True, True))):
        for success in free:
            buffer.credit(Outcome(0, success, (), guided=False, group=group), [])
    for group, number, success in ((0, 0, True), (0, 0, False), (0, 2, True), (1, 3, True)):
        credited(buffer, number, success, group=group)
    credited(buffer, 1, True, group=2)  # which has no free half
    assert buffer.waiting(step=0) == 0
    buffer.settle()
    assert buffer.waiting(step=0) == 3
    rewards = np.array([0 + 0.5, 1 + 0.5, 1 - 1])  # the free halves' means are −.5 and 1
    expected = dict(zip([0, 2, 3], rewards - rewards.mean(), strict=True))
    assert taken(buffer.take(step=0)) == pytest.approx(expected, rel=1e-6)
    assert buffer.reward == pytest.approx(rewards.mean())
    buffer.settle()
    assert buffer.waiting(step=9) == 0


def test_what_was_learned_from_pauses_and_counts_less():
    buffer = filled(3)
    expected = np.array([1, -1, -1]) + 1 / 3
    for times, step in enumerate((10, 12, 15)):
        for number, success in enumerate((True, False, False)):
            credited(buffer, number, success)
        if times:
            assert buffer.take(step=[0, 11, 13][times]) == []  # within δ = 1 of the last one
        found = [sample.advantage for sample in buffer.take(step)]
        np.testing.assert_allclose(found, expected * (1 + times) ** -0.5, rtol=1e-6)


def test_the_oldest_make_room_and_get_no_credit():
    buffer = filled(7)
    assert len(buffer) == 5
    credited(buffer, 0, True)
    credited(buffer, 99, True)
    assert buffer.waiting(step=0) == 0


def test_a_checkpoint_keeps_everything():
    for count in (0, 4, 7):
        buffer = filled(count)
        for number in range(count):
            credited(buffer, number, number % 2 == 0)
        buffer.take(step=1)
        if count:
            credited(buffer, count - 1, True)
        again = CreditBuffer.from_state(CONFIG, buffer.state())
        for each in (buffer, again):
            each.add(generation(count))
            for number in range(count + 1):
                credited(each, number, number % 3 == 0)
        ours, theirs = buffer.state(), again.state()
        for name, value in ours.items():
            np.testing.assert_array_equal(value, theirs[name])
            assert value.dtype == theirs[name].dtype
        one, other = buffer.take(step=9), again.take(step=9)
        assert taken(one) == taken(other)
        assert (len(one) == 3) == (count > 0)


@pytest.mark.parametrize("fields", [{"batch": 0}, {"pause": -1}, {"capacity": 9}])
def test_bad_settings(fields):
    with pytest.raises(ValueError, match=f"credit.{next(iter(fields))} must be"):
        CreditConfig(**fields)

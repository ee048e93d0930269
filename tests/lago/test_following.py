"""Instruction following against hand-made policies, and twins of texts against the grammar."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.clevr import grammar
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.lago.following import (
    instruction_following,
    opposite_twins,
    share_turned,
    turned,
)
from tests.lago.toys import saying_prior

REAL = instruction_set("real")
STATES = np.random.default_rng(0).uniform(-0.5, 0.5, (7, 10)).astype(np.float32)
# Behind, left, front, right as the straight pushes (0, 1), (-1, 0), (0, -1), (1, 0).
STRAIGHT = np.array([1, 2, 3, 0])


def follower(ball_column, sign):
    """Pushes the source with, or the destination against, the direction of the text."""

    def choose(text, state):
        relation = REAL.relations[text, 0]
        direction = (relation[:, 2] + (0 if sign > 0 else 2)) % 4
        return jnp.asarray(relation[:, ball_column] * 8 + STRAIGHT[direction])

    return choose


def test_hand_made_policies():
    assert share_turned(follower(0, 1), REAL, STATES) == 1
    assert share_turned(follower(1, -1), REAL, STATES) == 1
    assert share_turned(follower(0, -1), REAL, STATES) == 0
    assert share_turned(follower(1, 1), REAL, STATES) == 0

    def blind(text, state):  # looks at balls and state only
        return jnp.asarray(REAL.relations[text, 0, 0] * 8) + (state[:, 0] * 100).astype(int) % 8

    def third_ball(text, state):
        other = np.array([min({0, 1, 2} - set(pair)) for pair in REAL.relations[text, 0, :2]])
        return jnp.asarray(other * 8 + STRAIGHT[REAL.relations[text, 0, 2]])

    assert share_turned(blind, REAL, STATES) == 0
    assert share_turned(third_ball, REAL, STATES) == 0

    def half(text, state):  # behind and front only
        right = follower(0, 1)(text, state)
        return jnp.where(REAL.relations[text, 0, 2] % 2 == 0, right, 0)

    assert share_turned(half, REAL, STATES) == 0.5


def test_a_prior_is_asked_with_each_text_and_its_state():
    """Priors whose weights say one action per text, so that the share is known."""
    part = REAL.select("part", np.arange(64) * 54 + 7)
    relations = part.relations[:, 0]
    follows = relations[:, 0] * 8 + STRAIGHT[relations[:, 2]]
    for actions, expected in ((follows, 1.0), (relations[:, 0] * 8, 0.0)):
        spec, frozen = saying_prior(actions, num_actions=40, state_size=10)
        assert instruction_following(spec, frozen, part, STATES) == expected


@pytest.mark.parametrize(
    "action, twin_action, expected",
    [
        (8 + 0, 8 + 2, False),  # source right, then left; asked: behind, then front
        (8 + 1, 8 + 3, True),  # source behind, then front
        (8 + 3, 8 + 1, False),
        (8 + 1, 2 * 8 + 1, True),  # source behind, then destination behind
        (8 + 4, 8 + 6, True),  # right and behind, then right and front
        (8 + 5, 8 + 4, False),  # left and behind, then right and behind
        (8 + 1, 8 + 1, False),
        (8 + 1, 0, True),  # source behind, then another ball
        (0, 0, False),
    ],
)
def test_one_pair_of_choices(action, twin_action, expected):
    """The goal: ball 1 behind ball 2; its twin: ball 1 in front of ball 2."""
    relations = jnp.array([[1, 2, 0]]), jnp.array([[1, 2, 2]])
    assert turned(jnp.array([action]), jnp.array([twin_action]), *relations).tolist() == [expected]


def swapped(text):
    """The text with each direction phrase of Real replaced by the opposite one."""
    for phrasing in zip(*grammar.REAL_DIRECTIONS, strict=True):
        for direction, phrase in enumerate(phrasing):
            if f" {phrase} " in text:
                return text.replace(f" {phrase} ", f" {phrasing[(direction + 2) % 4]} ")
    raise AssertionError(text)


def test_twins_of_real_are_the_texts_with_the_direction_words_swapped():
    twins = opposite_twins(REAL)
    assert [REAL.texts[i] for i in twins] == [swapped(text) for text in REAL.texts]
    np.testing.assert_array_equal(twins[twins], np.arange(len(REAL)))


def test_twins_in_other_sets():
    rephrase = instruction_set("rephrase")
    relations = rephrase.relations[:, 0]
    twins = opposite_twins(rephrase)
    np.testing.assert_array_equal(relations[twins][:, :2], relations[:, :2])
    np.testing.assert_array_equal(relations[twins][:, 2], (relations[:, 2] + 2) % 4)
    frames = [style.frame.split("{")[0] for style in grammar.REPHRASE_STYLES]
    for text, twin in zip(rephrase.texts, twins, strict=True):
        start = max((f for f in frames if text.startswith(f)), key=len)
        assert rephrase.texts[twin].startswith(start)
    # A part of a set keeps the twins that it has.
    part = REAL.select("part", np.array([5, opposite_twins(REAL)[5], 17]))
    assert opposite_twins(part).tolist() == [1, 0, -1]
    assert (opposite_twins(instruction_set("easy")) == -1).all()


@pytest.mark.parametrize("name", ["easy", "rephrase-confounded"])
def test_sets_without_twins_are_refused(name):
    """The papers' arrangement has no style that says two opposite directions."""
    level, _, confounded = name.partition("-")
    instructions = instruction_set(level, confounded=bool(confounded))
    with pytest.raises(ValueError, match=f"no text of '{level}' has a twin"):
        share_turned(follower(0, 1), instructions, STATES)

"""gymnasium's spaces as leaves of arrays, and as the library's spaces."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from jaxrl_guided.envs.bridge.env import make_bridge
from jaxrl_guided.envs.bridge.pool import Pool
from jaxrl_guided.envs.bridge.spaces import leaves_of
from jaxrl_guided.envs.types import Discrete, MultiDiscrete
from jaxrl_guided.networks.observations import make_encoder


def many(sizes, first):
    return spaces.MultiDiscrete(np.array(sizes), start=np.array(first))


class Board(gymnasium.Env):
    """A board of two rows whose cells are 7 to 9; the actions are one axis of integers."""

    observation_space = many([[3, 3], [3, 3]], [[7, 7], [7, 7]])
    action_space = many([2, 4], [0, 0])

    def reset(self, *, seed=None, options=None):
        return np.array([[7, 8], [9, 7]]), {}

    def step(self, action):
        return np.array([[9, 9], [8, 7]]), 0.0, False, False, {}


def test_several_axes_of_one_range_are_an_array_of_integers():
    (leaf,) = leaves_of(many([[5, 5, 5]] * 2, [[7, 7, 7]] * 2))
    assert (leaf.kind, leaf.shape, leaf.dtype) == ("discrete", (2, 3), "int32")
    row = np.zeros((2, 3), np.int32)
    leaf.fill(row, [[7, 8, 9], [10, 11, 7]])
    assert row.tolist() == [[0, 1, 2], [3, 4, 0]]
    assert leaf.action(row, np.int64).tolist() == [[7, 8, 9], [10, 11, 7]]
    with pytest.raises(ValueError, match="must lie in"):
        leaf.action(row + 1, np.int64)


def test_one_axis_has_a_range_for_each_entry():
    for sizes in ([3, 4], [3, 3]):
        (leaf,) = leaves_of(many(sizes, [0, 0]))
        assert leaf.kind == "multi_discrete"


@pytest.mark.parametrize(
    "sizes, first", [([[3, 3], [3, 4]], [[0, 0], [0, 0]]), ([[3, 3]], [[0, 1]])]
)
def test_several_axes_of_several_ranges_are_refused(sizes, first):
    with pytest.raises(ValueError, match="MultiDiscrete of more axes where all entries"):
        leaves_of(many(sizes, first))


def test_they_become_discrete_ones_that_networks_read():
    env = make_bridge(Pool("gym/Board", Board, 2, workers=0, max_steps=3))
    assert env.observation_space == Discrete(3, (2, 2))
    assert env.action_space == MultiDiscrete((2, 4))
    _, obs = env.reset(jax.random.key(0))
    size, encode = make_encoder(env.observation_space)
    expected = [1, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0, 0]
    assert size == 12
    np.testing.assert_array_equal(encode(obs), [expected] * 2)
    env.close()


def box(dtype, low=-np.inf, high=np.inf):
    return spaces.Box(low, high, (2,), dtype)


@pytest.mark.parametrize(
    "space, value, message",
    [
        (box(np.float64), np.array([0, 1e300]), "is not finite in float32"),
        (box(np.float32), [0.0, float("nan")], "is not finite in float32"),
        (box(np.float32), np.array([None, 1.0]), "is not finite in float32"),
        (box(np.int64, -(2**40), 2**40), np.array([2**33 + 12, 0]), "does not fit into int32"),
        (box(np.uint32, 0, 2**32 - 1), np.array([2**32 - 13, 0], np.uint32), "not fit into int32"),
        (box(np.uint8, 0, 255), np.array([0.5, 1.0]), "does not fit into uint8"),
        (box(np.uint8, 0, 255), np.array([0, 300]), "does not fit into uint8"),
        (many([3, 4], [1, 0]), np.array([0, 3]), r"the space says \[1 0\] to \[3 3\]"),
    ],
)
def test_numbers_are_never_changed_on_their_way(space, value, message):
    (leaf,) = leaves_of(space)
    with pytest.raises(ValueError, match=f"observation .*{message}"):
        leaf.fill(np.zeros(2, leaf.dtype), value)


def test_a_discrete_number_out_of_range_is_refused():
    (leaf,) = leaves_of(spaces.Discrete(4))
    with pytest.raises(ValueError, match=r"observation is array\(9\), the space says 0 to 3"):
        leaf.fill(np.zeros((), np.int32), 9)


def test_whole_numbers_of_another_type_fit():
    (leaf,) = leaves_of(box(np.uint8, 0, 255))
    row = np.zeros(2, np.uint8)
    leaf.fill(row, np.array([7.0, 255.0]))
    assert row.tolist() == [7, 255]

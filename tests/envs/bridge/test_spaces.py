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

"""The table's geometry against literals."""

import jax.numpy as jnp
import numpy as np
import pytest

from jaxrl_guided.envs.clevr import table


@pytest.mark.parametrize("array", [np.asarray, jnp.asarray])
def test_components_along_and_across_of_the_four_directions(array):
    offset = array(np.tile(np.array([3.0, 5.0], np.float32), (4, 1)))
    along, across = table.along_across(offset, array(table.COMPASS))
    assert along.tolist() == [5, -3, -5, 3]  # behind, left, front, right
    assert across.tolist() == [-3, -5, 3, 5]  # to the left of each


def test_a_ball_at_a_wall_touches_it():
    np.testing.assert_allclose(table.CENTRE_LOW - table.WALL_LOW, 0.13, rtol=1e-6)
    np.testing.assert_allclose(table.WALL_HIGH - table.CENTRE_HIGH, 0.13, rtol=1e-6)


def test_pushes_name_every_ball_and_direction():
    assert table.NUM_ACTIONS == 40
    assert np.sign(table.DIRECTIONS).tolist() == [
        [1, 0], [0, 1], [-1, 0], [0, -1], [1, 1], [-1, 1], [1, -1], [-1, -1],
    ]  # fmt: skip

"""What is computed otherwise than in Meta-World, against what Meta-World computes it with."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

pytest.importorskip("metaworld.policies")

from jaxrl_guided.envs.metaworld.lean import quaternion_of


def test_quaternions_are_those_of_scipy_to_the_bit():
    rotations = Rotation.random(2000, random_state=0)
    half_turns = Rotation.from_rotvec(np.pi * np.concatenate([np.eye(3), -np.eye(3)]))
    quarter_turns = Rotation.from_rotvec(np.pi / 2 * np.eye(3))
    for some in (rotations, half_turns, quarter_turns, Rotation.identity(1)):
        for matrix in some.as_matrix():
            expected = Rotation.from_matrix(matrix).as_quat()
            np.testing.assert_array_equal(quaternion_of(matrix), expected)

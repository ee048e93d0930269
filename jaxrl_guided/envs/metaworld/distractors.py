"""Recorded poses, one of which a state shows of an entity that is not there.

They come with the package, since recording them takes many seconds: `record_distractors`.
"""

import functools
import pathlib

import numpy as np

PATH = pathlib.Path(__file__).with_name("distractors.npy")


@functools.cache
def load_distractors() -> np.ndarray:
    """`f32[12, R, 7]`: R poses of each of `tasks.ENTITIES`."""
    return np.load(PATH, mmap_mode="r")

"""Pictures are written and show what they are given."""

import numpy as np
from PIL import Image

from jaxrl_guided.runtime.plots import learning_curves


def picture(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_learning_curves_draw_a_band_for_several_seeds(tmp_path):
    steps = np.arange(5)
    values = np.stack([steps, 3 * steps]).astype(float)
    learning_curves({"ppo": (steps, values)}, tmp_path / "a.png", "CLEVR", "success")
    learning_curves({"ppo": (steps, values[:1] * 2)}, tmp_path / "b.png", "CLEVR", "success")
    banded, plain = picture(tmp_path / "a.png"), picture(tmp_path / "b.png")
    assert banded.shape == (600, 960, 3)
    assert (banded != 255).any(axis=-1).sum() > 3 * (plain != 255).any(axis=-1).sum()

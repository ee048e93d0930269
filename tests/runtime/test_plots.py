"""Pictures are written and show what they are given."""

import numpy as np
from PIL import Image

from jaxrl_guided.runtime.plots import bar_chart, learning_curves
from jaxrl_guided.runtime.stats import Estimate


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


def test_bars_are_as_high_as_their_values(tmp_path):
    bars = {"ppo": [Estimate(1, 0.9, 1.1)], "lago": [Estimate(2, 1.9, 2.1)]}
    bar_chart(["Real"], bars, tmp_path / "c.png", "CLEVR", "success")
    image = picture(tmp_path / "c.png")
    # The plot's own area: the legend shows the same colours.
    heights = [
        (np.abs(image - color).sum(axis=-1) < 9).sum(axis=0).max()
        for color in ((31, 119, 180), (255, 127, 14))
    ]
    assert 1.8 < heights[1] / heights[0] < 2.2

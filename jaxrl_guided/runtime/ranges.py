"""Ranges that numbers of a configuration must lie in, and choices."""

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

import numpy as np

_SMALLEST, _LARGEST = (float(x) for x in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))


class Range(NamedTuple):
    """Numbers for which `holds`, in words `text`. Nan lies in none."""

    holds: Callable[[float], bool]
    text: str


COUNT = Range(lambda x: x >= 1, "at least 1")
INT63 = Range(lambda x: x < 2**63, "below 2**63")
INT32 = Range(lambda x: x < 2**31, "below 2**31")
POSITIVE = Range(lambda x: _SMALLEST <= x <= _LARGEST, "positive and finite in float32")
NOT_NEGATIVE = Range(lambda x: 0 <= x <= _LARGEST, "at least 0 and finite in float32")
SHARE = Range(lambda x: 0 <= x <= 1, "in [0, 1]")
PROPER_SHARE = Range(lambda x: 0 <= x < 1, "in [0, 1)")
POSITIVE_SHARE = Range(lambda x: 0 < x <= 1, "in (0, 1]")


def check(config: Any, allowed: Range, *names: str, part: str = "") -> None:
    """Raises ValueError for the first field that is out of range; None lies in every range.

    Args:
      part: what the error puts before the field's name, as `ppo.`.
    """
    for name in names:
        value = getattr(config, name)
        if value is not None and not allowed.holds(value):
            raise ValueError(f"{part}{name} must be {allowed.text}, not {value}")


def check_choice(config: Any, name: str, choices: Collection[str], part: str = "") -> None:
    """Raises ValueError, listing the choices, if the field is none of them."""
    if (value := getattr(config, name)) not in choices:
        raise ValueError(f"{part}{name} must be one of {', '.join(choices)}, not {value!r}")

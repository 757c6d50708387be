"""Durations as command lines and files have them: ``90d``, ``12h``, ``30m``.

In Python they are numbers of seconds, or timedeltas.
"""

from __future__ import annotations

import math
import re
from typing import Final

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_WHOLE: Final = ("d", "h", "m")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def duration_text(seconds: int) -> str:
    """Return a number of seconds, at least 1, as `duration` reads it: ``90d``, ``36h``, ``90s``."""
    for unit in _WHOLE:
        if seconds % _UNITS[unit] == 0:
            return f"{seconds // _UNITS[unit]}{unit}"
    return f"{seconds}s"


def duration(text: str | float) -> float:
    """Return the seconds of a duration; one without a unit is a number of seconds.

    A whole number is an int.

    Raises:
        ValueError: It is not a duration, or has no end.
    """
    written = _DURATION.fullmatch(text.strip()) if isinstance(text, str) else None
    try:
        seconds = float(text) if written is None else float(written[1]) * _UNITS[written[2]]
    except ValueError:
        seconds = math.nan
    if not math.isfinite(seconds):
        raise ValueError(
            f"{text!r} is not a duration: give a number of seconds, or one with a unit, as in 45s, "
            "30m, 12h, 90d or 2w"
        )
    return int(seconds) if seconds.is_integer() else seconds

"""Which values are a ttl, strictly and leniently, and how durations are written as text.

Two questions are kept apart. What may a program *specify* (a default, a row's own ttl)? Any other
value than a valid one is a mistake, and raises. What does a value that is already *stored* mean?
Here nothing raises: a value that is not a valid ttl does not count, so that odd data never deletes
a row.

In Python, durations are numbers of seconds or timedeltas; command lines and files write them as
``90d``, ``12h`` or ``30m``.

This module must not know which database stores the value. `bson.Int64` is accepted because it is
an int, and `Decimal128` is not because it is not a float.
"""

from __future__ import annotations

import math
import re
from datetime import timedelta
from typing import Final

from ttl_odm.errors import InvalidTTL

NEVER: Final = -1
"""The ttl that means "on, but never expires"."""

MAX_TTL: Final = 2_147_483_647
"""The longest ttl in seconds (68 years): the largest int32."""

FOREVER: Final = 100_000_000_000
"""Seconds (about 3,170 years) that no instant is older than; "never" as a value in SQL.

Small enough for 64-bit microseconds and for PostgreSQL's first year, 4713 BC.
"""

OFF: Final = 2 * FOREVER
"""Like `FOREVER`, but rows' own ttls don't count either: TTL is off."""

_REPR_CHARACTERS: Final = 80

_UNITS: Final = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_WHOLE: Final = ("d", "h", "m")
_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*([smhdw])")


def default_ttl(value: object, *, where: str = "__ttl__") -> int | None:
    """Normalise the default ttl of a container (model, table, collection).

    Args:
        value: None, -1 or 1..MAX_TTL seconds as an int or an integral float, or a timedelta of
            whole seconds.
        where: The name of the setting for the error message, such as ``WebSession.__ttl__``.

    Returns:
        Seconds, `NEVER`, or None when TTL is off.

    Raises:
        InvalidTTL: For any other value.
    """
    return _strict(value, where, "None (TTL is off), -1 (on, but rows never expire by default)")


def row_ttl(value: object, *, where: str = "ttl") -> int | None:
    """Normalise a ttl that a program gives to one row, strictly.

    Like `default_ttl`, except that None means that the row inherits the default.
    """
    return _strict(value, where, "None (inherit the default), -1 (never expires)")


def lenient_ttl(value: object) -> int | None:
    """Read a stored ttl of any type, as Cosmos DB for MongoDB does.

    Returns:
        Seconds or `NEVER` for an int or an integral float (int32, int64, double) that is -1 or
        1..MAX_TTL; None, "no override", for everything else.
    """
    number = integral(value)
    if number is None:
        return None
    return number if number == NEVER or 1 <= number <= MAX_TTL else None


def whole_seconds(value: object, *, lowest: int) -> int | None:
    """Return a duration in seconds; None unless these are a whole number in lowest..MAX_TTL."""
    if isinstance(value, timedelta):
        # Not total_seconds(): a float loses the microseconds of a long timedelta.
        seconds = None if value.microseconds else value.days * 86_400 + value.seconds
    else:
        seconds = integral(value)
    return seconds if seconds is not None and lowest <= seconds <= MAX_TTL else None


def integral(value: object) -> int | None:
    """Return a whole number as a plain int, None for anything else (also for a bool)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return None


def duration(text: str | float) -> float:
    """Return the seconds of a duration; one without a unit is a number of seconds.

    A whole number is an int.

    Raises:
        ValueError: It is not a duration, or is infinite.
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


def duration_text(seconds: int) -> str:
    """Return a number of seconds, at least 1, as `duration` reads it: ``90d``, ``36h``, ``90s``."""
    for unit in _WHOLE:
        if seconds % _UNITS[unit] == 0:
            return f"{seconds // _UNITS[unit]}{unit}"
    return f"{seconds}s"


def short_repr(value: object) -> str:
    """Return a short repr for an error message, whatever the value is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an int of more than 4300 digits, or a deep list
        text = f"<{type(value).__name__}>"
    if len(text) > _REPR_CHARACTERS:
        return text[: _REPR_CHARACTERS - 3] + "..."
    return text


def _strict(value: object, where: str, special: str) -> int | None:
    if value is None:
        return None
    # Only as a number: timedelta(seconds=-1) is a miscalculated duration, and doesn't mean "never".
    if integral(value) == NEVER:
        return NEVER
    seconds = whole_seconds(value, lowest=1)
    if seconds is None:
        raise InvalidTTL(
            f"{where} = {short_repr(value)} is not a ttl: give {special}, or whole seconds from 1 "
            f"to {MAX_TTL} as an int, an integral float or a timedelta."
        )
    return seconds

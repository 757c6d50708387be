"""A ttl that is given as a timedelta, which BSON doesn't have: Beanie writes its seconds, a float.

One of them is then no longer what it was: -1 second, a duration gone wrong, becomes -1.0, which
means "never". So the documents' encoder leaves a mark on that one, by which the gate knows it.
"""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from ttl_odm.core.values import row_ttl


class _GoneWrong(float):
    """What was `timedelta(seconds=-1)`."""

    __slots__ = ()


_GONE_WRONG = timedelta(seconds=-1)


def mark(model: Any) -> None:
    """Have a document class's encoder mark it, unless it has one of its own for timedeltas."""
    settings = model.get_settings()
    if timedelta not in settings.bson_encoders:
        settings.bson_encoders = {**settings.bson_encoders, timedelta: _seconds}


def check(value: object, field: str) -> None:
    """Refuse it as an own ttl, also where other values that are no ttl are stored as given.

    Raises:
        InvalidTTL: It was -1 second.
    """
    if isinstance(value, _GoneWrong):
        row_ttl(_GONE_WRONG, where=field)


def _seconds(duration: timedelta) -> float:
    seconds = duration.total_seconds()
    return _GoneWrong(seconds) if duration == _GONE_WRONG else seconds

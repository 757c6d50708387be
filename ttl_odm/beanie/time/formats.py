"""How fields keep instants and durations: what is stored for each.

Instants are dates, or as an adopted collection has them, numbers and strings. What is written is
rounded up to the unit, so that no document expires before it should. Reading is the business of
`ttl_odm.beanie.policy.predicate`, on the server, and of `ttl_odm.core.instant_of`.

A ttl may be given as a timedelta, which BSON doesn't have: Beanie writes its seconds, a float. One
of them is then no longer what it was: -1 second, a duration gone wrong, becomes -1.0, which means
"never". So the documents' encoder leaves a mark on that one, by which the gate knows it.

This module must not know who writes.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, TypeAlias

from ttl_odm.beanie.drivers import Document
from ttl_odm.core.values import row_ttl

if TYPE_CHECKING:
    import beanie

    from ttl_odm.core.policy import Policy

Instant: TypeAlias = str | Document | datetime
"""An expression that gives a date."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_GONE_WRONG: Final = timedelta(seconds=-1)
_STEPS: Final = {
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}


def server_now() -> Instant:
    """Return the expression for the server's present instant; whatever needs one asks here."""
    return "$$NOW"


def stored(policy: Policy, instant: datetime) -> datetime | str | int:
    """Return what the policy's field has to hold, in its unit, for an aware instant."""
    if policy.unit is None:
        return instant
    if policy.unit == "iso":
        text = instant.astimezone(timezone.utc).replace(tzinfo=None)
        return f"{text.isoformat(timespec='microseconds')}Z"
    return -(-(instant - _EPOCH) // _STEPS[policy.unit])


def stored_expr(policy: Policy, instant: Instant) -> Instant:
    """Return the expression for the same, of one for a date."""
    if policy.unit is None:
        return instant
    if policy.unit == "iso":
        return {"$dateToString": {"date": instant, "format": "%Y-%m-%dT%H:%M:%S.%LZ"}}
    milliseconds = {"$toLong": instant}
    if policy.unit == "s":
        return {"$toLong": {"$ceil": {"$divide": [milliseconds, 1000]}}}
    return milliseconds if policy.unit == "ms" else {"$multiply": [milliseconds, 1000]}


def mark_durations(model: type[beanie.Document]) -> None:
    """Have a class's encoder mark a duration gone wrong, unless it has its own for timedeltas."""

    def seconds_of(duration: timedelta) -> float:
        seconds = duration.total_seconds()
        return _GoneWrong(seconds) if duration == _GONE_WRONG else seconds

    settings = model.get_settings()
    if timedelta not in settings.bson_encoders:
        settings.bson_encoders = {**settings.bson_encoders, timedelta: seconds_of}


def check_duration(value: object, field: str) -> None:
    """Refuse -1 second as an own ttl, also where other values that are none are stored."""
    if isinstance(value, _GoneWrong):
        row_ttl(_GONE_WRONG, where=field)


class _GoneWrong(float):
    """What was `timedelta(seconds=-1)`."""

    __slots__ = ()

"""How fields store instants and durations.

Instants are dates, or numbers and strings in an adopted collection. Writes round up to the unit, so
that no document expires early. `ttl_odm.beanie.policy.predicate` reads them on the server, and
`ttl_odm.core.instant_of` in memory.

A ttl may be a timedelta, which BSON doesn't have: Beanie writes its seconds as a float. That hides
one mistake: -1 second, a wrong duration, becomes -1.0, which means "never". So the encoder of the
documents marks this value, and the gate rejects it.

This module must not know its callers.
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
"""An expression whose value is a date."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_GONE_WRONG: Final = timedelta(seconds=-1)
_STEPS: Final = {
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}


def server_now() -> Instant:
    """Return the expression for the server's present instant; the test clock replaces it."""
    return "$$NOW"


def stored(policy: Policy, instant: datetime) -> datetime | str | int:
    """Return an aware instant in the form and unit in which the policy's field stores it."""
    if policy.unit is None:
        return instant
    if policy.unit == "iso":
        text = instant.astimezone(timezone.utc).replace(tzinfo=None)
        return f"{text.isoformat(timespec='microseconds')}Z"
    return -(-(instant - _EPOCH) // _STEPS[policy.unit])


def stored_expr(policy: Policy, instant: Instant) -> Instant:
    """Return the expression for what the policy's field stores, from one for a date."""
    if policy.unit is None:
        return instant
    if policy.unit == "iso":
        return {"$dateToString": {"date": instant, "format": "%Y-%m-%dT%H:%M:%S.%LZ"}}
    milliseconds = {"$toLong": instant}
    if policy.unit == "s":
        return {"$toLong": {"$ceil": {"$divide": [milliseconds, 1000]}}}
    return milliseconds if policy.unit == "ms" else {"$multiply": [milliseconds, 1000]}


def mark_durations(model: type[beanie.Document]) -> None:
    """Make a class's encoder mark -1 second, unless the class has its own for timedeltas."""

    def seconds_of(duration: timedelta) -> float:
        seconds = duration.total_seconds()
        return _GoneWrong(seconds) if duration == _GONE_WRONG else seconds

    settings = model.get_settings()
    if timedelta not in settings.bson_encoders:
        settings.bson_encoders = {**settings.bson_encoders, timedelta: seconds_of}


def check_duration(value: object, field: str) -> None:
    """Reject -1 second as an own ttl, even if the policy stores other invalid values."""
    if isinstance(value, _GoneWrong):
        row_ttl(_GONE_WRONG, where=field)


class _GoneWrong(float):
    """The encoded form of `timedelta(seconds=-1)`."""

    __slots__ = ()

"""How fields keep instants: as dates, or as an adopted collection has them, numbers and strings.

What is written is rounded up to the unit, so that no document expires before it should. Reading
is the business of `ttl_odm.beanie.policy.predicate`, on the server, and of
`ttl_odm.core.instant_of`.

This module must not know who writes.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy

Expression = str | dict[str, Any] | datetime
"""One that gives a date."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_STEPS: Final = {
    "s": timedelta(seconds=1),
    "ms": timedelta(milliseconds=1),
    "us": timedelta(microseconds=1),
}


def server_now() -> Expression:
    """Return the expression for the server's present instant; whatever needs one asks here."""
    return "$$NOW"


def stored(policy: Policy, instant: datetime) -> Any:
    """Return what the policy's field has to hold for an instant.

    Args:
        policy: Has the unit.
        instant: Aware.
    """
    if policy.unit is None:
        return instant
    if policy.unit == "iso":
        text = instant.astimezone(timezone.utc).replace(tzinfo=None)
        return f"{text.isoformat(timespec='microseconds')}Z"
    return -(-(instant - _EPOCH) // _STEPS[policy.unit])


def stored_expr(policy: Policy, instant: Expression) -> Expression:
    """Return the expression for the same, of one for a date."""
    if policy.unit is None:
        return instant
    if policy.unit == "iso":
        return {"$dateToString": {"date": instant, "format": "%Y-%m-%dT%H:%M:%S.%LZ"}}
    milliseconds = {"$toLong": instant}
    if policy.unit == "s":
        return {"$toLong": {"$ceil": {"$divide": [milliseconds, 1000]}}}
    return milliseconds if policy.unit == "ms" else {"$multiply": [milliseconds, 1000]}

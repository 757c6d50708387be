"""The one predicate of the MongoDB side: which documents are expired, as the server sees it.

Pure functions from a policy to an aggregation expression for ``$expr``. Reads, writes and purges
all use it, and it answers as `ttl_odm.core.expiry` does, for every value that a document may
hold. It must not know Beanie, PyMongo or Motor, nor how filters are put together.

Two traps shape the expressions:

- An expression that fails on one odd document fails the whole query. So arithmetic is reached
  only behind a ``$switch`` branch that has seen the type, and the seconds are taken off ``now``
  instead of being added to the stored date: a date near the end of int64 milliseconds would
  overflow a sum, ``now`` never does.
- Comparisons in aggregation order values of different types, they don't reject them (a missing
  field is less than any date). So types are asked for by name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.core.policy import TTL, ExpireAfter
from ttl_odm.core.values import MAX_TTL, NEVER
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from datetime import datetime

    from ttl_odm.core.policy import ExpireAt, Policy

Expression = dict[str, Any]

_NUMBERS = ["int", "long", "double"]  # not "decimal": it never counts as a ttl
_NULLS = ["null", "missing", "undefined"]


def live_expr(policy: Policy, now: str | datetime = "$$NOW") -> Expression:
    """Return the expression that is true for documents that exist.

    Args:
        policy: How the documents expire.
        now: The server's clock; an aware datetime of it where ``$$NOW`` is not available
            (``distinct``, the ``count`` command, validators).

    Returns:
        An aggregation expression, the exact opposite of `expired_expr`.

    Raises:
        TTLConfigurationError: When the policy cannot hold for BSON dates.
    """
    return {"$not": [expired_expr(policy, now)]}


def expired_expr(policy: Policy, now: str | datetime = "$$NOW") -> Expression:
    """Return the expression that is true for documents that have expired.

    Args:
        policy: How the documents expire.
        now: As for `live_expr`.

    Returns:
        An aggregation expression that is true or false, and fails on no document.

    Raises:
        TTLConfigurationError: When the policy cannot hold for BSON dates.
    """
    _check_bson_dates(policy)
    if isinstance(policy, TTL):
        return _ttl_expired(policy, now)
    if isinstance(policy, ExpireAfter):
        return _date_expired(policy, now, seconds=policy.seconds, null=False)
    return _date_expired(policy, now, seconds=0, null=policy.null == "expired")


def _ttl_expired(policy: TTL, now: str | datetime) -> Expression:
    if policy.default is None:
        return {"$literal": False}
    last_modified = _path(policy.last_modified)
    inherited: bool | Expression = (
        False if policy.default == NEVER else _passed(last_modified, policy.default * 1000, now)
    )
    branches = [_branch({"$ne": [{"$type": last_modified}, "date"]}, then=False)]
    if policy.override is not None:
        own = _path(policy.override)
        own_milliseconds = {"$multiply": [{"$toLong": own}, 1000]}
        branches += [
            _branch({"$not": [{"$in": [{"$type": own}, _NUMBERS]}]}, then=inherited),
            _branch({"$in": [own, [NEVER, *policy.never]]}, then=False),
            _branch(_is_valid(own), then=_passed(last_modified, own_milliseconds, now)),
        ]
    return {"$switch": {"branches": branches, "default": inherited}}


def _date_expired(
    policy: ExpireAfter | ExpireAt, now: str | datetime, *, seconds: int, null: bool
) -> Expression:
    field = _path(policy.field)
    # The earliest date has passed when any has. ($min would be null for an array without dates,
    # and null is less than every date.)
    a_date_passed = {
        "$and": [
            {"$eq": [{"$type": "$$this"}, "date"]},
            _passed("$$this", seconds * 1000, now),
        ]
    }
    branches = [
        _branch({"$eq": [{"$type": field}, "date"]}, then=_passed(field, seconds * 1000, now)),
        _branch(
            {"$isArray": [field]},
            then={"$anyElementTrue": [{"$map": {"input": field, "in": a_date_passed}}]},
        ),
        _branch({"$in": [{"$type": field}, _NULLS]}, then=null),
    ]
    return {"$switch": {"branches": branches, "default": False}}


def _passed(date: str, milliseconds: int | Expression, now: str | datetime) -> Expression:
    return {"$lte": [date, {"$subtract": [now, milliseconds]}]}


def _is_valid(own: str) -> Expression:
    # NaN sorts below all numbers, so the first comparison keeps it out.
    return {
        "$and": [
            {"$gte": [own, 1]},
            {"$lte": [own, MAX_TTL]},
            {"$eq": [own, {"$trunc": [own]}]},
        ]
    }


def _branch(case: Expression, *, then: bool | Expression) -> Expression:
    return {"case": case, "then": then}


def _path(field: str) -> str:
    if field.startswith("$"):
        message = f"{field!r} cannot be a TTL field on MongoDB: '$' starts a variable there."
        raise TTLConfigurationError(message)
    return f"${field}"


def _check_bson_dates(policy: Policy) -> None:
    name = type(policy).__name__
    if policy.timezone != "UTC":
        message = (
            f"{name}.timezone = {policy.timezone!r} has no meaning on MongoDB, whose dates are "
            "instants in UTC: leave it out."
        )
        raise TTLConfigurationError(message)
    if policy.unit is not None:
        message = (
            f"{name}.unit = {policy.unit!r} is not possible on MongoDB: only fields of the BSON "
            "type date expire; convert the epoch numbers with $toDate."
        )
        raise TTLConfigurationError(message)

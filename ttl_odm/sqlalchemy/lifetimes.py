"""What a program does with one row's lifetime, whichever columns hold it.

`TTLMixin` has these as methods. Not every policy allows everything: a row without a ttl of its
own can't be given one, and a date that no write resets isn't prolonged by a touch. Such a wish
raises `TTLError` and says which declaration would allow it.

What is assigned to the row is SQL, so that the database's clock decides; the next flush sends it.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from sqlalchemy import inspect, literal

from ttl_odm.core.policy import ExpireAt
from ttl_odm.core.values import NEVER, row_ttl
from ttl_odm.errors import InvalidTTL, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy.identity import Lifetime, lifetime_of
from ttl_odm.sqlalchemy.stamping import Stamp, own_ttl_until, stamp_ago, stamp_until
from ttl_odm.sqlalchemy.types import LastModified

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

    from ttl_odm.sqlalchemy.binding import Binding


def bound_lifetime(row: Any) -> Lifetime:
    """What the lifetime of a row hangs on.

    Raises:
        TTLConfigurationError: The row's class has no TTL.
    """
    found = lifetime_of(inspect(row).mapper)
    if found is None:
        raise TTLConfigurationError(
            f"{type(row).__name__} has no TTL; declare __ttl__ on the model, or enable() it."
        )
    return found


def end_of(row: Any) -> datetime | None:
    """The instant at which a row expires (aware, UTC), as it is in memory; None for never."""
    lifetime = bound_lifetime(row)
    return lifetime.end({key: getattr(row, key) for key in lifetime.attributes})


def check_touchable(row: Any, binding: Binding) -> None:
    """See that writes reset a row's lifetime.

    Raises:
        TTLError: They don't.
    """
    if not binding.stamps:
        raise TTLError(
            f"{type(row).__name__}.touch(): by {binding.policy!r} no write prolongs a row; set "
            f"{binding.last_modified.name!r} itself, or declare TTL(seconds, last_modified=...)."
        )


def persist(row: Any) -> None:
    """Let a row live for ever, whatever the default."""
    lifetime = bound_lifetime(row)
    policy = lifetime.binding.policy
    if lifetime.own is not None:
        setattr(row, lifetime.own, NEVER)
    elif isinstance(policy, ExpireAt) and policy.null == "never":
        _set_null(row, lifetime.stamp, lifetime.binding.last_modified)
    else:
        _refuse(row, "persist()", lifetime)


def inherit_ttl(row: Any) -> None:
    """Give up a row's own ttl: the default applies again."""
    lifetime = bound_lifetime(row)
    if lifetime.own is None:
        _refuse(row, "inherit_ttl()", lifetime)
    _set_null(row, lifetime.own, lifetime.binding.override)


def expire_in(row: Any, life: float | timedelta) -> None:
    """Let a row live for so long from the next flush on; zero or less ends it with the flush."""
    lifetime = bound_lifetime(row)
    instants = lifetime.binding.instants
    seconds = life.total_seconds() if isinstance(life, timedelta) else life
    is_over = not isinstance(seconds, bool) and seconds <= 0
    whole = 0 if is_over else row_ttl(life, where=f"{type(row).__name__}.ttl") or 0
    ago = stamp_ago(1 if instants.native else 1 + instants.coarseness)
    if lifetime.own is not None:
        setattr(row, lifetime.own, whole or 1)
        setattr(row, lifetime.stamp, ago if is_over else Stamp())
    elif isinstance(lifetime.binding.policy, ExpireAt):
        setattr(row, lifetime.stamp, instants.stored(ago if is_over else stamp_ago(-whole)))
    else:
        _refuse(row, "expire_in()", lifetime)


def expire_at(row: Any, instant: datetime) -> None:
    """Let a row expire at exactly this instant, or right after it where its column is coarser."""
    if instant.tzinfo is None:
        raise InvalidTTL(
            f"{type(row).__name__}.expire_at({instant!r}): a naive datetime names no "
            "instant; add tzinfo=datetime.timezone.utc if it is UTC."
        )
    lifetime = bound_lifetime(row)
    if lifetime.own is not None:
        setattr(row, lifetime.own, own_ttl_until(instant))
        setattr(row, lifetime.stamp, stamp_until(instant))
    elif isinstance(lifetime.binding.policy, ExpireAt):
        end: ColumnElement[Any] = literal(instant, LastModified())
        setattr(row, lifetime.stamp, lifetime.binding.instants.stored(end))
    else:
        _refuse(row, "expire_at()", lifetime)


def _set_null(row: Any, attribute: str, column: Any) -> None:
    if not column.nullable:
        raise TTLError(
            f"{type(row).__name__}.{attribute} can't be NULL (column {column.name!r}), so it "
            "can't say this."
        )
    setattr(row, attribute, None)


def _refuse(row: Any, call: str, lifetime: Lifetime) -> NoReturn:
    raise TTLError(
        f"{type(row).__name__}.{call}: by {lifetime.binding.policy!r} a row has no lifetime of its "
        "own; that takes TTL(..., override='a column of seconds') or ExpireAt('a column')."
    )

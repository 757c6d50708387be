"""What a program may do with one row's lifetime: the arguments, and what they mean.

The calls are the same on every adapter (Beanie's are coroutines, and have ``session=`` too)::

    touch(*, at_most_every: float | timedelta | None = None, only_if: OnlyIf | None = None) -> bool
    expire_in(life: float | timedelta, *, only_if: OnlyIf | None = None) -> bool
    expire_at(instant: datetime, *, only_if: OnlyIf | None = None) -> bool
    persist() -> None
    inherit_ttl() -> None

They return whether the change is written, or will be with the next flush or save. ``only_if``
corresponds to the flags of EXPIRE in Redis: GT, LT, XX and NX. An end of None means "never" and
counts as later than any instant, like a key without a ttl in Redis:

| ``only_if`` | Redis | granted if | for a row that never expires |
|---|---|---|---|
| None | | always | yes |
| "longer" | GT | the new end is later than the present one | no: nothing is later |
| "shorter" | LT | the new end is earlier than the present one | yes, if the new end is an instant |
| "has_ttl" | XX | the row has an end | no |
| "no_ttl" | NX | the row has no end | yes |

This module must not know a clock, nor how a row stores its lifetime.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, Literal, get_args

from ttl_odm.core.expiry import earlier, latest_end
from ttl_odm.core.policy import TTL
from ttl_odm.core.values import MAX_TTL, row_ttl, short_repr
from ttl_odm.errors import InvalidTTL, TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.core.policy import Policy

EARLIEST_NOW: Final = datetime(2026, 1, 1, tzinfo=timezone.utc)
"""An instant before any database's now.

An end that the longest ttl reaches from here is in reach now too: no database need be asked.
"""

_LONGEST: Final = timedelta(seconds=MAX_TTL)
_IN_REACH: Final = EARLIEST_NOW + _LONGEST

# Some days inside the range of datetime, since zones, days and coarser columns shift instants.
_FIRST_END: Final = datetime(1, 1, 4, tzinfo=timezone.utc)
_LAST_END: Final = datetime(9999, 12, 28, tzinfo=timezone.utc)

OnlyIf = Literal["longer", "shorter", "has_ttl", "no_ttl"]
"""The condition for changing a lifetime; the module's docstring has a table."""


def check_only_if(only_if: OnlyIf | None) -> None:
    """Raise TTLConfigurationError for an invalid condition."""
    if only_if is not None and only_if not in get_args(OnlyIf):
        choices = ", ".join(map(repr, get_args(OnlyIf)))
        raise TTLConfigurationError(f"only_if={short_repr(only_if)}: give {choices} or None.")


def grants(only_if: OnlyIf | None, present: datetime | None, new: datetime | None) -> bool:
    """Return whether a condition allows changing a row's end.

    Both ends are aware, and None means never; the new one is already limited (`limited_end`).
    """
    check_only_if(only_if)
    if only_if == "longer":
        return present is not None and (new is None or new > present)
    if only_if == "shorter":
        return new is not None and (present is None or new < present)
    if only_if == "has_ttl":
        return present is not None
    return only_if is None or present is None


def limited_end(policy: Policy, created: object, end: datetime | None) -> datetime | None:
    """Return a requested end, limited by the policy's `TTL.max_lifetime`.

    Ends are aware, and None means never; `created` is the value of the policy's field of that name.
    """
    return earlier(end, latest_end(policy, created)) if isinstance(policy, TTL) else end


def is_recent(last: datetime, now: datetime, at_most_every: float | timedelta) -> bool:
    """Return whether the last write is too recent for another touch.

    `now` is the database's, or an upper bound of it; both are aware, or both are naive.
    """
    return now - last < interval(at_most_every)


def interval(at_most_every: float | timedelta) -> timedelta:
    """Read ``at_most_every``: the seconds, or timedelta, that must pass between two touches."""
    duration = at_most_every
    try:
        if not isinstance(duration, timedelta):
            duration = timedelta(seconds=duration)
    except (TypeError, OverflowError, ValueError):  # the last one: NaN
        duration = timedelta(0)
    if isinstance(at_most_every, bool) or duration <= timedelta(0):
        raise TTLConfigurationError(
            f"at_most_every={short_repr(at_most_every)}: give seconds or a timedelta greater "
            "than 0."
        )
    return duration


def life_seconds(life: float | timedelta, *, where: str) -> int:
    """Return the life that ``expire_in`` gives a row, in seconds; `where` is the model and field.

    A life of 0 or less is 0, so that the row expires with the write. A number that isn't whole, or
    is over `MAX_TTL`, raises `InvalidTTL`.
    """
    seconds: object = life.total_seconds() if isinstance(life, timedelta) else life
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds <= 0:
        return 0
    whole = row_ttl(life, where=where)
    if whole is None:
        raise InvalidTTL(f"{where}: expire_in(None): give seconds, or call inherit_ttl().")
    return whole


def end_instant(
    instant: datetime, *, where: str, now: Callable[[], datetime] | None = None
) -> datetime:
    """Return the argument of ``expire_at`` in UTC; raise `InvalidTTL` if no row can hold it.

    Args:
        instant: An aware datetime. One in the distant past may become another past instant.
        where: The model and the field.
        now: Returns the database's now. It is called for distant instants only, which the row's
            ttl might not reach; None for a row whose column holds the instant itself.
    """
    other: object = instant
    if not isinstance(other, datetime):
        raise InvalidTTL(
            f"{where}: expire_at({short_repr(other)}): give an aware datetime; for a row that "
            "never expires call persist()."
        )
    if instant.utcoffset() is None:
        raise InvalidTTL(
            f"{where}: expire_at({instant!r}): a naive datetime is ambiguous; add "
            "tzinfo=datetime.timezone.utc if it is UTC."
        )
    if instant < _FIRST_END:
        return _FIRST_END
    too_far = f"after {_LAST_END:%Y-%m-%d}" if instant > _LAST_END else None
    if now is not None and instant > _IN_REACH and instant > now() + _LONGEST:
        too_far = f"more than {MAX_TTL} seconds (68 years) from now"
    if too_far is not None:
        raise InvalidTTL(
            f"{where}: expire_at({instant!r}) is {too_far}; for a row that never expires call "
            "persist()."
        )
    return instant.astimezone(timezone.utc)


def seconds_until(instant: datetime, now: datetime) -> int:
    """Return the own ttl that ``expire_at`` stores, for databases that don't compute it in SQL.

    These are the whole seconds from the database's now to the instant, rounded up; at least 1.
    """
    return min(MAX_TTL, max(1, -((now - instant) // timedelta(seconds=1))))

"""When a wish to change a row's end of life is granted.

Redis knows these as the flags of EXPIRE: GT, LT, XX and NX. An end of None is "never" and counts
as later than any instant, as a key without a ttl does there:

| ``only_if`` | Redis | granted when | a row that never expires |
|---|---|---|---|
| None | | always | yes |
| "longer" | GT | the new end is later than the present one | no: nothing is later |
| "shorter" | LT | the new end is earlier than the present one | yes, if the new end is an instant |
| "has_ttl" | XX | the row has an end | no |
| "no_ttl" | NX | the row has none | yes |

This module must not know a clock, nor how a row stores its lifetime.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal, get_args

from ttl_odm.core.values import shown
from ttl_odm.errors import TTLConfigurationError

OnlyIf = Literal["longer", "shorter", "has_ttl", "no_ttl"]
"""On which condition a lifetime is changed; the module's docstring has a table."""


def grants(only_if: OnlyIf | None, present: datetime | None, new: datetime | None) -> bool:
    """Say whether a change of a row's end is wished for.

    Args:
        only_if: The condition; None for none.
        present: The row's end as it is (aware), None for never.
        new: The end that it would have, None for never.

    Raises:
        TTLConfigurationError: The condition is none of those that there are.
    """
    if only_if is None:
        return True
    if only_if == "longer":
        return present is not None and (new is None or new > present)
    if only_if == "shorter":
        return new is not None and (present is None or new < present)
    if only_if == "has_ttl":
        return present is not None
    if only_if == "no_ttl":
        return present is None
    raise TTLConfigurationError(
        f"only_if={shown(only_if)}: give {', '.join(map(repr, get_args(OnlyIf)))} or None."
    )


def is_recent(last: datetime, now: datetime, at_most_every: float | timedelta) -> bool:
    """Say whether the last write is too young for another touch.

    Args:
        last: The row's last modification (aware).
        now: The database's clock (aware), or an upper bound of it.
        at_most_every: Seconds, or a timedelta, that have to lie between two touches.

    Raises:
        TTLConfigurationError: That is no positive duration.
    """
    return now - last < interval(at_most_every)


def interval(at_most_every: float | timedelta) -> timedelta:
    """Read ``at_most_every``; raises as `is_recent` does."""
    if isinstance(at_most_every, timedelta):
        given = at_most_every
    elif isinstance(at_most_every, bool) or not isinstance(at_most_every, (int, float)):
        given = timedelta(0)
    else:
        try:
            given = timedelta(seconds=at_most_every)
        except (OverflowError, ValueError):  # the last one: NaN
            given = timedelta(0)
    if given <= timedelta(0):
        raise TTLConfigurationError(
            f"at_most_every={shown(at_most_every)}: give seconds or a timedelta of more than 0."
        )
    return given

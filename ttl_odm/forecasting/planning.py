"""What is planned: another default for a policy, as somebody has typed it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ttl_odm.core.policy import ExpireAfter, ExpireAt
from ttl_odm.core.values import default_ttl
from ttl_odm.errors import InvalidTTL
from ttl_odm.forecasting.forecast import AGES, AHEAD, Forecast
from ttl_odm.inspecting import as_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.core.policy import Policy
    from ttl_odm.forecasting.forecast import Measured

OPTION: Final = "--default-ttl"
"""How command lines call it."""

HELP: Final = (
    "The default that is planned: seconds, -1 (rows never expire by default), or off. Without it, "
    "only what expires as things are."
)

_OFF: Final = ("off", "none")


def planned_policy(current: Policy, default: str | None) -> Policy | None:
    """Return the same policy with another default.

    Args:
        current: The policy as it is.
        default: Seconds, "-1" or "off"; None where nothing is planned.

    Raises:
        InvalidTTL: It is none of these, or the policy has no default.
    """
    if default is None:
        return None
    where = f"{OPTION} {default}"
    if isinstance(current, ExpireAt):
        message = f"{where}: {as_source(current)} has no default; each row has its end."
        raise InvalidTTL(message)
    try:
        if isinstance(current, ExpireAfter):
            return replace(current, seconds=int(default))
        value = None if default in _OFF else default_ttl(int(default), where=OPTION)
        return current.with_default(value)
    except (ValueError, InvalidTTL) as error:
        also = "" if isinstance(current, ExpireAfter) else ", -1 or off"
        message = f"{where}: give whole seconds from 1 to 2147483647{also}."
        raise InvalidTTL(message) from error


def bounds_for(policy: Policy) -> Sequence[int]:
    """The bounds of the histogram, seconds before now; the instants of `ExpireAt` lie ahead."""
    return AHEAD if isinstance(policy, ExpireAt) else AGES


def forecast_of(
    target: str, model: str, current: Policy, planned: Policy | None, measured: Measured
) -> Forecast:
    """Put together what was counted for a table, by `questions` with the bounds of its policy.

    Args:
        target: The table.
        model: The class's name.
        current: The policy as it is.
        planned: The other one; None when nothing is planned.
        measured: What was counted.
    """
    other = None if planned is None else as_source(planned)
    return Forecast(target, model, as_source(current), other, measured, bounds_for(current))

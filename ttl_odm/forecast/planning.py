"""What is planned: another default, or another policy, as somebody has typed it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ttl_odm.core.policy import TTL, ExpireAfter, ExpireAt
from ttl_odm.core.values import default_ttl
from ttl_odm.errors import InvalidTTL, TTLConfigurationError
from ttl_odm.forecast.forecast import AGES, AHEAD, Forecast
from ttl_odm.forecast.parse import parse_policy
from ttl_odm.inspection import as_source

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.core.policy import Policy
    from ttl_odm.forecast.estimates import Measured

OPTION: Final = "--default-ttl"
POLICY_OPTION: Final = "--policy"
"""How command lines call them."""

HELP: Final = (
    "The default that is planned: seconds, -1 (rows never expire by default), or off. Without it, "
    "only what expires as things are."
)
POLICY_HELP: Final = (
    "The policy that is planned, as it would be declared or as inspect prints it: "
    "'ExpireAt(\"expires_at\")', 'ExpireAfter(\"created_at\", 30 * 86400)', 'TTL(3600, "
    'last_modified="updated_at", override=None)\'.'
)

_OFF: Final = ("off", "none")


def planned_policy(
    current: Policy | None, default: str | None, source: str | None
) -> Policy | None:
    """Return what is planned.

    Args:
        current: The policy as it is; None where there is none.
        default: Seconds, "-1" or "off", for the same policy with another default; or None.
        source: Another policy, see `parse_policy`; or None.

    Raises:
        InvalidTTL: The default is none of these, or the policy has no default.
        TTLConfigurationError: The source can't be read, or both are given, or there is no policy.
    """
    if default is not None and source is not None:
        message = f"{OPTION} and {POLICY_OPTION}: give one of them."
        raise TTLConfigurationError(message)
    if source is not None:
        return parse_policy(source)
    if current is None:
        message = f"it has no policy yet: say one with {POLICY_OPTION}."
        raise TTLConfigurationError(message)
    return None if default is None else _with_default(current, default)


def _with_default(current: Policy, default: str) -> Policy:
    where = f"{OPTION} {default}"
    if isinstance(current, ExpireAt):
        message = (
            f"{where}: {as_source(current)} has no default, each row has its end. Say another "
            f"policy with {POLICY_OPTION}."
        )
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


def bounds_for(current: Policy | None, planned: Policy | None) -> Sequence[int]:
    """The bounds of the histogram, seconds before now; the instants of `ExpireAt` lie ahead."""
    return AHEAD if isinstance(_shown(current, planned), ExpireAt) else AGES


def _shown(current: Policy | None, planned: Policy | None) -> Policy:
    """The policy whose field the histogram shows."""
    shown = planned or current
    assert shown is not None  # noqa: S101 (see `planned_policy`)
    return shown


def forecast_of(
    target: str,
    model: str | None,
    current: Policy | None,
    planned: Policy | None,
    measured: Measured,
) -> Forecast:
    """Put together what was counted for a table, by `questions` with the bounds of its policy.

    Args:
        target: The table.
        model: The class's name; None where there is no class.
        current: The policy as it is; None where there is none, and another is planned.
        planned: The other one; None when nothing is planned.
        measured: What was counted.
    """
    shown = _shown(current, planned)
    return Forecast(
        target,
        model or target,
        None if current is None else as_source(current),
        None if planned is None else as_source(planned),
        shown.last_modified if isinstance(shown, TTL) else shown.field,
        measured,
        bounds_for(current, planned),
    )

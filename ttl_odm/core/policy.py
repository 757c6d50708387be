"""What ``__ttl__ = ...`` can declare: `TTL`, `ExpireAfter` and `ExpireAt`.

A policy is an immutable value that is valid once it exists, so that nothing behind it has to
check again: a number of seconds that is no ttl raises `InvalidTTL`, any other slip
`TTLConfigurationError`, with the field, the value and what to write instead.

This module must not know which database the named fields live in, nor whether they exist there;
the adapters check that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from ttl_odm.core.values import MAX_TTL, default_ttl, shown, whole_seconds
from ttl_odm.errors import InvalidTTL, TTLConfigurationError

if TYPE_CHECKING:
    from datetime import timedelta

Values = Literal["strict", "lenient"]
Unit = Literal["s", "ms", "us"]
Null = Literal["never", "expired"]

_INT64_LIMIT = 2**63


@dataclass(frozen=True, slots=True, init=False)
class TTL:
    """A default ttl for the container, and perhaps one of each row's own (the Cosmos DB contract).

    Attributes:
        default: Seconds, -1 (on, but never by default) or None (TTL is off).
        last_modified: The field with the instant of the last modification.
        override: The field with the row's own ttl; None when rows have none.
        never: Stored values of `override` that mean "never", besides -1.
        values: Whether a row's own ttl is checked when it is written ("strict") or stored as
            given ("lenient"); None leaves that to the adapter.
        timezone: What naive datetimes in `last_modified` mean: "UTC", "local" or an IANA name.
        unit: Seconds, milliseconds or microseconds, where `last_modified` holds epoch integers;
            None where it holds datetimes.
    """

    default: int | None
    last_modified: str
    override: str | None
    never: tuple[int, ...]
    values: Values | None
    timezone: str
    unit: Unit | None

    def __init__(  # noqa: PLR0913 (all but the first by keyword)
        self,
        default: int | float | timedelta | None = None,  # noqa: PYI041 (float says: 3600.0 is welcome)
        *,
        last_modified: str = "_ts",
        override: str | None = "ttl",
        never: tuple[int, ...] = (),
        values: Values | None = None,
        timezone: str = "UTC",
        unit: Unit | None = None,
    ) -> None:
        """Check and normalise; see the class for the arguments."""
        _check_field(last_modified, "TTL.last_modified")
        if override is not None:
            _check_field(override, "TTL.override")
        if override == last_modified:
            raise _misdeclared(override, "TTL.override", "name another field than last_modified")
        _check_choice(values, ("strict", "lenient", None), "TTL.values")
        _check_timezone(timezone, "TTL.timezone")
        _check_unit(unit, "TTL.unit")
        _store(
            self,
            default=default_ttl(default, where="TTL.default"),
            last_modified=last_modified,
            override=override,
            never=_never_values(never),
            values=values,
            timezone=timezone,
            unit=unit,
        )

    def with_default(self, value: int | float | timedelta | None) -> TTL:  # noqa: PYI041
        """Return the same policy with another default ttl."""
        return replace(self, default=default_ttl(value, where="TTL.default"))


@dataclass(frozen=True, slots=True, init=False)
class ExpireAfter:
    """A date field plus a number of seconds; writes do not prolong it.

    Attributes:
        field: The field with the instant that the seconds count from.
        seconds: 0..MAX_TTL.
        timezone: What naive datetimes in `field` mean: "UTC", "local" or an IANA name.
        unit: Seconds, milliseconds or microseconds, where `field` holds epoch integers; None
            where it holds datetimes.
    """

    field: str
    seconds: int
    timezone: str
    unit: Unit | None

    def __init__(
        self,
        field: str,
        seconds: int | float | timedelta,  # noqa: PYI041
        *,
        timezone: str = "UTC",
        unit: Unit | None = None,
    ) -> None:
        """Check and normalise; see the class for the arguments."""
        _check_field(field, "ExpireAfter.field")
        _check_timezone(timezone, "ExpireAfter.timezone")
        _check_unit(unit, "ExpireAfter.unit")
        whole = whole_seconds(seconds, lowest=0)
        if whole is None:
            message = (
                f"ExpireAfter.seconds = {shown(seconds)} is no duration: give whole seconds from "
                f"0 to {MAX_TTL} as an int, an integral float or a timedelta."
            )
            raise InvalidTTL(message)
        _store(self, field=field, seconds=whole, timezone=timezone, unit=unit)


@dataclass(frozen=True, slots=True, init=False)
class ExpireAt:
    """A field that holds the instant of expiry itself.

    Attributes:
        field: The field with the instant.
        null: What NULL, or a missing field, means: "never" or "expired".
        timezone: What naive datetimes in `field` mean: "UTC", "local" or an IANA name.
        unit: Seconds, milliseconds or microseconds, where `field` holds epoch integers; None
            where it holds datetimes.
    """

    field: str
    null: Null
    timezone: str
    unit: Unit | None

    def __init__(
        self,
        field: str,
        *,
        null: Null = "never",
        timezone: str = "UTC",
        unit: Unit | None = None,
    ) -> None:
        """Check; see the class for the arguments."""
        _check_field(field, "ExpireAt.field")
        _check_choice(null, ("never", "expired"), "ExpireAt.null")
        _check_timezone(timezone, "ExpireAt.timezone")
        _check_unit(unit, "ExpireAt.unit")
        _store(self, field=field, null=null, timezone=timezone, unit=unit)


Policy = TTL | ExpireAfter | ExpireAt
"""Any of the three."""


def as_policy(declared: object, *, where: str = "__ttl__") -> Policy:
    """Return what ``__ttl__ = declared`` means.

    Args:
        declared: A policy, or a default ttl in any form that `default_ttl` accepts.
        where: The name of the declaration for the error message, such as ``WebSession.__ttl__``.

    Returns:
        The policy itself, or a `TTL` with that default.

    Raises:
        InvalidTTL: When it is neither.
    """
    if isinstance(declared, (TTL, ExpireAfter, ExpireAt)):
        return declared
    return TTL(default_ttl(declared, where=where))


def _store(policy: Policy, **fields: object) -> None:
    # A frozen dataclass with an __init__ of its own: it accepts more types than it stores.
    for name, value in fields.items():
        object.__setattr__(policy, name, value)


def _misdeclared(value: object, where: str, mend: str) -> TTLConfigurationError:
    return TTLConfigurationError(f"{where} = {shown(value)}: {mend}.")


def _check_field(name: object, where: str) -> None:
    if isinstance(name, (tuple, list)) or (isinstance(name, str) and "," in name):
        raise _misdeclared(name, where, "name one field; TTL indexes are single-field")
    if not isinstance(name, str) or not name.strip():
        raise _misdeclared(name, where, "give the name of a field as a str")


def _check_choice(value: object, choices: tuple[str | None, ...], where: str) -> None:
    if value not in choices:
        raise _misdeclared(value, where, "give " + " or ".join(map(repr, choices)))


def _check_unit(value: object, where: str) -> None:
    _check_choice(value, ("s", "ms", "us", None), where)


def _check_timezone(name: object, where: str) -> None:
    if name in ("UTC", "local"):
        return
    mend = "give 'UTC', 'local' or an IANA name such as 'Europe/Paris'"
    if not isinstance(name, str):
        raise _misdeclared(name, where, mend)
    # Here and not above: zoneinfo would double the time that `import ttl_odm` takes.
    from zoneinfo import ZoneInfo  # noqa: PLC0415

    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:  # OSError: a folder of zones ("America")
        mend += " (on a system without time zone data: install tzdata)"
        raise _misdeclared(name, where, mend) from error


def _never_values(values: object) -> tuple[int, ...]:
    if not isinstance(values, (tuple, list)):
        raise _misdeclared(values, "TTL.never", "give a tuple of ints, such as (0,)")
    for value in values:
        is_int = isinstance(value, int) and not isinstance(value, bool)
        if not is_int or not -_INT64_LIMIT <= value < _INT64_LIMIT:
            raise _misdeclared(values, "TTL.never", f"{shown(value)} is no 64-bit int")
    return tuple(int(value) for value in values)

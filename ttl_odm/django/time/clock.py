"""The database's clock, as each of Django's backends spells it, and the forms that instants have.

Everything that differs between PostgreSQL, MariaDB/MySQL and SQLite about *time* is here: how to
ask the server for its now in the form that a column is kept in, and how to go back from it by a
number of seconds. It knows nothing of policies or models.

Columns are kept in one of these forms (`Form`):

* ``instant``: our own column ``_ts``: ``timestamptz`` on PostgreSQL, integer microseconds on
  MariaDB, integer milliseconds on SQLite;
* ``datetime``: what Django's ``DateTimeField`` stores, in UTC;
* ``s``, ``ms``, ``us``: integers since 1970.

PostgreSQL's ``now()`` is the start of the *transaction*: a row written late in a long one would be
born dead. Reads compare with ``statement_timestamp()``; stamps and the predicates of writes use
``clock_timestamp()``, so that a write which waited for a lock judges the row when it writes.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any, Final, Literal

from ttl_odm.errors import TTLConfigurationError

Form = Literal["instant", "datetime", "s", "ms", "us"]

EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)

UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000}
"""So many in a second."""

INSTANT_UNITS: Final = {"mysql": "us", "sqlite": "ms"}
"""The integers that stand for instants where the database has no type that is safe to index."""

# With microseconds, as Django writes its texts: they are compared as such, and .123 is less than
# .123000. Django formats statements with Python's %, so a percent sign is written twice.
_SQLITE_FORMAT: Final = "'%%Y-%%m-%%d %%H:%%M:%%f000'"


def vendor_of(connection: Any) -> str:
    """The database of a connection: ``postgresql``, ``mysql`` (MariaDB too) or ``sqlite``.

    Raises:
        TTLConfigurationError: It is another one. Failing is the only safe answer: a statement
            without the predicate would show expired rows.
    """
    vendor = str(connection.vendor)
    if vendor not in ("postgresql", "mysql", "sqlite"):
        raise TTLConfigurationError(
            f"ttl_odm doesn't support Django's database backend {vendor!r} (alias "
            f"{connection.alias!r}); it supports postgresql, mysql (with MariaDB) and sqlite."
        )
    return vendor


def present(vendor: str, *, writing: bool) -> str:
    """The database's clock as the database spells it; every other text is made of this one.

    Returns:
        A ``timestamptz`` for PostgreSQL, a ``DATETIME(6)`` in UTC for MariaDB, and for SQLite the
        arguments that its functions of time take for an instant.
    """
    if vendor == "postgresql":
        return "clock_timestamp()" if writing else "statement_timestamp()"
    return "UTC_TIMESTAMP(6)" if vendor == "mysql" else "'now'"


def now(connection: Any, form: Form, *, writing: bool = False) -> str:
    """SQL for the database's present instant.

    Args:
        connection: Django's.
        form: In the form of such a column.
        writing: At the moment of the write, rather than at the start of the statement.
    """
    vendor = vendor_of(connection)
    form = _stored_form(vendor, form)
    clock = present(vendor, writing=writing)
    if vendor == "postgresql":
        if form in ("instant", "datetime"):
            return clock
        return f"FLOOR(EXTRACT(EPOCH FROM {clock}) * {UNITS[form]})::bigint"
    if form == "datetime":
        _check_utc(connection)
        return clock if vendor == "mysql" else f"strftime({_SQLITE_FORMAT}, {clock})"
    if vendor == "mysql":
        microseconds = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {clock})"
        return _coarser(microseconds, 1_000_000 // UNITS[form], "DIV")
    milliseconds = f"CAST(ROUND((julianday({clock}) - 2440587.5) * 86400000) AS INTEGER)"
    if form == "us":
        return f"({milliseconds} * 1000)"
    return _coarser(milliseconds, 1_000 // UNITS[form], "/")


def ago(connection: Any, form: Form, seconds: str, *, writing: bool = False) -> str:
    """SQL for the instant that lies so many seconds before the database's now.

    Always a difference, also of no seconds: SQLite searches no index for a bare CAST.

    Args:
        connection: Django's.
        form: In the form of such a column.
        seconds: SQL for a whole number.
        writing: As for `now`.
    """
    moment = now(connection, form, writing=writing)
    vendor = vendor_of(connection)
    form = _stored_form(vendor, form)
    if form in UNITS:
        return f"({moment} - {_times(seconds, UNITS[form])})"
    if vendor == "postgresql":
        # Never a bound interval: a timedelta of a day would have 23 or 25 hours twice a year.
        return f"({moment} - {seconds} * interval '1 second')"
    if vendor == "mysql":
        return f"({moment} - INTERVAL ({seconds}) SECOND)"
    clock = present(vendor, writing=writing)
    return f"strftime({_SQLITE_FORMAT}, {clock}, (-({seconds})) || ' seconds')"


def to_storage(connection: Any, instant: datetime) -> Any:
    """What a driver stores for an aware datetime in a column of the form ``instant``."""
    unit = INSTANT_UNITS.get(vendor_of(connection))
    if unit is None:
        return instant
    return (instant - EPOCH) // timedelta(microseconds=1_000_000 // UNITS[unit])


def from_storage(connection: Any, value: Any) -> datetime | None:
    """The aware datetime, in UTC, of what a driver reads from a column of the form ``instant``."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:  # USE_TZ = False: Django's driver has made it local
            value = value.replace(tzinfo=connection.timezone or _current_timezone())
        aware: datetime = value.astimezone(timezone.utc)
        return aware
    unit = INSTANT_UNITS[vendor_of(connection)]
    return EPOCH + timedelta(microseconds=int(value) * (1_000_000 // UNITS[unit]))


def database_now(connection: Any) -> datetime:
    """The present instant of a database, aware: asks it."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {now(connection, 'instant', writing=True)}".replace("%%", "%"))
        told = from_storage(connection, cursor.fetchone()[0])
    assert told is not None  # noqa: S101 (a clock is never NULL)
    return told


def _stored_form(vendor: str, form: Form) -> Any:
    return INSTANT_UNITS.get(vendor, form) if form == "instant" else form


def _times(seconds: str, factor: int) -> str:
    return seconds if factor == 1 else f"{seconds} * {factor}"


def _coarser(sql: str, factor: int, operator: str) -> str:
    return sql if factor == 1 else f"({sql} {operator} {factor})"


def _check_utc(connection: Any) -> None:
    zone = connection.timezone or _current_timezone()
    if str(zone) != "UTC":
        raise TTLConfigurationError(
            f"The database {connection.alias!r} keeps DateTimeFields in the time zone {zone}, so "
            "an instant in the hour that autumn repeats can't be told from another. ttl_odm "
            "judges DateTimeFields on MariaDB, MySQL and SQLite in UTC only: set USE_TZ = True, "
            "and leave TIME_ZONE out of that database's settings."
        )


def _current_timezone() -> Any:
    from django.utils import timezone as django_timezone  # noqa: PLC0415 (needs settings)

    return django_timezone.get_default_timezone()

"""The database's clock for Django's backends, and the forms that instants have.

`ttl_odm.dialects` knows how each database tells the time; this module converts it to the form of a
column, as Django expects it. It must not know policies or models.

A column has one of these forms (`Form`):

* ``instant``: our own column ``_ts``: ``timestamptz`` on PostgreSQL, integer microseconds on
  MariaDB, integer milliseconds on SQLite;
* ``datetime``: the form of Django's ``DateTimeField``, in UTC;
* ``s``, ``ms``, ``us``: integers since 1970;
* ``s.f``, ``ms.f``, ``us.f``: the same with a fraction, as floats or decimals.
"""

from __future__ import annotations

import functools
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, Literal

from django.utils.timezone import get_default_timezone

from ttl_odm.core.expiry import EARLIEST
from ttl_odm.dialects import EPOCH, Family, family_named
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Expression

    Converter: TypeAlias = Callable[[Any, Expression, BaseDatabaseWrapper], datetime | None]
    """Turns a driver's value into an attribute's, as Django calls it for each row."""

Form = Literal["instant", "datetime", "s", "ms", "us", "s.f", "ms.f", "us.f"]

FRACTIONAL: Final[dict[str, Form]] = {"s": "s.f", "ms": "ms.f", "us": "us.f"}
"""The forms of columns that hold fractions, by unit."""

UNITS: Final = {"s": 1, "ms": 1_000, "us": 1_000_000, "s.f": 1, "ms.f": 1_000, "us.f": 1_000_000}
"""How many of a form's units make a second."""

_LONGEST_INTERVAL: Final = 63_000_000_000
"""Seconds that MariaDB and MySQL can subtract from now: the result is NULL before the year 1."""

_family_named = functools.cache(family_named)


def family_of(connection: BaseDatabaseWrapper) -> Family:
    """Return the family of a connection's database.

    Raises:
        TTLConfigurationError: The database isn't supported. No other answer is safe: a statement
            without the predicate would show expired rows.
    """
    family = _family_named(connection.vendor)
    if family is None:
        raise TTLConfigurationError(
            f"ttl_odm doesn't support Django's database backend {connection.vendor!r} (alias "
            f"{connection.alias!r}); it supports postgresql, mysql (with MariaDB) and sqlite."
        )
    return family


def is_mariadb(connection: BaseDatabaseWrapper) -> bool:
    """Whether the database is MariaDB, which Django's backend ``mysql`` serves too."""
    return bool(getattr(connection, "mysql_is_mariadb", False))


def now(connection: BaseDatabaseWrapper, form: Form, *, writing: bool = False) -> str:
    """Return SQL for the database's present instant, in the form of a column.

    With `writing`, it is the moment of the write, rather than the start of the statement.
    """
    family = family_of(connection)
    if form == "datetime" and connection.vendor != "postgresql":  # whose timestamptz is unambiguous
        zone = connection.timezone or get_default_timezone()
        if str(zone) != "UTC":
            raise TTLConfigurationError(
                f"The database {connection.alias!r} stores DateTimeFields in the time zone "
                f"{zone}, where an hour occurs twice in autumn, so instants in that hour are "
                "ambiguous. On MariaDB, MySQL and SQLite, ttl_odm supports DateTimeFields in UTC "
                "only: set USE_TZ = True, and leave TIME_ZONE out of that database's settings."
            )
    return _in_form(family, family.present(writing=writing), form)


@functools.lru_cache(maxsize=64)  # a handful, except with a test's clock
def _in_form(family: Family, present: str, form: Form) -> str:
    if form == "instant":
        sql = family.instant(present)
    elif form in FRACTIONAL.values():
        sql = f"({family.epoch(present, 1_000_000)} / {1_000_000 // UNITS[form]}e0)"
    else:
        sql = family.date(present) if form == "datetime" else family.epoch(present, UNITS[form])
    return sql.replace("%", "%%")  # Django formats statements with Python's %


def ago(connection: BaseDatabaseWrapper, form: Form, seconds: str, *, writing: bool = False) -> str:
    """Return SQL for the instant so many seconds (SQL for a whole number) before `now`.

    It is always a difference, even for 0 seconds: SQLite uses no index for a bare CAST.
    """
    family, moment = family_of(connection), now(connection, form, writing=writing)
    if form == "datetime":
        return family.date_ago(family.present(writing=writing), seconds).replace("%", "%%")
    second = family.second if form == "instant" else str(UNITS[form])
    is_number = seconds.lstrip("-").isdigit()
    if second.isdigit() and is_number:  # PostgreSQL's product of two would be an int32
        return f"({moment} - {int(seconds) * int(second)})"
    return f"({moment} - {seconds if second == '1' else f'{seconds} * {second}'})"


def within_dates(connection: BaseDatabaseWrapper, form: Form, seconds: str) -> str:
    """Return SQL that limits a number of seconds to what `ago` can subtract."""
    if form == "datetime" and connection.vendor == "mysql":
        return f"LEAST({seconds}, {_LONGEST_INTERVAL})"
    return seconds


def earliest(connection: BaseDatabaseWrapper, form: Form) -> str | None:
    """Return SQL for the first instant of Python's datetime, in the form of a column.

    None if a date in the column can't be earlier.
    """
    family = family_of(connection)
    if form in UNITS:
        return str(round(EARLIEST.timestamp()) * UNITS[form])
    return None if form == "datetime" and family.per_second is not None else family.earliest


def to_storage(connection: BaseDatabaseWrapper, instant: datetime) -> Any:
    """Return the driver's value for an aware datetime, in the form ``instant``."""
    return family_of(connection).to_storage(instant)


def from_storage(connection: BaseDatabaseWrapper, value: datetime | int | None) -> datetime | None:
    """Return the aware datetime, in UTC, of a driver's value in the form ``instant``."""
    if value is None:
        return None
    if not isinstance(value, datetime):
        return family_of(connection).from_storage(int(value))
    if value.tzinfo is None:  # USE_TZ = False: Django's driver has made it local
        value = value.replace(tzinfo=connection.timezone or get_default_timezone())
    return value.astimezone(timezone.utc)


def converters(connection: BaseDatabaseWrapper) -> list[Converter]:
    """Return `from_storage` in the form that Django calls for each row, prepared for speed."""
    family = family_of(connection)
    if family.per_second is None:
        if connection.timezone is timezone.utc:  # then the driver's datetimes are in UTC
            return []
        return [lambda value, _expression, _connection: from_storage(connection, value)]
    return [_of_integers(family.per_second)]


@functools.cache
def _of_integers(per_second: int) -> Converter:
    unit = timedelta(seconds=1) // per_second

    def convert(value: Any, _expression: object, _connection: object) -> datetime | None:
        return None if value is None else EPOCH + int(value) * unit

    return convert


def database_now(connection: BaseDatabaseWrapper) -> datetime:
    """Query a database for its present instant; the datetime is aware."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {now(connection, 'instant', writing=True)}".replace("%%", "%"))
        row: Any = cursor.fetchone()
    present = from_storage(connection, row[0])
    assert present is not None  # noqa: S101 (a clock is never NULL)
    return present

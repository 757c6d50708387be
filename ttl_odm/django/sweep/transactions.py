"""A connection in the sweeper's hands: it waits for locks only briefly.

It is the application's own, of the thread that sweeps, and gets its settings back.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, InterfaceError, connections

from ttl_odm.dialects.mysql import NO_WAIT, SHORT_WAITS
from ttl_odm.dialects.postgresql import milliseconds
from ttl_odm.dialects.sqlite import FILE_WAIT
from ttl_odm.django.time.timestamps import ZONE, is_fixed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from django.db.backends.base.base import BaseDatabaseWrapper

_POSTGRESQL_WAIT: Final = "50ms"
"""How long a statement waits for a row that somebody holds, or for a table."""


@contextmanager
def impatient(
    using: str, timeout: float | None = None, *, row_wait: int | None = None
) -> Iterator[bool]:
    """Let statements wait for locks, and run for `timeout` seconds, only so long.

    Yields whether the clocks of the session never change; see `ttl_odm.django.time.timestamps`.

    `row_wait`: seconds that they wait for a row that somebody holds, if that is to be longer.

    The settings of the session come back at the end. After a failure the connection is closed
    instead: nobody knows what state it is in, and Django makes another. SQLite's is always known.
    """
    connection = connections[using]
    settings: dict[str, Any] = {}
    if connection.vendor == "postgresql":
        settings["lock_timeout"] = _POSTGRESQL_WAIT
        if timeout is not None:
            settings["statement_timeout"] = milliseconds(timeout)
    elif connection.vendor == "mysql":
        settings |= SHORT_WAITS
        if timeout is not None and getattr(connection, "mysql_is_mariadb", False):
            settings["max_statement_time"] = timeout
    else:
        settings["busy_timeout"] = FILE_WAIT
    if row_wait is not None:
        longer = {"lock_timeout": milliseconds(row_wait), "innodb_lock_wait_timeout": row_wait}
        settings |= {name: wait for name, wait in longer.items() if name in settings}
    zone = ZONE if connection.vendor == "mysql" else ()
    before = _read(connection, [*settings, *zone])
    has_fixed_zone = not zone or is_fixed(*(before.pop(name) for name in zone))
    if connection.vendor == "sqlite":  # where the application may let it wait for less
        settings = {name: min(value, before[name]) for name, value in settings.items()}
    _write(connection, settings)
    try:
        yield has_fixed_zone
    except BaseException:
        if connection.vendor == "sqlite":
            _write(connection, before)
        elif not connection.in_atomic_block:  # as in a TestCase, whose end undoes everything
            connection.close()
        raise
    _write(connection, before)


@contextmanager
def at_once(using: str) -> Iterator[None]:
    """Let statements fail at once where somebody holds a row, rather than wait, on MariaDB.

    See `ttl_odm.sqlalchemy.sweep.transactions.at_once`.
    """
    connection = connections[using]
    if not getattr(connection, "mysql_is_mariadb", False):
        yield
        return
    waits = {name: SHORT_WAITS[name] for name in NO_WAIT}
    _write(connection, NO_WAIT)
    try:
        yield
    except Exception:
        with suppress(DatabaseError, InterfaceError):  # it may be lost
            _write(connection, waits)
        raise
    _write(connection, waits)


def _read(connection: BaseDatabaseWrapper, names: Iterable[str]) -> dict[str, Any]:
    form = {"postgresql": "current_setting('{}')", "mysql": "@@{}"}.get(connection.vendor)
    with connection.cursor() as cursor:
        if form is None:
            cursor.execute("PRAGMA busy_timeout")
        else:
            cursor.execute(f"SELECT {', '.join(map(form.format, names))}")
        return dict(zip(names, cursor.fetchone(), strict=True))


def _write(connection: BaseDatabaseWrapper, settings: Mapping[str, Any]) -> None:
    with connection.cursor() as cursor:
        if connection.vendor == "sqlite":
            cursor.execute(f"PRAGMA busy_timeout = {settings['busy_timeout']:d}")
        elif connection.vendor == "postgresql":
            places = ", ".join(f"set_config('{name}', %s, false)" for name in settings)
            cursor.execute(f"SELECT {places}", [*settings.values()])
        else:
            places = ", ".join(f"{name} = %s" for name in settings)
            cursor.execute(f"SET SESSION {places}", [*settings.values()])

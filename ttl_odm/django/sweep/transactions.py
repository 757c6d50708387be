"""The connection of a sweep: how long it waits for locks, and whether its writes are replicated.

It is the application's own connection, that of the sweeping thread. Each setting is restored at the
end, also after an error; where that fails, the connection is closed, and Django opens another.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, InterfaceError, connections, transaction

from ttl_odm.dialects.mysql import NO_WAIT, SHORT_WAITS
from ttl_odm.dialects.postgresql import milliseconds
from ttl_odm.dialects.replication import (
    FIND_ORIGIN,
    GIVE_ORIGIN_BACK,
    MAKE_ORIGIN,
    TAKE_ORIGIN,
    denial,
    unlogged_setting,
)
from ttl_odm.dialects.sqlite import FILE_WAIT
from ttl_odm.django.policy.timestamps import ZONE, is_fixed
from ttl_odm.django.purge.errors import in_short, is_forbidden, is_taken
from ttl_odm.sweeper import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from django.db.backends.base.base import BaseDatabaseWrapper

_POSTGRESQL_WAIT: Final = "50ms"
"""How long a statement waits for a locked row or table."""


@contextmanager
def impatient(
    using: str, timeout: float | None = None, *, row_wait: int | None = None
) -> Iterator[bool]:
    """Limit how long statements wait for locks, and run.

    The settings of the session are restored at the end. After a failure the connection is closed
    instead, because its state is unknown, and Django opens another one. SQLite's state is always
    known.

    Args:
        using: The alias of the database.
        timeout: Seconds that a statement may run; None for no limit.
        row_wait: Seconds that a statement waits for a locked row; None for a short wait.

    Yields:
        Whether the clocks of the session never change; see `ttl_odm.django.policy.timestamps`.
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
    if connection.vendor == "sqlite":  # for which the application may have set a shorter wait
        settings = {name: min(value, before[name]) for name, value in settings.items()}
    _write(connection, settings)
    try:
        yield has_fixed_zone
    except BaseException:
        if connection.vendor == "sqlite":
            _write(connection, before)
        elif not connection.in_atomic_block:  # a TestCase rolls everything back at its end
            connection.close()
        raise
    _write(connection, before)


@contextmanager
def at_once(using: str) -> Iterator[None]:
    """Let statements fail at once if a row is locked, instead of waiting for it, on MariaDB.

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
        with suppress(DatabaseError, InterfaceError):  # the connection may be lost
            _write(connection, waits)
        raise
    _write(connection, waits)


@contextmanager
def unlogged(using: str, *, replicate: bool) -> Iterator[None]:
    """Keep further transactions from being logged for replicas, on MariaDB and MySQL.

    On PostgreSQL that is a property of a transaction: see `under_origin`, whose origin is created
    here if it is missing.
    """
    connection = connections[using]
    if replicate:
        yield
    elif connection.vendor == "mysql":
        is_mariadb = bool(getattr(connection, "mysql_is_mariadb", False))
        name, off = unlogged_setting(is_mariadb=is_mariadb)
        before = _run(connection, f"SELECT @@{name}")
        setting = f"SET SESSION {name} = {{:d}}"
        with _undone(connection, setting.format(off), setting.format(before)):
            yield
    else:
        _make_origin(connection)
        yield


@contextmanager
def under_origin(using: str, *, replicate: bool) -> Iterator[None]:
    """Give everything that a transaction writes the origin, on PostgreSQL.

    See `ttl_odm.sqlalchemy.sweep.transactions.under_origin`.
    """
    connection = connections[using]
    if replicate or connection.vendor != "postgresql":
        yield
        return
    with (
        _undone(connection, TAKE_ORIGIN, GIVE_ORIGIN_BACK),
        transaction.atomic(using=using),
    ):
        yield


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


@contextmanager
def _undone(connection: BaseDatabaseWrapper, do: str, undo: str) -> Iterator[None]:
    """Run a statement, and undo it by another one at the end, or close the connection."""
    is_done = True
    try:
        try:
            with _rights_named(connection):
                _run(connection, do)
        except Exception:
            is_done = False
            raise
        try:
            yield
        except Exception:
            if connection.is_usable():
                _run(connection, undo)
                is_done = False
            raise
        _run(connection, undo)
        is_done = False
    finally:
        if is_done:
            connection.close()


@contextmanager
def _rights_named(connection: BaseDatabaseWrapper) -> Iterator[None]:
    """Replace the driver's error by one that names the missing privilege."""
    try:
        yield
    except DatabaseError as error:
        if not is_forbidden(error):
            raise
        is_postgresql = connection.vendor == "postgresql"
        raise StoreError(denial(in_short(error), is_postgresql=is_postgresql)) from error


def _make_origin(connection: BaseDatabaseWrapper) -> None:
    """Create the origin, unless it exists."""
    if _run(connection, FIND_ORIGIN):
        return
    try:
        with _rights_named(connection), transaction.atomic(using=connection.alias):
            _run(connection, MAKE_ORIGIN)
    except DatabaseError as error:
        if not is_taken(error):  # another sweeper has just created it
            raise


def _run(connection: BaseDatabaseWrapper, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]

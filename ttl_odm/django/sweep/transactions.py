"""The session of a sweep: how long it waits, its time zone, and whether its writes are replicated.

It belongs to the application's own connection, that of the sweeping thread, so a setting doesn't
outlast the sweep: it is restored, or the connection is closed and Django opens another one.
"""

from __future__ import annotations

import re
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, InterfaceError, connections, transaction

from ttl_odm.dialects.family import (
    FIND_ORIGIN,
    GIVE_ORIGIN_BACK,
    MAKE_ORIGIN,
    TAKE_ORIGIN,
    denial,
    unlogged_setting,
)
from ttl_odm.dialects.mysql import ANY_ROWS, NO_WAIT, SHORT_WAITS
from ttl_odm.dialects.postgresql import milliseconds
from ttl_odm.dialects.sqlite import FILE_WAIT
from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.django.purge.errors import in_short, is_forbidden, is_taken
from ttl_odm.django.time.clock import is_mariadb
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import StoreError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding

_POSTGRESQL_WAIT: Final = "50ms"
"""How long a statement waits for a locked row or table."""

_ZONE: Final = ("time_zone", "system_time_zone")
"""The variables of MariaDB and MySQL that hold a session's time zone."""

_FIXED: Final = re.compile(r"[+-]\d\d:\d\d|(Etc/)?UTC")
"""Time zones whose clocks never change."""

_COLUMNS: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
    " AND table_name = %s AND data_type = 'timestamp'"
)


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
        Whether the clocks of the session never change; see `check_timestamps`.
    """
    connection = connections[using]
    settings: dict[str, Any] = {}
    if connection.vendor == "postgresql":
        settings["lock_timeout"] = _POSTGRESQL_WAIT
        if timeout is not None:
            settings["statement_timeout"] = milliseconds(timeout)
    elif connection.vendor == "mysql":
        settings |= SHORT_WAITS | ANY_ROWS
        if timeout is not None and is_mariadb(connection):
            settings["max_statement_time"] = timeout
    else:
        settings["busy_timeout"] = FILE_WAIT
    if row_wait is not None:
        longer = {"lock_timeout": milliseconds(row_wait), "innodb_lock_wait_timeout": row_wait}
        settings |= {name: wait for name, wait in longer.items() if name in settings}
    zone = _ZONE if connection.vendor == "mysql" else ()
    before = _read(connection, [*settings, *zone])
    has_fixed_zone = not zone or _is_fixed(*(before.pop(name) for name in zone))
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


def check_timestamps(binding: Binding, connection: BaseDatabaseWrapper) -> None:
    """Check a session of MariaDB or MySQL for ``TIMESTAMP`` columns in a changing time zone.

    The database converts a ``TIMESTAMP`` to the session's time zone, and Django takes the result
    for UTC. When clocks are put back, two instants look the same, so no statement can distinguish
    the rows, and the sweeper would leave some.

    The columns are those that hold instants or keys, also of models whose rows expire with these.

    Raises:
        TTLConfigurationError: One of them is a ``TIMESTAMP``, and the session's clocks change.
    """
    below = (rule.model for rule in all_rules_below(binding.model))
    for model in (binding.model, *below):
        meta = model._meta
        fields = list(meta.pk_fields)
        if model is binding.model:
            fields.append(binding.stamp)
        _check_session(connection, meta.db_table, {str(field.column) for field in fields})


def _check_session(connection: BaseDatabaseWrapper, table: str, columns: Collection[str]) -> None:
    """Reject a session whose clocks change, if one of the columns is a ``TIMESTAMP``."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(f'@@{name}' for name in _ZONE)}")
        zone, system = cursor.fetchone()
        if _is_fixed(zone, system):
            return
        cursor.execute(_COLUMNS, [table])
        timestamps = sorted({name for (name,) in cursor.fetchall()} & set(columns))
    if timestamps:
        shown = f"SYSTEM ({system})" if zone == "SYSTEM" else zone
        raise TTLConfigurationError(
            f"{table}.{timestamps[0]} is a TIMESTAMP, and sessions of the database "
            f"{connection.alias!r} are in the time zone {shown}, where an hour occurs twice in "
            "autumn, so instants in that hour are ambiguous. Set OPTIONS = {'init_command': \"SET "
            "time_zone = '+00:00'\"} for that database, or make the column a DATETIME."
        )


def _is_fixed(zone: str, system: str) -> bool:
    """Whether the clocks of a session never change.

    Args:
        zone: Its ``time_zone``.
        system: Its ``system_time_zone``, which counts where ``time_zone`` is SYSTEM.
    """
    return _FIXED.fullmatch(system if zone == "SYSTEM" else zone) is not None


@contextmanager
def at_once(using: str) -> Iterator[None]:
    """Let statements fail at once if a row is locked, instead of waiting for it, on MariaDB.

    See `ttl_odm.sqlalchemy.sweep.transactions.at_once`.
    """
    connection = connections[using]
    if not is_mariadb(connection):
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
        name, off = unlogged_setting(is_mariadb=is_mariadb(connection))
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

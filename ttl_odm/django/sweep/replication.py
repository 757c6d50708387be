"""A connection whose writes replicas and subscribers don't hear of, for ``replicate=False``.

It is the application's own, of the thread that sweeps. What is set here is undone at the end, also
after an error, and where it can't be, the connection is closed, and Django makes another.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import DatabaseError, connections, transaction

from ttl_odm.dialects.replication import (
    FIND_ORIGIN,
    GIVE_ORIGIN_BACK,
    MAKE_ORIGIN,
    TAKE_ORIGIN,
    denial,
    unlogged_setting,
)
from ttl_odm.django.purge.errors import in_short, is_forbidden, is_taken
from ttl_odm.sweeper import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper


@contextmanager
def unlogged(using: str, *, replicate: bool) -> Iterator[None]:
    """Let nothing of further transactions be logged for replicas, on MariaDB and MySQL.

    Where a transaction has that for itself (PostgreSQL) see that there is an origin.
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
    """Let all that a transaction writes have the origin, on PostgreSQL.

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


@contextmanager
def _undone(connection: BaseDatabaseWrapper, do: str, undo: str) -> Iterator[None]:
    """Run a statement, and undo it by another at the end, or close the connection."""
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
    """Say which right a user lacks, in place of the driver's error."""
    try:
        yield
    except DatabaseError as error:
        if not is_forbidden(error):
            raise
        is_postgresql = connection.vendor == "postgresql"
        raise StoreError(denial(in_short(error), is_postgresql=is_postgresql)) from error


def _make_origin(connection: BaseDatabaseWrapper) -> None:
    """Make the origin, if there is none yet."""
    if _run(connection, FIND_ORIGIN):
        return
    try:
        with _rights_named(connection), transaction.atomic(using=connection.alias):
            _run(connection, MAKE_ORIGIN)
    except DatabaseError as error:
        if not is_taken(error):  # somebody else has just made it
            raise


def _run(connection: BaseDatabaseWrapper, statement: str) -> Any:
    with connection.cursor() as cursor:
        cursor.execute(statement)
        row = cursor.fetchone() if cursor.description else None
    return row and row[0]

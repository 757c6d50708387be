"""A connection whose writes replicas and subscribers don't hear of, for ``replicate=False``.

An application has its share of the pool that this connection goes back to. What is set here is
undone before that, also after an error, and where it can't be, the connection is closed.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import is_forbidden, is_taken
from ttl_odm.dialects.replication import (
    CHECK_DEFERRED,
    FIND_ORIGIN,
    GIVE_ORIGIN_BACK,
    MAKE_ORIGIN,
    TAKE_ORIGIN,
    denial,
    unlogged_setting,
)
from ttl_odm.sqlalchemy.purge.errors import in_short
from ttl_odm.sweeper import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection


@contextmanager
def unlogged(connection: Connection, *, replicate: bool) -> Iterator[None]:
    """Let nothing of further transactions be logged for replicas, on MariaDB and MySQL.

    Where a transaction has that for itself (PostgreSQL) see that there is an origin: `reading`.
    """
    dialect = connection.dialect
    if replicate:
        yield
    elif dialect.name in MYSQL_FAMILY:
        name, off = unlogged_setting(is_mariadb=bool(getattr(dialect, "is_mariadb", False)))
        with connection.begin():
            before = connection.exec_driver_sql(f"SELECT @@{name}").scalar_one()
        put = partial(_put, connection, name)
        with _undone(connection, partial(put, off), partial(put, before)):
            yield
    else:
        _make_origin(connection)
        yield


@contextmanager
def under_origin(connection: Connection, *, replicate: bool) -> Iterator[None]:
    """Let all that a transaction writes have the origin, on PostgreSQL.

    The origin is the session's, and no rollback gives it back. So that is done before the
    transaction ends: behind a pooler such as PgBouncer the session is another client's after that.
    """
    if replicate or connection.dialect.name != "postgresql":
        yield
        return
    take, give_back = (
        partial(connection.exec_driver_sql, sql) for sql in (TAKE_ORIGIN, GIVE_ORIGIN_BACK)
    )
    # What fails undoes the savepoint, and the transaction goes on until that is done.
    with _undone(connection, take, give_back), connection.begin_nested():
        yield
        connection.exec_driver_sql(CHECK_DEFERRED)


@contextmanager
def _undone(
    connection: Connection, do: Callable[[], object], undo: Callable[[], object]
) -> Iterator[None]:
    """Do something, and undo it at the end, or close the connection."""
    is_done = True
    try:
        try:
            with _rights_named(connection):
                do()
        except Exception:
            is_done = False
            raise
        try:
            yield
        except Exception:
            if not connection.invalidated:
                undo()
                is_done = False
            raise
        undo()
        is_done = False
    finally:
        if is_done:
            connection.invalidate()


@contextmanager
def _rights_named(connection: Connection) -> Iterator[None]:
    """Say which right a user lacks, in place of the driver's error."""
    try:
        yield
    except DBAPIError as error:
        if not is_forbidden(error.orig):
            raise
        is_postgresql = connection.dialect.name == "postgresql"
        raise StoreError(denial(in_short(error), is_postgresql=is_postgresql)) from error


def _put(connection: Connection, name: str, value: int) -> None:
    with connection.begin():
        connection.exec_driver_sql(f"SET SESSION {name} = {value:d}")


def _make_origin(connection: Connection) -> None:
    """Make the origin, if there is none yet."""
    with connection.begin():
        if connection.exec_driver_sql(FIND_ORIGIN).scalar_one():
            return
    try:
        with _rights_named(connection), connection.begin():
            connection.exec_driver_sql(MAKE_ORIGIN)
    except DBAPIError as error:
        if not is_taken(error.orig):  # somebody else has just made it
            raise

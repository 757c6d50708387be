"""A connection in the sweeper's hands: how its transactions are kept short and out of the way.

What is set here ends with the transaction, or is set back before the pool gets the connection.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from sqlalchemy import false

from ttl_odm.sqlalchemy.clock import MYSQL_FAMILY
from ttl_odm.sqlalchemy.deleting import SweepDelete

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Table

_ISOLATION: Final = "READ COMMITTED"

_POSTGRESQL_WAIT: Final = "50ms"
_MYSQL_WAIT: Final = 1
"""How long a statement waits for a row that somebody holds; one second is MySQL's least."""


@contextmanager
def prepared(connection: Connection) -> Iterator[None]:
    """Set a connection fresh from the pool up for the sweeper.

    READ COMMITTED is PostgreSQL's default; on MariaDB and MySQL it leaves the gaps between keys
    unlocked. It also overrules an engine in AUTOCOMMIT, where a batch would be no transaction. The
    pool sets it back.
    """
    dialect = connection.dialect.name
    if dialect == "sqlite":
        yield
    elif dialect in MYSQL_FAMILY:
        with _brief_waits(connection):
            yield
    else:
        connection.execution_options(isolation_level=_ISOLATION)
        yield


@contextmanager
def _brief_waits(connection: Connection) -> Iterator[None]:
    """Let no statement wait long for locks; these databases set that for a session only."""
    with connection.begin():
        # Comes before the isolation: SQLAlchemy doesn't replace a connection that is found lost
        # while that is set.
        wait = connection.exec_driver_sql("SELECT @@innodb_lock_wait_timeout").scalar_one()
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {_MYSQL_WAIT:d}")
    connection.execution_options(isolation_level=_ISOLATION)
    try:
        yield
    except BaseException:
        connection.invalidate()  # nobody knows what state it is in; the pool makes another
        raise
    with connection.begin():
        connection.exec_driver_sql(f"SET SESSION innodb_lock_wait_timeout = {wait:d}")


@contextmanager
def reading(connection: Connection) -> Iterator[None]:
    """Begin a transaction that doesn't wait long for a locked table, and commit it."""
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_POSTGRESQL_WAIT}'")
        yield


@contextmanager
def writing(connection: Connection, table: Table) -> Iterator[None]:
    """The same for a transaction that will delete from a table."""
    with reading(connection):
        if connection.dialect.name == "sqlite":
            # Takes the lock for writing. A transaction that reads first can't get it any more once
            # another has written.
            connection.execute(SweepDelete(table).where(false()))
        yield

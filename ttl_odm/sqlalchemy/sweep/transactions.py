"""A connection in the sweeper's hands: its transactions are short, its errors are the sweeper's.

What is set here ends with the transaction, or is set back before the pool gets the connection.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import false, func, select, true
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.purge.errors import in_short, is_away, is_passing
from ttl_odm.sqlalchemy.purge.statements import SweepDelete
from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Connection, Select, Table

_ISOLATION: Final = "READ COMMITTED"

_POSTGRESQL_WAIT: Final = "50ms"
_MYSQL_WAIT: Final = 1
"""How long a statement waits for a row that somebody holds; one second is MySQL's least."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of SQLAlchemy's, which become their cause."""
    try:
        yield
    except DBAPIError as error:
        kind = TransientStoreError if is_passing(error) else StoreError
        raise (UnreachableStoreError if is_away(error) else kind)(in_short(error)) from error
    except PoolTimeoutError as error:
        raise TransientStoreError(in_short(error)) from error
    except OSError as error:  # asyncpg connects without SQLAlchemy's wrapping
        raise UnreachableStoreError(f"The database can't be reached: {error}") from error


@contextmanager
def prepared(connection: Connection, timeout: float | None = None) -> Iterator[None]:
    """Set a connection fresh from the pool up for the sweeper.

    READ COMMITTED is PostgreSQL's default; on MariaDB and MySQL it leaves the gaps between keys
    unlocked. It also overrules an engine in AUTOCOMMIT, where a batch would be no transaction. The
    pool sets it back. `timeout`: seconds that a statement may take, where that is set for a session
    (MariaDB).
    """
    dialect: Any = connection.dialect
    if dialect.name not in MYSQL_FAMILY:
        if dialect.name != "sqlite":
            connection.execution_options(isolation_level=_ISOLATION)
        yield
        return
    values: dict[str, float] = {"innodb_lock_wait_timeout": _MYSQL_WAIT}
    if timeout is not None and dialect.is_mariadb:  # MySQL limits SELECTs only
        values["max_statement_time"] = timeout
    with connection.begin():
        # Comes before the isolation: SQLAlchemy doesn't replace a connection that is found lost
        # while that is set.
        names = ", ".join(f"@@{name}" for name in values)
        before = connection.exec_driver_sql(f"SELECT {names}").one()
        _set(connection, values)
    connection.execution_options(isolation_level=_ISOLATION)
    try:
        yield
    except BaseException:
        connection.invalidate()  # nobody knows what state it is in; the pool makes another
        raise
    with connection.begin():
        _set(connection, dict(zip(values, before, strict=True)))


def _set(connection: Connection, values: Mapping[str, Any]) -> None:
    """Set what MariaDB and MySQL know for a session only, such as how long to wait for locks."""
    settings = ", ".join(f"{name} = {value}" for name, value in values.items())
    connection.exec_driver_sql(f"SET SESSION {settings}")


@contextmanager
def reading(
    connection: Connection, timeout: float | None = None, *, lazily: bool = False
) -> Iterator[None]:
    """Begin a transaction that doesn't wait long for a locked table, and commit it.

    On PostgreSQL, where both are set for a transaction, a statement may take `timeout` seconds, and
    `lazily` doesn't wait until the commit is safe on disk: after a crash the latest of such
    transactions may not have happened.
    """
    with ExitStack() as ending, connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(_settings(timeout, lazily))
        yield
        ending.enter_context(phase("commit"))


@lru_cache
def _settings(timeout: float | None, lazily: bool) -> Select[Any]:  # noqa: FBT001 (a key)
    """What is set for a transaction, on PostgreSQL."""
    values = {"lock_timeout": _POSTGRESQL_WAIT}
    if timeout is not None:
        values["statement_timeout"] = f"{max(1, round(timeout * 1000))}ms"
    if lazily:
        values["synchronous_commit"] = "off"
    return select(*(func.set_config(name, value, true()) for name, value in values.items()))


@contextmanager
def writing(
    connection: Connection, table: Table, timeout: float | None = None, *, lazily: bool = False
) -> Iterator[None]:
    """The same for a transaction that will delete from a table."""
    with reading(connection, timeout, lazily=lazily):
        if connection.dialect.name == "sqlite":
            # Takes the lock for writing. A transaction that reads first can't get it any more once
            # another has written.
            connection.execute(SweepDelete(table).where(false()))
        yield

"""A connection in the sweeper's hands: its transactions are short, its errors are the sweeper's.

What is set here ends with the transaction, or is set back before the pool gets the connection,
also after an error; where that fails, the connection is closed. That includes what keeps writes
from replicas and subscribers, for ``replicate=False``.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import func, select, true
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import is_forbidden, is_taken
from ttl_odm.dialects.mysql import NO_WAIT, SHORT_WAITS
from ttl_odm.dialects.postgresql import milliseconds
from ttl_odm.dialects.replication import (
    CHECK_DEFERRED,
    FIND_ORIGIN,
    GIVE_ORIGIN_BACK,
    MAKE_ORIGIN,
    TAKE_ORIGIN,
    denial,
    unlogged_setting,
)
from ttl_odm.dialects.sqlite import FILE_WAIT
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.purge.errors import in_short, is_away, is_passing, is_read_only
from ttl_odm.sqlalchemy.purge.removal import depends_on_zone
from ttl_odm.sqlalchemy.purge.statements import lock_defaults, take_file
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.timestamps import UTC, has_timestamp
from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError
from ttl_odm.sweeper.phases import phase
from ttl_odm.sweeper.store import kind_of_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from sqlalchemy import Connection, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.sqlalchemy.policy.bindings import Binding

R = TypeVar("R")
P = ParamSpec("P")

_POSTGRESQL_WAIT: Final = "50ms"
"""How long a statement waits for a row that somebody holds, or for a table."""


async def undivided(dialect: Dialect, work: Awaitable[R]) -> R:
    """Await work; on SQLite to its end, however often our own task is cancelled meanwhile.

    What a driver's thread is in the middle of goes on, and a statement that nobody takes the rows
    of keeps the file locked although its connection is closed. How long it may take is bounded; on
    a server, where it isn't, a connection that is cut frees everything.
    """
    if dialect.name != "sqlite":
        return await work
    task, cancelled = asyncio.ensure_future(work), None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # which nobody will ask for
        raise cancelled
    return task.result()


async def asked(
    engine: AsyncEngine,
    work: Callable[Concatenate[Connection, P], R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a function with a connection of its own, `undivided`; return what it returns."""

    async def ask() -> R:
        async with engine.connect() as connection:
            return await connection.run_sync(work, *args, **kwargs)

    return await undivided(engine.dialect, ask())


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of SQLAlchemy's, which become their cause."""
    try:
        yield
    except DBAPIError as error:
        kind = kind_of_error(
            is_standby=is_read_only(error), is_away=is_away(error), is_passing=is_passing(error)
        )
        raise kind(in_short(error)) from error
    except PoolTimeoutError as error:
        raise TransientStoreError(in_short(error)) from error
    except OSError as error:  # asyncpg connects without SQLAlchemy's wrapping
        raise UnreachableStoreError(f"The database can't be reached: {error}") from error


@contextmanager
def prepared(
    connection: Connection,
    timeout: float | None = None,
    isolation: Any = None,
    settings: Mapping[str, float | str] = MappingProxyType({}),
) -> Iterator[None]:
    """Set a connection fresh from the pool up for the sweeper.

    READ COMMITTED is PostgreSQL's default; on MariaDB and MySQL it leaves the gaps between keys
    unlocked. It also overrules an engine in AUTOCOMMIT, where a batch would not be a transaction.
    It is set back at the end: by `impatient` or the pool. Another `isolation` is for what only
    reads. `timeout`, `settings`: see `impatient`. A connection to a server that takes no writes is
    given up: another server may be at its address by now.
    """
    level: Any = isolation or clock_of(connection.dialect).isolation
    is_setting = connection.dialect.name in MYSQL_FAMILY
    if is_setting:  # SQLAlchemy would send two statements more, and two to set it back
        settings = {**settings, **_isolated(connection.dialect, level)}
    # The isolation comes second: SQLAlchemy doesn't replace a connection that is found lost while
    # that is set.
    with impatient(connection, timeout, settings):
        if connection.dialect.driver == "pg8000":  # It sets that by a statement, which may fail.
            with connection.begin():
                connection.exec_driver_sql("SELECT 1")
        if level is not None and not is_setting:
            compat.isolate(connection, level)
        try:
            yield
        except DBAPIError as error:
            if is_read_only(error) and not connection.invalidated:
                connection.invalidate()
            raise


@contextmanager
def impatient(
    connection: Connection,
    timeout: float | None = None,
    settings: Mapping[str, float | str] = MappingProxyType({}),
) -> Iterator[None]:
    """Let a connection wait for locks only briefly, where that is set for a session.

    The application's own settings come back at the end. PostgreSQL's are for a transaction: see
    `reading`. `timeout`: seconds that a statement may take, where that is set here (MariaDB).
    `settings` are further ones of a session of MariaDB's or MySQL's. Never one within another:
    there the session keeps the application's under fixed names.
    """
    dialect: Any = connection.dialect
    if dialect.name == "sqlite":
        with _busy_for(connection, FILE_WAIT):
            yield
        return
    if dialect.name not in MYSQL_FAMILY:
        yield
        return
    values: dict[str, float | str] = {**SHORT_WAITS, **settings}
    if timeout is not None and dialect.is_mariadb:  # MySQL limits SELECTs only
        values["max_statement_time"] = timeout
    # One statement each way, by variables of the session's own: all values are read, then set.
    kept = [f"@ttl_odm_{name} = @@SESSION.{name}" for name in values]
    back = [f"@@SESSION.{name} = @ttl_odm_{name}" for name in values]
    try:
        session = connection.connection.dbapi_connection
        compat.run_aside(connection, f"SET {', '.join([*kept, *_assigned(values)])}")
        yield
        # Another session, after this one was lost, has the application's settings.
        if not connection.invalidated and connection.connection.dbapi_connection is session:
            _set_back(connection, f"SET {', '.join(back)}")
    except BaseException:
        connection.invalidate()  # nobody knows what state it is in; the pool makes another
        raise


def _set_back(connection: Connection, statement: str) -> None:
    """Give the session its settings back; one that is lost is given up, not what it has done."""
    try:
        compat.run_aside(connection, statement)
    except DBAPIError:
        connection.invalidate()


def _isolated(dialect: Any, level: str) -> dict[str, float | str]:
    """The settings of a session of MariaDB's or MySQL's whose transactions have a level.

    Of the two names MySQL knows the second one only, MariaDB before 11.1 the first one only.
    """
    is_old = dialect.is_mariadb and dialect.server_version_info < (11, 1)
    name = "tx_isolation" if is_old else "transaction_isolation"
    return {name: level.replace(" ", "-"), "autocommit": 0}


def zone_settings(connection: Connection, binding: Binding) -> Mapping[str, str]:
    """The time zone of a session that compares with what it has read of a table's rows."""
    if connection.dialect.name not in MYSQL_FAMILY:
        return {}
    if has_timestamp(binding.columns) or depends_on_zone(connection, binding.table.metadata):
        return {"time_zone": UTC}
    return {}


def has_no_wait(connection: Connection) -> bool:
    """Whether a session may be told not to wait for rows at all."""
    return bool(getattr(connection.dialect, "is_mariadb", False))


@contextmanager
def at_once(connection: Connection) -> Iterator[None]:
    """Let statements fail at once where somebody holds a row, rather than wait, on MariaDB.

    Of a transaction that has rows locked itself. Who waits with those is part of a deadlock as soon
    as their next owner wants one of them, and InnoDB then ends the one that has changed least: not
    the sweeper, but the application. (PostgreSQL lets the sweeper give up long before it looks for
    deadlocks; MySQL's shortest wait is a second.)
    """
    if not has_no_wait(connection):
        yield
        return
    waits = {name: SHORT_WAITS[name] for name in NO_WAIT}
    _set(connection, NO_WAIT)
    try:
        yield
    except Exception:
        if not connection.invalidated:
            _set(connection, waits)
        raise
    _set(connection, waits)


def _set(connection: Connection, values: Mapping[str, Any]) -> None:
    connection.exec_driver_sql(f"SET {', '.join(_assigned(values))}")


def _assigned(values: Mapping[str, Any]) -> list[str]:
    literals = {
        name: f"'{value}'" if isinstance(value, str) else value for name, value in values.items()
    }
    return [f"@@SESSION.{name} = {value}" for name, value in literals.items()]


@contextmanager
def _busy_for(connection: Connection, milliseconds: int) -> Iterator[None]:
    """Let SQLite wait so long for the file, unless the application lets it wait for less.

    By a cursor of the driver's: SQLAlchemy would begin a transaction, which some let lock the file.
    And the connection is never thrown away: a database in memory would go with it.
    """
    cursor = connection.connection.cursor()
    try:
        cursor.execute("PRAGMA busy_timeout")
        (before,) = cursor.fetchone() or (0,)
        if before <= milliseconds:
            yield
            return
        cursor.execute(f"PRAGMA busy_timeout = {milliseconds:d}")
        try:
            yield
        finally:
            if not connection.invalidated:
                cursor.execute(f"PRAGMA busy_timeout = {before:d}")
    finally:
        if not connection.invalidated:  # as after Ctrl-C, which has closed the cursor too
            cursor.close()


@contextmanager
def reading(
    connection: Connection,
    timeout: float | None = None,
    *,
    lazily: bool = False,
    replicate: bool = True,
) -> Iterator[None]:
    """Begin a transaction that doesn't wait long for a locked table, and commit it.

    On PostgreSQL, where these are set for a transaction, a statement may take `timeout` seconds,
    `lazily` doesn't wait until the commit is safe on disk (after a crash the latest of such
    transactions may not have happened), and what is not to `replicate` has an origin.
    """
    try:
        with ExitStack() as ending, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(_settings(timeout, lazily))
            with under_origin(connection, replicate=replicate):
                yield
            ending.enter_context(phase("commit"))
    except DBAPIError:
        # A COMMIT that deferred foreign keys refuse leaves SQLite's transaction open, and what it
        # did in place, while SQLAlchemy takes it for over.
        if connection.dialect.name == "sqlite" and not connection.invalidated:
            connection.connection.rollback()
        raise


@lru_cache
def _settings(timeout: float | None, lazily: bool) -> Select[Any]:  # noqa: FBT001 (a key)
    """What is set for a transaction, on PostgreSQL."""
    values = {"lock_timeout": _POSTGRESQL_WAIT}
    if timeout is not None:
        values["statement_timeout"] = milliseconds(timeout)
    if lazily:
        values["synchronous_commit"] = "off"
    return select(*(func.set_config(name, value, true()) for name, value in values.items()))


def limit_statements(connection: Connection, seconds: float) -> None:
    """Let each further statement of a transaction of PostgreSQL take so many seconds."""
    connection.execute(select(func.set_config("statement_timeout", milliseconds(seconds), true())))


@contextmanager
def writing(  # noqa: PLR0913 (three by keyword)
    connection: Connection,
    table: Table,
    timeout: float | None = None,
    *,
    judged: Iterable[Binding] = (),
    lazily: bool = False,
    replicate: bool = True,
) -> Iterator[None]:
    """The same for a transaction that will delete from a table.

    Rows are `judged` by these policies, whose defaults stay as they are until it ends.
    """
    with reading(connection, timeout, lazily=lazily, replicate=replicate):
        take_file(connection, table)
        try:
            lock_defaults(connection, judged)
        except DBAPIError as error:
            if not is_forbidden(error.orig):
                raise
            raise StoreError(": ".join([in_short(error), *error.detail])) from error
        yield


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

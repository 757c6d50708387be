"""The sweeper's transactions: short waits for locks, and errors of the sweeper's own.

Settings end with the transaction, or are reset before the pool gets the connection, also after an
error; if that fails, the connection is closed. This includes the settings that keep writes from
replicas and subscribers, for ``replicate=False``.

It depends on the connection where a table is (``schema_translate_map``): see `name_of`.
"""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, contextmanager
from functools import lru_cache, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import String, cast, column, func, literal, select, true
from sqlalchemy import table as bare_table
from sqlalchemy.dialects.postgresql import OID, REGCLASS
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import is_forbidden, is_of_asyncpgs_hosts, is_taken
from ttl_odm.dialects.family import (
    CHECK_DEFERRED,
    FIND_ORIGIN,
    GIVE_ORIGIN_BACK,
    MAKE_ORIGIN,
    TAKE_ORIGIN,
    denial,
    unlogged_setting,
)
from ttl_odm.dialects.mysql import ANY_ROWS, NO_WAIT, SHORT_WAITS
from ttl_odm.dialects.postgresql import milliseconds, relation
from ttl_odm.dialects.sqlite import FILE_WAIT
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.purge.errors import in_short, is_away, is_passing, is_read_only
from ttl_odm.sqlalchemy.purge.removal import depends_on_zone, lock_defaults, take_file
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.timestamps import UTC, has_timestamp
from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError
from ttl_odm.sweeper.hooks import phase
from ttl_odm.sweeper.store import kind_of_error

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping

    from sqlalchemy import CTE, ColumnElement, Connection, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.sqlalchemy.policy.bindings import Binding

R = TypeVar("R")
P = ParamSpec("P")

_POSTGRESQL_WAIT: Final = "50ms"
"""How long a statement waits for a locked row or table."""


async def undivided(dialect: Dialect, work: Awaitable[R]) -> R:
    """Await work; on SQLite to its end, even if our own task is cancelled meanwhile.

    The driver's thread continues anyway, and a statement whose rows are not fetched keeps the file
    locked although its connection is closed. The time that this takes is bounded on SQLite. On a
    server it isn't, but closing the connection releases everything there.
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
            task.exception()  # or asyncio logs that it was never retrieved
        raise cancelled
    return task.result()


async def asked(
    engine: AsyncEngine,
    work: Callable[Concatenate[Connection, P], R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Call a function with a connection of its own, `undivided`, and return its result."""

    async def ask() -> R:
        async with engine.connect() as connection:
            return await connection.run_sync(work, *args, **kwargs)

    return await undivided(engine.dialect, ask())


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors instead of SQLAlchemy's, which become their cause."""
    try:
        yield
    except DBAPIError as error:
        kind = kind_of_error(
            is_standby=is_read_only(error), is_away=is_away(error), is_passing=is_passing(error)
        )
        raise kind(in_short(error)) from error
    except PoolTimeoutError as error:
        raise TransientStoreError(in_short(error)) from error
    except Exception as error:  # asyncpg connects without SQLAlchemy's wrapping
        if not (isinstance(error, OSError) or is_of_asyncpgs_hosts(error)):
            raise
        raise UnreachableStoreError(f"The database can't be reached: {error}") from error


@contextmanager
def prepared(
    connection: Connection,
    timeout: float | None = None,
    isolation: str | None = None,
    settings: Mapping[str, float | str] = MappingProxyType({}),
) -> Iterator[None]:
    """Set up a connection fresh from the pool for the sweeper.

    Its isolation is READ COMMITTED: PostgreSQL's default; on MariaDB and MySQL it leaves the gaps
    between keys unlocked. It also overrules an engine in AUTOCOMMIT, where a batch would not be a
    transaction. `impatient` or the pool resets it at the end. Another `isolation` is for
    transactions that only read. `timeout`, `settings`: see `impatient`. A connection to a server
    that takes no writes is invalidated, since another server may have that address by now.
    """
    level = isolation or clock_of(connection.dialect).isolation
    is_setting = connection.dialect.name in MYSQL_FAMILY
    if is_setting:  # SQLAlchemy would send two more statements, and two to reset it
        assert level is not None  # noqa: S101 - each dialect of the family names one
        # MySQL knows only the second name, MariaDB before 11.1 only the first one.
        dialect: Any = connection.dialect
        is_old = dialect.is_mariadb and dialect.server_version_info < (11, 1)
        name = "tx_isolation" if is_old else "transaction_isolation"
        settings = {**settings, name: level.replace(" ", "-"), "autocommit": 0}
    # The isolation comes second: SQLAlchemy doesn't replace a connection that turns out to be lost
    # when the isolation is set.
    with impatient(connection, timeout, settings):
        if connection.dialect.driver == "pg8000":  # sets it by a statement, which may fail
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
    """Let a session wait for locks only briefly, on SQLite, MariaDB and MySQL.

    The application's own settings are restored at the end. PostgreSQL's are set for a transaction:
    see `reading`. Never nest this: MariaDB and MySQL keep the application's settings in session
    variables of fixed names.

    Args:
        connection: The connection.
        timeout: Seconds that a statement may take, on MariaDB.
        settings: Further settings of a session of MariaDB or MySQL.
    """
    dialect: Any = connection.dialect
    if dialect.name == "sqlite":
        with _busy_for(connection, FILE_WAIT):
            yield
        return
    if dialect.name not in MYSQL_FAMILY:
        yield
        return
    values: dict[str, float | str] = {**SHORT_WAITS, **ANY_ROWS, **settings}
    if timeout is not None and dialect.is_mariadb:  # MySQL limits SELECTs only
        values["max_statement_time"] = timeout
    # One statement each way, by session variables: all values are read, then set.
    kept = [f"@ttl_odm_{name} = @@SESSION.{name}" for name in values]
    back = [f"@@SESSION.{name} = @ttl_odm_{name}" for name in values]
    try:
        session = connection.connection.dbapi_connection
        compat.run_aside(connection, f"SET {', '.join([*kept, *_assigned(values)])}")
        yield
        # A new session, after this one was lost, has the application's settings.
        if not connection.invalidated and connection.connection.dbapi_connection is session:
            _set_back(connection, f"SET {', '.join(back)}")
    except BaseException:
        connection.invalidate()  # its state is unknown; the pool makes another one
        raise


def _set_back(connection: Connection, statement: str) -> None:
    """Restore the session's settings; a lost session doesn't undo what it has committed."""
    try:
        compat.run_aside(connection, statement)
    except DBAPIError:
        connection.invalidate()


def zone_settings(connection: Connection, binding: Binding) -> Mapping[str, str]:
    """Return the time zone for a session that compares with values read from a table."""
    if connection.dialect.name not in MYSQL_FAMILY:
        return {}
    if has_timestamp(binding.columns) or depends_on_zone(connection, binding.table.metadata):
        return {"time_zone": UTC}
    return {}


def has_no_wait(connection: Connection) -> bool:
    """Return whether a session can be set not to wait for locked rows at all."""
    return bool(getattr(connection.dialect, "is_mariadb", False))


@contextmanager
def at_once(connection: Connection) -> Iterator[None]:
    """Let statements fail at once at a locked row, rather than wait, on MariaDB.

    For a transaction that has locked rows itself. If it waited, it would be part of a deadlock as
    soon as the other transaction wanted one of these rows, and InnoDB would roll back the one that
    has changed least: not the sweeper, but the application. (On PostgreSQL the sweeper gives up
    long before the server looks for deadlocks; MySQL's shortest wait is a second.)
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


def _set(connection: Connection, values: Mapping[str, object]) -> None:
    connection.exec_driver_sql(f"SET {', '.join(_assigned(values))}")


def _assigned(values: Mapping[str, object]) -> list[str]:
    literals = {
        name: f"'{value}'" if isinstance(value, str) else value for name, value in values.items()
    }
    return [f"@@SESSION.{name} = {value}" for name, value in literals.items()]


@contextmanager
def _busy_for(connection: Connection, milliseconds: int) -> Iterator[None]:
    """Limit the time that SQLite waits for the file, unless the application's limit is shorter.

    Uses a cursor of the driver: SQLAlchemy would begin a transaction, which locks the file for some
    engines. And the connection is never invalidated: a database in memory would be lost with it.
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
        if not connection.invalidated:  # it is after Ctrl-C, which has closed the cursor too
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

    The arguments have an effect on PostgreSQL, where these are set for a transaction.

    Args:
        connection: The connection.
        timeout: Seconds that a statement may take.
        lazily: Don't wait until the commit is safe on disk (a crash may undo the latest of such
            transactions).
        replicate: Whether writes reach replicas; if not, the transaction gets an origin.
    """
    try:
        with ExitStack() as ending, connection.begin():
            if connection.dialect.name == "postgresql":
                connection.execute(_settings(timeout, lazily))
            with under_origin(connection, replicate=replicate):
                yield
            ending.enter_context(phase("commit"))
    except DBAPIError:
        # A COMMIT that deferred foreign keys reject leaves SQLite's transaction and its changes
        # open, while SQLAlchemy takes it for ended.
        if connection.dialect.name == "sqlite" and not connection.invalidated:
            connection.connection.rollback()
        raise


@lru_cache
def _settings(timeout: float | None, lazily: bool) -> Select[Any]:  # noqa: FBT001 (a key)
    """Return the SELECT of the settings for a transaction, on PostgreSQL."""
    values = {"lock_timeout": _POSTGRESQL_WAIT}
    if timeout is not None:
        values["statement_timeout"] = milliseconds(timeout)
    if lazily:
        values["synchronous_commit"] = "off"
    return select(*(func.set_config(name, value, true()) for name, value in values.items()))


def limit_statements(connection: Connection, seconds: float) -> None:
    """Limit the seconds that each further statement of a transaction may take, on PostgreSQL."""
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
    """Begin a transaction like `reading` that will delete from a table, and commit it.

    The defaults of the policies by which rows are `judged` can't change until it ends.
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
    """Keep further transactions out of the log for replicas, on MariaDB and MySQL.

    On PostgreSQL create the origin, which `reading` then sets for each transaction.
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
    """Give everything that a transaction writes the origin, on PostgreSQL.

    The origin belongs to the session, and no rollback resets it. So it is reset before the
    transaction ends: behind a pooler such as PgBouncer, the session may then serve another client.
    """
    if replicate or connection.dialect.name != "postgresql":
        yield
        return
    take, give_back = (
        partial(connection.exec_driver_sql, sql) for sql in (TAKE_ORIGIN, GIVE_ORIGIN_BACK)
    )
    # An error rolls back to the savepoint, so that the transaction can still reset the origin.
    with _undone(connection, take, give_back), connection.begin_nested():
        yield
        connection.exec_driver_sql(CHECK_DEFERRED)


@contextmanager
def _undone(
    connection: Connection, do: Callable[[], object], undo: Callable[[], object]
) -> Iterator[None]:
    """Call `do`, and `undo` at the end; close the connection if that fails."""
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
    """Replace the driver's error for a missing right with one that names the right."""
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
    """Create the origin, if there is none yet."""
    with connection.begin():
        if connection.exec_driver_sql(FIND_ORIGIN).scalar_one():
            return
    try:
        with _rights_named(connection), connection.begin():
            connection.exec_driver_sql(MAKE_ORIGIN)
    except DBAPIError as error:
        if not is_taken(error.orig):  # another sweeper has just created it
            raise


def has_children(connection: Connection, table: Table) -> bool:
    """Return whether PostgreSQL keeps rows of a table in others, so that a `ctid` isn't unique.

    A table that once had children counts, too.
    """
    catalog = bare_table("pg_class", column("oid"), column("relhassubclass"), schema="pg_catalog")
    has = select(catalog.c.relhassubclass).where(catalog.c.oid == regclass(connection, table))
    return bool(connection.execute(has).scalar_one())


def name_of(connection: Connection, table: Table) -> tuple[str | None, str]:
    """Return a table's schema on this connection, None for the connection's own, and its name."""
    return compat.place_of(connection.get_execution_options(), table)


def qualified_name(connection: Connection, table: Table) -> str:
    """Return the table's name on this connection, quoted, as a value."""
    return relation(*name_of(connection, table))


def regclass(connection: Connection, table: Table) -> ColumnElement[object]:
    """Return the table's name as a `regclass`, for PostgreSQL's functions."""
    return cast(literal(qualified_name(connection, table), String()), REGCLASS())


def tree_of(connection: Connection, table: Table) -> CTE:
    """Return the `relid` of a table on PostgreSQL, its partitions, and tables that inherit it.

    PostgreSQL's `pg_partition_tree` has no table that inherits in the old way (INHERITS).
    """
    inherits = bare_table(
        "pg_inherits", column("inhrelid", OID()), column("inhparent", OID()), schema="pg_catalog"
    )
    root = select(cast(regclass(connection, table), OID).label("relid"))
    tree = root.cte("ttl_odm_tree", recursive=True)
    below = select(inherits.c.inhrelid).where(inherits.c.inhparent == tree.c.relid)
    return tree.union(below)

"""Leases in a table, which elect the sweeper of a database by the database's own clock.

A lease is a row of ``ttl_odm_lease``. One conditional UPDATE takes it, which succeeds for exactly
one of any number of callers. The table is created when the first lease is taken, unless it is part
of the application's metadata (`lease_table`) and its migrations.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    MetaData,
    String,
    Table,
    Text,
    and_,
    func,
    literal,
    or_,
    text,
    type_coerce,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.schema import CreateTable
from sqlalchemy.util import greenlet_spawn

from ttl_odm.dialects.errors import is_missing_table
from ttl_odm.sqlalchemy.policy.bindings import KEPT_KEY
from ttl_odm.sqlalchemy.purge.errors import in_short, is_passing
from ttl_odm.sqlalchemy.purge.statements import SweepInsert, SweepSelect, SweepUpdate
from ttl_odm.sqlalchemy.sweep.transactions import (
    impatient,
    prepared,
    qualified_name,
    reading,
    store_errors,
    undivided,
)
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sweeper import Lease, LeaseState, StoreError
from ttl_odm.sweeper.leases import ROW_WAIT

R = TypeVar("R")
P = ParamSpec("P")

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, Update
    from sqlalchemy.ext.asyncio import AsyncEngine

    _Work = Callable[Concatenate["Statements", Connection, P], R]

NAME: Final = "ttl_odm_lease"
_INFO: Final = "ttl_odm_lease"

_POSTGRESQL_WAIT: Final = text(f"SET LOCAL lock_timeout = '{ROW_WAIT}s'")


def lease_table(metadata: MetaData, *, name: str = NAME, schema: str | None = None) -> Table:
    """Add the lease table to a MetaData, so that migrations and ``create_all()`` create it.

    Sweepers whose targets are in that MetaData then keep their leases there.

    Args:
        metadata: The MetaData of the application's models.
        name: The table's name.
        schema: Its schema; None for the connection's own.
    """
    return Table(
        name,
        metadata,
        Column("name", String(200), primary_key=True),
        Column("holder", String(255)),
        Column("acquired_until", LastModified()),
        Column("token", BigInteger, nullable=False),
        Column("paused", Boolean, nullable=False),
        Column("history", Text, nullable=False),
        Column("recorded_at", LastModified()),
        schema=schema,
        info={_INFO: True, KEPT_KEY: True},
    )


def declared_lease_table(metadatas: Iterable[MetaData]) -> Table | None:
    """Return the table that `lease_table` has added to one of them; None without one."""
    tables = (table for metadata in metadatas for table in metadata.tables.values())
    return next((table for table in tables if _INFO in table.info), None)


@cache
def _undeclared() -> Table:
    """Return the lease table outside of any application's MetaData.

    All sweepers share it, since SQLAlchemy caches statements by the tables in them.
    """
    return lease_table(MetaData())


class Statements:
    """The statements of leases, on connections of the caller."""

    def __init__(self, table: Table) -> None:
        self.table = table
        self._was_there = False

    def acquire(
        self,
        connection: Connection,
        name: str,
        holder: str,
        duration: float,
        *,
        seizes: bool = False,
    ) -> Lease | None:
        """Take a lease that is free or has ended; with `seizes` any, since another lock decides.

        It returns the lease's state with the token, which saves the sweeper a read.
        """
        c = self.table.c
        is_free = or_(c.holder.is_(None), c.acquired_until <= _now(connection))
        taking = self._at(name, *([] if seizes else [is_free])).values(
            holder=holder, acquired_until=_until(connection, duration), token=c.token + 1
        )
        if connection.dialect.update_returning:
            row = connection.execute(taking.returning(*self._columns(connection))).one_or_none()
            if row is None:
                self._expect_row(connection, name)
                return None
            state = _state(row)
        elif self._change(connection, name, taking):
            state = self.read(connection, name)
        else:
            return None
        return Lease(name, holder, state.token, duration, state)

    def renew(self, connection: Connection, lease: Lease) -> bool:
        """Extend a lease to its duration from now; return False if it is lost."""
        until = _until(connection, lease.duration)
        return _changes(connection, self._held(lease).values(acquired_until=until))

    def release(self, connection: Connection, lease: Lease) -> None:
        """Release a lease, unless it is lost."""
        _changes(connection, self._held(lease).values(holder=None, acquired_until=None))

    def finish(self, connection: Connection, lease: Lease, history: str) -> bool:
        """Store the history and release the lease; return False if it is lost."""
        changed = self._held(lease).values(
            history=history, recorded_at=_now(connection), holder=None, acquired_until=None
        )
        return _changes(connection, changed)

    def set_paused(self, connection: Connection, name: str, paused: bool) -> None:  # noqa: FBT001
        """Set the flag, also if no sweeper holds the lease."""
        self._change(connection, name, self._at(name).values(paused=paused))

    def record(self, connection: Connection, lease: Lease, history: str) -> bool:
        """Store the history; return False if the lease is lost."""
        changed = self._held(lease).values(history=history, recorded_at=_now(connection))
        return _changes(connection, changed)

    def read(self, connection: Connection, name: str) -> LeaseState:
        """Read the state of a lease."""
        rows: Select[Any] = SweepSelect(*self._columns(connection))
        row = connection.execute(rows.where(self.table.c.name == name)).one_or_none()
        return LeaseState() if row is None else _state(row)

    def _columns(self, connection: Connection) -> tuple[ColumnElement[Any], ...]:
        """Return the columns that `_state` reads."""
        c, now = self.table.c, _now(connection)
        clock = clock_of(connection.dialect)
        left = clock.length(now, type_coerce(c.acquired_until, clock.storage))
        ago = clock.length(type_coerce(c.recorded_at, clock.storage), now)
        return c.holder, c.token, c.paused, c.history, left, ago

    def _at(self, name: str, *criteria: ColumnElement[bool]) -> Update:
        return SweepUpdate(self.table).where(self.table.c.name == name, *criteria)

    def _held(self, lease: Lease) -> Update:
        c = self.table.c
        return self._at(lease.name, and_(c.holder == lease.holder, c.token == lease.token))

    def _change(self, connection: Connection, name: str, update: Update) -> bool:
        """Run an UPDATE of a row; raise _NoRowError if there is none."""
        if _changes(connection, update):
            return True
        self._expect_row(connection, name)
        return False

    def _expect_row(self, connection: Connection, name: str) -> None:
        """Raise _NoRowError if there is no row of this name."""
        c = self.table.c
        if connection.scalar(SweepSelect(c.name).where(c.name == name)) is None:
            raise _NoRowError(name)

    def is_missing(self, connection: Connection) -> bool:
        """Return whether PostgreSQL is known not to have the table.

        It logs each statement that names a missing table as an ERROR. Other databases don't, and
        are not asked; nor is PostgreSQL again once the table was there.
        """
        if self._was_there or connection.dialect.name != "postgresql":
            return False
        name = qualified_name(connection, self.table)
        relation = connection.scalar(SweepSelect(func.to_regclass(name)))
        self._was_there = relation is not None
        return not self._was_there

    def expect_table(self, connection: Connection) -> None:
        """Raise _NoTableError if PostgreSQL is known not to have the table."""
        if self.is_missing(connection):
            raise _NoTableError

    def create(self, connection: Connection) -> None:
        """Create the table, unless another sweeper has just created it.

        If the user may not create tables, the error names the statement.
        """
        try:
            with _writing(connection):
                self.table.create(connection)
        except DBAPIError as error:
            if is_passing(error):
                raise
            with suppress(DBAPIError), connection.begin():
                self.read(connection, "")
                return  # another sweeper has just created it
            ddl = " ".join(str(CreateTable(self.table).compile(dialect=connection.dialect)).split())
            raise StoreError(
                f"This user can't use a table {self.table.fullname} for the sweepers' lease, nor "
                f"create it: {in_short(error)}. Have an administrator run: {ddl}; or sweep with "
                "lease=False, if no other sweeper runs."
            ) from error

    def add(self, connection: Connection, name: str) -> None:
        """Insert a row, unless another sweeper has just inserted it."""
        row = SweepInsert(self.table).values(name=name, token=0, paused=False, history="")
        try:
            with _writing(connection):
                connection.execute(row)
        except IntegrityError:
            return


class _NoRowError(Exception):
    """There is no lease of this name yet."""


class _NoTableError(Exception):
    """There is no table of leases."""


def _now(connection: Connection) -> ColumnElement[object]:
    clock = clock_of(connection.dialect)
    return clock.literal(clock.now_at_write)


def _until(connection: Connection, duration: float) -> ColumnElement[object]:
    clock = clock_of(connection.dialect)
    if clock.per_second is None:
        return _now(connection) + clock.span(literal(duration, Float()))
    return _now(connection) + literal(round(duration * clock.per_second), BigInteger())


def _state(row: Row[Any]) -> LeaseState:
    """Return the state in a row of `Statements._columns`."""
    holder, token, paused, history, left, ago = tuple(row)
    seconds_left = 0.0 if left is None else max(0.0, left)
    return LeaseState(
        holder=holder if seconds_left else None,
        token=token,
        seconds_left=seconds_left if holder else 0.0,
        paused=paused,
        history=history,
        recorded_ago=None if ago is None else max(0.0, ago),
    )


def _changes(connection: Connection, statement: Update) -> bool:
    return connection.execute(statement).rowcount > 0


@contextmanager
def _writing(connection: Connection) -> Iterator[None]:
    with connection.begin():
        if connection.dialect.name == "postgresql":
            connection.execute(_POSTGRESQL_WAIT)
        yield


def _change(
    connection: Connection,
    statements: Statements,
    work: _Work[P, R],
    *args: P.args,
    **kwargs: P.kwargs,
) -> R:
    """Change a lease in a transaction; create the table or the row first if it is missing."""
    made = False
    with prepared(connection, settings={"innodb_lock_wait_timeout": ROW_WAIT}):
        while True:
            try:
                with _writing(connection):
                    if not made:
                        statements.expect_table(connection)
                    return work(statements, connection, *args, **kwargs)
            except _NoRowError as missing:
                statements.add(connection, *missing.args)
            except DBAPIError as error:
                if made or not is_missing_table(error.orig):
                    raise
                statements.create(connection)
                made = True
            except _NoTableError:
                statements.create(connection)
                made = True


class TableLeases:
    """`ttl_odm.sweeper.Leases` in a table, over an `Engine`.

    The table is one made by `lease_table`; None for one with the default name.
    """

    def __init__(self, engine: Engine, table: Table | None = None) -> None:
        self._engine = engine
        self._statements = Statements(_undeclared() if table is None else table)

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `Leases`."""
        return self._run(Statements.acquire, name, holder, duration)

    def renew(self, lease: Lease) -> bool:
        """As in `Leases`."""
        return self._run(Statements.renew, lease)

    def release(self, lease: Lease) -> None:
        """As in `Leases`."""
        self._run(Statements.release, lease)

    def read(self, name: str) -> LeaseState:
        """As in `Leases`: one SELECT, since sweepers read before each batch."""
        with store_errors(), self._engine.connect() as connection, impatient(connection):
            try:
                with reading(connection):
                    if self._statements.is_missing(connection):
                        return LeaseState()
                    return self._statements.read(connection, name)
            except DBAPIError as error:
                if not is_missing_table(error.orig):
                    raise
                return LeaseState()

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (as in the Protocol)
        """As in `Leases`."""
        self._run(Statements.set_paused, name, paused)

    def record(self, lease: Lease, history: str) -> bool:
        """As in `Leases`."""
        return self._run(Statements.record, lease, history)

    def finish(self, lease: Lease, history: str) -> bool:
        """As in `Finishing`."""
        return self._run(Statements.finish, lease, history)

    def _run(self, work: _Work[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        with store_errors(), self._engine.connect() as connection:
            return _change(connection, self._statements, work, *args, **kwargs)


class AsyncTableLeases:
    """`ttl_odm.sweeper.AsyncLeases` in a table, over an `AsyncEngine`: `TableLeases`, awaited."""

    _kind: type[TableLeases] = TableLeases

    def __init__(self, engine: AsyncEngine, table: Table | None = None) -> None:
        self._leases = self._kind(engine.sync_engine, table)
        self._dialect = engine.dialect

    async def _ask(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        return await undivided(self._dialect, greenlet_spawn(partial(call, *args, **kwargs)))

    async def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `Leases`."""
        return await self._ask(self._leases.acquire, name, holder, duration)

    async def renew(self, lease: Lease) -> bool:
        """As in `Leases`."""
        return await self._ask(self._leases.renew, lease)

    async def release(self, lease: Lease) -> None:
        """As in `Leases`."""
        await self._ask(self._leases.release, lease)

    async def read(self, name: str) -> LeaseState:
        """As in `Leases`."""
        return await self._ask(self._leases.read, name)

    async def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (as in the Protocol)
        """As in `Leases`."""
        await self._ask(self._leases.set_paused, name, paused)

    async def record(self, lease: Lease, history: str) -> bool:
        """As in `Leases`."""
        return await self._ask(self._leases.record, lease, history)

    async def finish(self, lease: Lease, history: str) -> bool:
        """As in `Finishing`."""
        return await self._ask(self._leases.finish, lease, history)

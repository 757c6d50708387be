"""Removing expired rows in a transaction: archived if their model says so, and told to its hooks.

A `Removal` takes rows of one table. By one statement, where that suffices: a DELETE, which tells
the rows by RETURNING, or passes them to the archive on PostgreSQL. Otherwise it locks the rows,
copies what has to be copied, and deletes them by their keys.

Writes that displace expired rows come here too: `purge_displaced`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import insert, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.util import await_only

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.policy.tables import key_columns
from ttl_odm.sqlalchemy.purge.errors import in_short, is_passing
from ttl_odm.sqlalchemy.purge.modes import Copy, Mode, mode_of
from ttl_odm.sqlalchemy.purge.orm import Refused, delete_objects
from ttl_odm.sqlalchemy.purge.statements import SweepDelete, is_one_of
from ttl_odm.sqlalchemy.purge.subtables import delete_from_subtables, subtables
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import HookError, Hooks, Purged, TransientStoreError, archive, archive_async
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, ColumnElement, Connection, FromClause, Row, Table
    from sqlalchemy.ext.asyncio import AsyncConnection

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sweeper.hooks import Reason

CHUNK: Final = 500
"""Keys in one statement: well below every database's limit of bound values."""


@dataclass(slots=True)
class Removal:
    """Rows of one table that one transaction purges.

    Attributes:
        connection: The one with that transaction.
        binding: The table.
        hooks: Whom to tell, besides the sink of the model.
        reason: Why the rows go.
        source: Where they are, if not in the binding's table: one of its partitions.
        archived: How many were archived so far.
        restricted: How many were refused one by one, in the mode "orm".
        mode: What the model declares.
    """

    connection: Connection
    binding: Binding
    hooks: Hooks
    reason: Reason = "expired"
    source: Table | None = None
    archived: int = 0
    restricted: int = 0
    mode: Mode = field(init=False)
    _began: float = field(default_factory=time.monotonic)
    _noted: list[Row[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mode = mode_of(self.binding)

    @property
    def takes_statements(self) -> bool:
        """Whether rows can go by one statement, see `by_statement`."""
        mode, dialect = self.mode, self.connection.dialect
        if mode.orm is not None or subtables(self.binding, dialect.name):
            return False
        if mode.copy is not None:
            return dialect.name == "postgresql" and not self._tells
        return dialect.delete_returning or not self._tells

    @property
    def leaves_no_trace(self) -> bool:
        """Whether rows just go: nothing is archived, told, or run for them."""
        mode = self.mode
        return mode.copy is None and mode.orm is None and not self._tells

    @property
    def _table(self) -> Table:
        return self.binding.table if self.source is None else self.source

    @property
    def _dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def _tells(self) -> bool:
        return self.mode.sink is not None or self.hooks.tells(self.binding.table.fullname)

    @property
    def _shows_rows(self) -> bool:
        return self.mode.sink is not None or self.hooks.wants_rows(self.binding.table.fullname)

    def _columns(self) -> list[ColumnElement[Any]]:
        """What has to be known of each row: its key, or all of it, and when that was."""
        table, clock = self._table, clock_of(self.connection.dialect)
        if not self._tells:
            return list(key_columns(table))
        now = clock.literal(clock.now_at_write).label("ttl_odm_as_of")
        return [*(table.c if self._shows_rows else key_columns(table)), now]

    def by_statement(self, statement: SweepDelete) -> int:
        """Remove the rows that a DELETE finds, and return how many."""
        copy = self.mode.copy
        if copy is not None:
            deleted = statement.returning(*self._copied(copy)).cte("deleted")
            moved = select(*deleted.c, *copy.extra.values())
            with phase("archive"):  # and deleted
                count = self._execute(insert(copy.archive).from_select(copy.names, moved))
            self.archived += count
            return count
        if not self._tells:
            return self._execute(statement)
        rows = self.connection.execute(statement.returning(*self._columns())).all()
        self._note(rows)
        return len(rows)

    def by_key(
        self,
        criteria: Sequence[ColumnElement[bool]],
        *,
        limit: int | None = None,
        waits: bool = False,
        chunk: int = CHUNK,
    ) -> int:
        """Lock rows, copy what has to be copied, delete them, and return how many.

        Args:
            criteria: What makes a row one to remove; holds the predicate.
            limit: Rows, at most.
            waits: Wait for rows that somebody holds, instead of leaving them.
            chunk: Keys in one statement.
        """
        keys = list(key_columns(self._table))
        chosen = select(*self._columns()).where(*criteria).limit(limit)
        chosen = chosen.with_for_update(skip_locked=not waits).options(include_expired())
        with phase("find"):
            rows = self.connection.execute(chosen).all()
        remove = self._remove_objects if self.mode.orm else self._remove
        return sum(
            remove(keys, rows[start : start + chunk]) for start in range(0, len(rows), chunk)
        )

    def _remove(self, keys: Sequence[Column[Any]], rows: Sequence[Row[Any]]) -> int:
        """Copy and delete rows that this transaction has locked."""
        connection, table = self.connection, self._table
        held = _values(keys, rows)
        chosen = is_one_of(keys, held)
        self._copy(chosen, len(held))
        root = key_columns(self.binding.table)
        delete_from_subtables(connection, subtables(self.binding, self._dialect), root, held)
        expired = expired_in(connection, self.binding, table)
        deleted = self._execute(SweepDelete(table).where(chosen, expired))
        if self._tells or self.mode.copy is not None:
            _check(deleted, len(held))
        self._note(rows)
        return deleted

    def _remove_objects(self, keys: Sequence[Column[Any]], rows: Sequence[Row[Any]]) -> int:
        """Delete rows that this transaction has locked, through a session."""
        assert self.mode.orm is not None  # noqa: S101 (or this isn't called)
        own = key_columns(self.binding.table)
        try:
            delete_objects(self.connection, self.mode.orm, own, _values(keys, rows))
        except Refused as error:
            if len(rows) > 1 or self.reason == "displaced" or is_passing(error):
                raise
            self.restricted += 1
            return 0
        self._note(rows)
        return len(rows)

    def _copy(self, chosen: ColumnElement[bool], rows: int) -> None:
        copy = self.mode.copy
        if copy is None:
            return
        found = select(*self._copied(copy), *copy.extra.values()).where(chosen)
        moved = insert(copy.archive).from_select(copy.names, found.options(include_expired()))
        try:
            with phase("archive"):
                _check(self._execute(moved), rows)
        except DBAPIError as error:
            if is_passing(error):
                raise
            raise HookError(
                f"The archive {copy.archive.name} didn't take rows of "
                f"{self.binding.table.fullname}: {in_short(error)}"
            ) from error
        self.archived += rows

    def _copied(self, copy: Copy) -> list[ColumnElement[Any]]:
        return [self._table.c[each.key] for each in copy.columns]

    def _note(self, rows: Sequence[Row[Any]]) -> None:
        if self._tells:
            self._noted += rows

    def _execute(self, statement: Any) -> int:
        # SQLAlchemy forgets it for an INSERT unless it is asked.
        options = {"preserve_rowcount": True}
        return self.connection.execute(statement, execution_options=options).rowcount

    def tell(self) -> list[Purged]:
        """Give the rows to the model's sink and tell the hooks of the transaction.

        Returns:
            What the hooks after the commit are to be told.

        Raises:
            HookError: One of them raised.
        """
        if not self._noted:
            return []
        purged = self._purged()
        if self.mode.sink is not None:
            self.archived += purged.count
        if self.connection.dialect.is_async:
            proxy = compat.async_connection(self.connection)
            await_only(self._tell_async(purged, proxy))
        else:
            inside = replace(purged, transaction=self.connection)
            if self.mode.sink is not None:
                archive(self.mode.sink, inside)
            self.hooks.tell(inside)
        return [purged]

    async def _tell_async(self, purged: Purged, connection: AsyncConnection) -> None:
        inside = replace(purged, transaction=connection)
        if self.mode.sink is not None:
            await archive_async(self.mode.sink, inside)
        await self.hooks.tell_async(inside)

    def _purged(self) -> Purged:
        table = self._table
        columns: list[Any] = list(table.c if self._shows_rows else key_columns(table))
        names = [str(each.name) for each in columns]
        places = [columns.index(each) for each in key_columns(table)]
        clock = clock_of(self.connection.dialect)
        return Purged(
            self.binding.table.fullname,
            keys=[tuple(row[place] for place in places) for row in self._noted],
            count=len(self._noted),
            as_of=clock.from_storage(max(row[-1] for row in self._noted)),
            rows=[dict(zip(names, row, strict=False)) for row in self._noted]
            if self._shows_rows
            else None,
            duration=time.monotonic() - self._began,
            reason=self.reason,
        )


def purge_displaced(connection: Connection, binding: Binding, doomed: ColumnElement[bool]) -> int:
    """Delete rows that are in the way of a write, in the write's transaction.

    They are archived like any others, and the hooks of their model that run inside the
    transaction are told. Those after the commit are not: the commit is the application's.

    Args:
        connection: The one that the write is about to use.
        binding: The table.
        doomed: Which rows; holds the predicate.

    Returns:
        How many.

    Raises:
        IntegrityError: A live row refers to one of them, and the foreign key restricts it.
        HookError: A hook or the archive failed.
    """
    removal = Removal(connection, binding, mode_of(binding).hooks, reason="displaced")
    if removal.takes_statements:
        deleted = removal.by_statement(SweepDelete(binding.table).where(doomed))
    else:
        deleted = removal.by_key([doomed], waits=True)
    removal.tell()
    return deleted


def expired_in(
    connection: Connection, binding: Binding, source: FromClause | None = None
) -> ColumnElement[bool]:
    """The predicate for the rows of a table, or of a partition, in a statement that deletes."""
    predicate = Predicate(clock_of(connection.dialect), writing=True)
    return predicate.expired(
        binding, binding.columns_of(binding.table if source is None else source)
    )


def _values(keys: Sequence[Column[Any]], rows: Sequence[Row[Any]]) -> list[tuple[Any, ...]]:
    return [tuple(row._mapping[key] for key in keys) for row in rows]


def _check(done: int, rows: int) -> None:
    """See that rows which were chosen, and locked, were all dealt with."""
    if done != rows:  # somebody raised the default in between
        raise TransientStoreError(f"{rows} rows were chosen, and {done} were there: it is undone.")

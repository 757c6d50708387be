"""Deleting one batch of expired rows: the SQL of the sweeper.

A batch is a short transaction. It reads the next window (`ttl_odm.sqlalchemy.windows` with an
index, `ttl_odm.sqlalchemy.scanning` without) and deletes the window's rows by one statement, which
holds the predicate. Where that meets a row that somebody else holds, the rows of the window are
locked with ``SKIP LOCKED`` and deleted without those that are held, which the next sweep gets: the
sweeper doesn't stand in a queue behind a writer, with its own locks in the way of others.

Everything goes through a `Connection`; asynchronous engines run it by ``run_sync``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import any_, func, select, tuple_
from sqlalchemy.exc import DBAPIError, IntegrityError

from ttl_odm.sqlalchemy import scanning
from ttl_odm.sqlalchemy.clock import MYSQL_FAMILY, clock_of
from ttl_odm.sqlalchemy.connections import writing
from ttl_odm.sqlalchemy.deleting import SweepDelete, in_subquery, is_one_of
from ttl_odm.sqlalchemy.displacing import displace, restricting_children
from ttl_odm.sqlalchemy.faults import is_locked
from ttl_odm.sqlalchemy.joined import delete_from_subtables, subtables
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.windows import PartIndex
from ttl_odm.sweeper import BatchResult, Part

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause, Select

    from ttl_odm.sqlalchemy.binding import Binding, SubBinding
    from ttl_odm.sqlalchemy.windows import Window

_CHUNK: Final = 500
"""Keys in one statement: well below every database's limit of bound values."""


def purge(
    connection: Connection, binding: Binding, part: Part, size: int, resume: Any
) -> BatchResult:
    """Delete one batch; see `ttl_odm.sweeper.Store.purge`."""
    batch = None
    try:
        with writing(connection, binding.table):
            window = _next_window(connection, binding, part, size, resume)
            if window is None or not window.rows:
                return BatchResult(0, window and window.resume)
            subs = subtables(binding, connection.dialect.name)
            batch = _Batch(connection, binding, window, size, subs)
            return batch.delete()
    except DBAPIError as error:
        # Without a window it is the table itself that somebody holds.
        if batch is None or not (is_locked(error) or isinstance(error, IntegrityError)):
            raise
        referred = isinstance(error, IntegrityError)
    with writing(connection, binding.table):
        if referred:
            batch.delete_referring()
        return batch.delete_free()


def _next_window(
    connection: Connection, binding: Binding, part: Part, size: int, resume: Any
) -> Window | None:
    if part is Part.ALL:
        return scanning.next_window(connection, binding, size, resume)
    index = PartIndex(binding, part, clock_of(connection.dialect))
    return index.next_window(connection, size, resume)


@dataclass(frozen=True, slots=True)
class _Batch:
    """So many rows of a window, in a transaction."""

    connection: Connection
    binding: Binding
    window: Window
    size: int
    subs: list[SubBinding]

    @property
    def _dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def _is_crowded(self) -> bool:
        return self.window.rows > self.size

    def delete(self) -> BatchResult:
        """Delete them by what they have in common.

        Raises:
            DBAPIError: Somebody holds one of them, or another row refers to one.
        """
        table, window = self.binding.table, self.window
        statement = SweepDelete(table).where(*window.criteria(table))
        if self.subs:
            return self._result(self._delete_by_key(_CHUNK))
        if not self._is_crowded:
            return BatchResult(self._execute(statement), window.resume)
        if self._dialect in MYSQL_FAMILY:
            limit = {"mysql_limit": self.size, "mariadb_limit": self.size}
            return self._result(self._execute(statement.with_dialect_options(**limit)))
        return self.delete_free()

    def delete_free(self) -> BatchResult:
        """Delete those that nobody holds, one by one."""
        if self.subs:
            return self._result(self._delete_by_key(_CHUNK))
        if self._dialect == "sqlite":
            return self._result(self._delete_selected())
        if self._dialect == "postgresql" and not scanning.has_partitions(
            self.connection, self.binding.table
        ):
            return self._result(self._delete_by_place())
        # On small tables MariaDB prefers to read all rows to looking a few keys up, and waits for
        # those that are held.
        return self._result(self._delete_by_key(1))

    def delete_referring(self) -> None:
        """Delete the expired rows that refer to them, whatever their tables' place in the sweep.

        Their tables are swept first. But rows that are written together expire together, perhaps
        between the sweep of the one table and that of the other.
        """
        table = self.binding.table
        for child, key in restricting_children(table):
            doomed = select(*key.referred_columns).where(*self.window.criteria(table))
            referring = in_subquery(key.columns, doomed.options(include_expired()))
            displace(self.connection, child, referring, above=(table,))

    def _execute(self, statement: SweepDelete) -> int:
        return self.connection.execute(statement).rowcount

    def _free(self, source: FromClause, *columns: ColumnElement[Any]) -> Select[Any]:
        """Lock the rows that nobody holds, and find columns of them; SQLite has no such locks."""
        free = select(*columns).select_from(source).where(*self.window.criteria(source))
        free = free.limit(self.size).with_for_update(skip_locked=True)
        return free.options(include_expired())

    def _delete_by_place(self) -> int:
        """Lock and delete in one statement: PostgreSQL finds a row again by its physical place."""
        table = self.binding.table
        free = self._free(table.alias(), scanning.ctid).scalar_subquery()
        chosen = scanning.ctid == any_(func.array(free))
        return self._execute(SweepDelete(table).where(chosen, self.window.expired(table)))

    def _delete_selected(self) -> int:
        """Select and delete in one statement, on SQLite."""
        table = self.binding.table
        source = table.alias()
        columns = scanning.key_columns(table)
        free = self._free(source, *(source.c[each.key] for each in columns))
        key = columns[0] if len(columns) == 1 else tuple_(*columns)
        return self._execute(SweepDelete(table).where(key.in_(free)))

    def _delete_by_key(self, chunk: int) -> int:
        """Lock, then delete by primary key, with what joined sub-tables hold of the rows."""
        table = self.binding.table
        columns = scanning.key_columns(table)
        keys = self.connection.execute(self._free(table, *columns)).all()
        deleted = 0
        for start in range(0, len(keys), chunk):
            some = keys[start : start + chunk]
            delete_from_subtables(self.connection, self.subs, columns, some)
            delete = SweepDelete(table).where(is_one_of(columns, some))
            deleted += self._execute(delete.where(self.window.expired(table)))
        return deleted

    def _result(self, deleted: int) -> BatchResult:
        if self._is_crowded and deleted == self.size:
            return BatchResult(deleted, self.window.again)
        skipped = 0
        if deleted < self.window.rows:
            table = self.binding.table
            left = select(func.count()).select_from(table).where(*self.window.criteria(table))
            skipped = self.connection.execute(left.options(include_expired())).scalar_one()
        return BatchResult(deleted, self.window.resume, skipped)

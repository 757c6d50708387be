"""Purging one batch of expired rows.

A batch is a short transaction. It reads the next range of rows (`due` with an index, `table_walk`
without) and removes them by one statement, which holds the predicate. Where that meets a row that
somebody holds, or that a foreign key protects, the batch begins anew and is careful: it locks the
rows that are free with ``SKIP LOCKED``, leaves those that others refer to, and deletes the rest.
The sweeper doesn't stand in a queue behind a writer, with its own locks in the way of others, and a
row that can't go doesn't keep others from going.

Everything goes through a `Connection`; asynchronous engines run it by ``run_sync``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sqlalchemy import any_, func, not_, or_, select, tuple_
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.binding import key_columns
from ttl_odm.sqlalchemy.policy.foreign_keys import restricting_children
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.errors import is_locked, is_passing
from ttl_odm.sqlalchemy.purge.removal import CHUNK, Removal, expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepDelete, in_subquery
from ttl_odm.sqlalchemy.sweep import table_walk
from ttl_odm.sqlalchemy.sweep.due import PartIndex, count_rows
from ttl_odm.sqlalchemy.sweep.partitions import Resume, next_in_leaves
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading, writing
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult, HookError, Part, Skip
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.sweep.due import KeyRange
    from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
    from ttl_odm.sweeper import BatchRequest


def purge(
    connection: Connection, binding: Binding, request: BatchRequest, keys: ReferringKeys
) -> BatchResult:
    """Purge one batch by a connection fresh from the pool; see `ttl_odm.sweeper.Store.purge`."""
    table, timeout = binding.table, request.timeout
    batch = None
    with prepared(connection, timeout):
        if request.resume is None:
            keys.forget()
            if not request.force:
                with reading(connection):
                    keys.check(connection, table)
        try:
            try:
                # A purge that a crash undoes is only done again, if nobody heard of it.
                lazily = Removal(connection, binding, request.hooks).leaves_no_trace
                with writing(connection, table, timeout, lazily=lazily):
                    with phase("find"):
                        source, rows = _next_range(connection, binding, request)
                    if rows is None or not rows.rows:
                        return BatchResult(0, rows and rows.resume)
                    batch = _Batch(connection, binding, request, rows, source)
                    return batch.run()
            except (DBAPIError, StaleDataError) as error:
                # Without a range it is the table itself that somebody holds.
                if batch is None or not batch.is_worth_care(error):
                    raise
            with writing(connection, table, timeout):
                again = (connection, binding, request, batch.range, batch.source)
                return _CarefulBatch(*again, keys=keys).run()
        except HookError as error:
            assert batch is not None  # noqa: S101 (there was a batch to report)
            return _left_behind(batch, Skip.HOOK, error)
        except IntegrityError:
            # A foreign key to a row of this range was written a moment ago, or a trigger objects.
            assert batch is not None  # noqa: S101 (see above)
            return _left_behind(batch, Skip.RESTRICTED)


def _next_range(
    connection: Connection, binding: Binding, request: BatchRequest
) -> tuple[Table, KeyRange | None]:
    """Find the next rows, and where they are: in the table, or in one of its partitions."""
    table, resume = binding.table, request.resume

    def next_range(source: Table, resume: Any) -> KeyRange | None:
        if request.part is Part.ALL:
            return table_walk.next_range(connection, binding, source, request.size, resume)
        index = PartIndex(binding, request.part, clock_of(connection.dialect), source)
        return index.next_range(connection, request.size, resume)

    if connection.dialect.name == "postgresql" and isinstance(resume, Resume | None):
        leaf = next_in_leaves(connection, table, resume, next_range)
        if leaf is not None:
            return leaf
    return table, next_range(table, resume)


def _left_behind(batch: _Batch, reason: Skip, failure: HookError | None = None) -> BatchResult:
    with reading(batch.connection, batch.request.timeout):
        rows = batch.count()
    return BatchResult(0, batch.range.resume, skipped={reason: rows}, failure=failure)


@dataclass(slots=True)
class _Batch:
    """The rows of a range, removed by what they have in common."""

    connection: Connection
    binding: Binding
    request: BatchRequest
    range: KeyRange
    source: Table
    removals: list[Removal] = field(init=False)

    def __post_init__(self) -> None:
        removal = Removal(self.connection, self.binding, self.request.hooks, source=self.source)
        self.removals = [removal]

    @property
    def _dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def _is_crowded(self) -> bool:
        return self.range.rows > self.request.size

    def is_worth_care(self, error: Exception) -> bool:
        """Whether some of the rows may go although this came of all of them together."""
        if isinstance(error, (IntegrityError, StaleDataError)) or is_locked(error):
            return True
        # The archive may have refused a row, which only the archive's own statement shows.
        return self.removals[0].mode.copy is not None and not is_passing(error)

    def run(self) -> BatchResult:
        """Remove the rows, and report them; DBAPIError where one is held, or referred to."""
        deleted = self._remove()
        # The rows before those that they referred to.
        purged = [item for removal in reversed(self.removals) for item in removal.report()]
        again = self._is_crowded and deleted == self.request.size
        skips = self._skips() if deleted < self.range.rows and not again else {}
        return BatchResult(
            deleted,
            self.range.again if again else self.range.resume,
            archived=self.removals[0].archived,
            skipped={reason: rows for reason, rows in skips.items() if rows},
            purged=tuple(purged),
        )

    def _remove(self) -> int:
        removal = self.removals[0]
        if not removal.takes_statements:
            return self._remove_by_key(CHUNK)
        statement = SweepDelete(self.source).where(*self.range.criteria(self.source))
        if not self._is_crowded:
            return removal.by_statement(statement)
        if self._dialect in MYSQL_FAMILY:
            limit = {"mysql_limit": self.request.size, "mariadb_limit": self.request.size}
            return removal.by_statement(statement.with_dialect_options(**limit))
        return self._remove_free()

    def _remove_free(self) -> int:
        """Remove those that nobody holds."""
        removal, source, dialect = self.removals[0], self.source, self._dialect
        if removal.takes_statements and dialect == "sqlite":  # select and delete in one statement
            alias, columns = source.alias(), key_columns(source)
            free = self._free(alias, *(alias.c[column.key] for column in columns))
            key = columns[0] if len(columns) == 1 else tuple_(*columns)
            return removal.by_statement(SweepDelete(source).where(key.in_(free)))
        if (
            removal.takes_statements
            and dialect == "postgresql"
            and not table_walk.has_partitions(self.connection, source)
        ):
            # Lock and delete in one: PostgreSQL finds a row again by its physical place.
            free = self._free(source.alias(), table_walk.ctid)
            chosen = table_walk.ctid == any_(func.array(free.scalar_subquery()))
            expired = self.range.expired(source)
            return removal.by_statement(SweepDelete(source).where(chosen, expired))
        # On small tables MariaDB prefers to read all rows to looking a few keys up, and waits for
        # those that are held.
        return self._remove_by_key(1 if dialect in MYSQL_FAMILY else CHUNK)

    def _remove_by_key(self, chunk: int, *others: ColumnElement[bool]) -> int:
        criteria = [*self.range.criteria(self.source), *others]
        return self.removals[0].by_key(criteria, limit=self.request.size, chunk=chunk)

    def _free(self, source: FromClause, *columns: ColumnElement[Any]) -> Select[Any]:
        """Lock the rows that nobody holds, and find columns of them; SQLite has no such locks."""
        free = select(*columns).select_from(source).where(*self.range.criteria(source))
        free = free.limit(self.request.size).with_for_update(skip_locked=True)
        return free.options(include_expired())

    def count(self, *others: ColumnElement[bool]) -> int:
        """Count the expired rows that are in the range now."""
        return count_rows(self.connection, self.source, *self.range.criteria(self.source), *others)

    def _skips(self) -> dict[Skip, int]:
        return {Skip.LOCKED: self.count()}


@dataclass(slots=True)
class _CarefulBatch(_Batch):
    """The rows of a range of which some may have to stay."""

    keys: ReferringKeys = field(kw_only=True)
    _blocked: ColumnElement[bool] | None = None

    def _remove(self) -> int:
        if self.removals[0].mode.orm is not None:
            # Its cascades may see to the rows that refer to these, so nobody knows but by trying.
            return self._remove_by_key(1)
        table = self.binding.table
        self._remove_referring(self.binding, self.range.criteria(table), (table,))
        self._blocked = self.keys.blocks(self.connection, table, self.source)
        if self._blocked is None and self.removals[0].mode.copy is None:
            return self._remove_free()
        # By its key a row is copied and deleted by a statement each, of which one will say what
        # is wrong.
        free = [] if self._blocked is None else [not_(self._blocked)]
        return self._remove_by_key(1 if self._dialect in MYSQL_FAMILY else CHUNK, *free)

    def _remove_referring(
        self, binding: Binding, doomed: Sequence[ColumnElement[bool]], above: tuple[Table, ...]
    ) -> None:
        """Remove expired rows that refer to these, whatever their tables' place in the sweep.

        Their tables are swept first. But rows that are written together expire together, perhaps
        between the sweep of the one table and that of the other.
        """
        for child, key in restricting_children(binding.table):
            removal = Removal(self.connection, child, self.request.hooks)
            if child.table in above[1:] or removal.mode.orm is not None:
                continue
            referred = select(*key.referred_columns).where(*doomed).options(include_expired())
            theirs = [in_subquery(key.columns, referred), expired_in(self.connection, child)]
            if child.table is binding.table:  # a row that refers to itself goes by itself
                pairs = zip(key.columns, key.referred_columns, strict=True)
                theirs.append(or_(*(own != other for own, other in pairs)))
            else:
                self._remove_referring(child, theirs, (*above, child.table))
            blocked = self.keys.blocks(self.connection, child.table)
            free = [] if blocked is None else [not_(blocked)]
            removal.by_key([*theirs, *free], limit=self.request.size)
            self.removals.append(removal)

    def _skips(self) -> dict[Skip, int]:
        rows = self.count()
        restricted = self.removals[0].restricted
        if self._blocked is not None and rows:
            restricted = self.count(self._blocked)
        if restricted:
            self.keys.log(self.connection, self.binding.table)
        return {Skip.RESTRICTED: restricted, Skip.LOCKED: rows - restricted}

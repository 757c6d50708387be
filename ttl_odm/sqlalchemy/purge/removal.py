"""The removal of expired rows in a transaction, which archives and reports them as declared.

A `Removal` removes rows of one table. One statement does it if that suffices: a DELETE, which
returns the rows by RETURNING, or passes them to the archive on PostgreSQL. Otherwise it locks the
rows, copies them to the archive, and deletes them by their keys, or as objects (`orm_deletions`) in
the mode ``"orm"``. A `KeyRange` is the stretch of a table that a sweep removes at once.

The model's declarations are its `Mode`. It is read when rows are purged (`mode_of`), since an
archive may be declared after its model. With joined inheritance a row continues in sub-tables.
These refer to the base's table, so their parts of a row are deleted first: see `subtables`.

The functions at the end lock what such a transaction needs first (`take_file`, `lock_defaults`),
and count rows.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import false, func, insert, inspect, literal_column, select
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.util import await_only

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.mysql import BY_KEY
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import (
    all_subtables,
    binding_of,
    key_columns,
    root_binding_of,
    subtables,
)
from ttl_odm.sqlalchemy.policy.predicate import expired_in, include_expired
from ttl_odm.sqlalchemy.policy.references import remove_dependents, rule_of, rules_below
from ttl_odm.sqlalchemy.purge.archive import Copy
from ttl_odm.sqlalchemy.purge.errors import (
    in_short,
    is_passing,
    kept_by_live_rows,
)
from ttl_odm.sqlalchemy.purge.orm_deletions import delete_objects
from ttl_odm.sqlalchemy.purge.statements import (
    CHUNK,
    PurgeDelete,
    SweepSelect,
    hinted,
    is_one_of,
)
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.timestamps import (
    has_timestamp,
    has_timestamp_key,
    timestamp_tables,
)
from ttl_odm.sweeper import (
    HookError,
    Hooks,
    Purged,
    RefusedError,
    TransientStoreError,
    archive,
    archive_async,
    weight,
)
from ttl_odm.sweeper.hooks import Archive, archive_of, hooks_of, phase, purge_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import ColumnElement, Connection, FromClause, MetaData, Row, Select, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.purge.orm_deletions import Key
    from ttl_odm.sweeper import ArchiveSink
    from ttl_odm.sweeper.hooks import Reason

    Bounds = Callable[[FromClause], list[ColumnElement[bool]]]
    """Conditions for rows of a table, or of an alias of it."""

DELETE: Final = "delete"
ORM: Final = "orm"
PURGES: Final[tuple[Literal["delete", "orm"], ...]] = (DELETE, ORM)
"""The values of ``__ttl_purge__``: ``"orm"`` deletes through a session, with the ORM's cascades and
events."""

_SCOPE: Final = "ttl_odm_scope"
"""The label of a row's scope in the results of statements."""


@dataclass(frozen=True, slots=True)
class Mode:
    """A model's declarations about its expired rows: the archive, and the hooks.

    With `orm` they are deleted through a session, as objects of that class.
    """

    copy: Copy | None = None
    sink: ArchiveSink | None = None
    orm: type | None = None
    hooks: Hooks = field(default_factory=Hooks)


def mode_of(binding: Binding) -> Mode:
    """Read the declarations of a policy's owner; TTLConfigurationError if they don't fit."""
    owner = binding.default.owner
    purge, archive = purge_of(owner, PURGES), archive_of(owner)
    hooks = hooks_of(owner, binding.table.fullname)
    if archive is None:
        return Mode(orm=owner if purge == ORM else None, hooks=hooks)
    where = f"{owner.__name__}.__ttl_archive__"
    if all_subtables(binding):
        raise TTLConfigurationError(
            f"{where}: rows of joined subclasses are spread over several tables, which can't be "
            f"archived; write __ttl_purge__ = {ORM!r}, and archive in an ORM event."
        )
    if purge == ORM:
        from ttl_odm.combinations import combination  # noqa: PLC0415 (only if it is wrong)

        line = combination("sqlalchemy", "archive", "orm")
        raise TTLConfigurationError(f"{where}: {line.reason}; {line.instead}.")
    if isinstance(archive, Archive):
        return Mode(copy=Copy.of(binding, archive, where), hooks=hooks)
    return Mode(sink=archive, hooks=hooks)


def depends_on_zone(connection: Connection, metadata: MetaData) -> bool:
    """Return whether the session's time zone matters for removing rows of a MetaData.

    It does on MariaDB and MySQL if a ``TIMESTAMP`` is in a key, in a column that leads rows to a
    parent, or in a row that is archived; see `ttl_odm.sqlalchemy.time.timestamps`.
    """
    if connection.dialect.name not in MYSQL_FAMILY:
        return False
    tables = timestamp_tables(metadata)
    return (
        has_timestamp_key(tables)
        or any(
            getattr(binding.default.owner, "__ttl_archive__", None) is not None
            for binding in filter(None, map(binding_of, tables))
        )
        or any(has_timestamp(rule.links().own) for rule in filter(None, map(rule_of, tables)))
    )


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A stretch of a table with rows to delete.

    Attributes:
        rows: The largest number of rows that it can have. If that is more than a batch may have,
            the stretch can't be divided, and a part of the rows has to be deleted by count.
        bounds: The conditions of the stretch, for the table or an alias of it.
        expired: The predicate in a DELETE, for the table or an alias of it.
        again: Where the stretch begins.
        resume: Where the next one begins; None if this is the last.
        oldest: For how many seconds the first of the rows has been expired, if `find_due` can't
            know.
    """

    rows: int
    bounds: Bounds
    expired: Callable[[FromClause], ColumnElement[bool]]
    again: object
    resume: object
    oldest: float | None = None

    def criteria(self, source: FromClause) -> list[ColumnElement[bool]]:
        """Return the conditions for rows to delete."""
        return [*self.bounds(source), self.expired(source)]

    def with_bounds(self, more: Bounds | None) -> KeyRange:
        """Return the range of the rows that are within further bounds, too."""
        if more is None:
            return self
        bounds = self.bounds
        return replace(self, bounds=lambda source: [*bounds(source), *more(source)])


@dataclass(slots=True)
class Removal:
    """Rows of one table that one transaction purges.

    Attributes:
        source: The table that has the rows, if not the binding's.
        archived: How many rows were archived so far.
        loaded: The bytes of the rows that came to Python whole.
        undeleted: The keys of rows that the application keeps from being deleted.
        by_scope: The number of expired rows of each scope with a default of its own.
        dependents: The rows of other tables that were removed before these, by table.
    """

    connection: Connection
    binding: Binding
    hooks: Hooks
    reason: Reason = "expired"
    source: Table | None = None
    archived: int = 0
    loaded: int = 0
    undeleted: list[Key] = field(init=False, default_factory=list)
    by_scope: Counter[str] = field(init=False, default_factory=Counter)
    mode: Mode = field(init=False)
    dependents: Counter[str] = field(init=False, default_factory=Counter)
    _began: float = field(default_factory=time.monotonic)
    _noted: list[Row[Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.mode = mode_of(self.binding)

    @property
    def takes_statements(self) -> bool:
        """Whether one statement can remove the rows, see `by_statement`."""
        mode, dialect = self.mode, self.connection.dialect
        if mode.orm is not None or subtables(self.binding, dialect.name):
            return False
        if rules_below(self.binding.table):
            return False
        is_read = self._is_reported or self._has_scopes
        if mode.copy is not None:
            return dialect.name == "postgresql" and not is_read
        return dialect.delete_returning or not is_read

    @property
    def leaves_no_trace(self) -> bool:
        """Whether rows are only deleted: nothing is archived, reported, or run for them."""
        mode = self.mode
        return mode.copy is None and mode.orm is None and not self._is_reported

    @property
    def _table(self) -> Table:
        return self.binding.table if self.source is None else self.source

    @property
    def _is_reported(self) -> bool:
        return self.mode.sink is not None or self.hooks.watches(self.binding.table.fullname)

    @property
    def _needs_rows(self) -> bool:
        return self.mode.sink is not None or self.hooks.wants_rows(self.binding.table.fullname)

    @property
    def _has_scopes(self) -> bool:
        return self.binding.source.scoping is not None and self.reason == "expired"

    def _scope(self) -> list[ColumnElement[Any]]:
        """Return the column with the scope of a row, if that has to be known."""
        scoping = self.binding.source.scoping
        if scoping is None or not self._has_scopes:
            return []
        return [scoping.of_row(self.binding.columns_of(self._table)).label(_SCOPE)]

    def _columns(self) -> list[ColumnElement[Any]]:
        """Return the columns to read of each row: its key, or all of it, and the instant."""
        table, clock = self._table, clock_of(self.connection.dialect)
        if not self._is_reported:
            return [*key_columns(table), *self._scope()]
        now = clock.literal(clock.now_at_write).label("ttl_odm_as_of")
        return [*(table.c if self._needs_rows else key_columns(table)), *self._scope(), now]

    def by_statement(self, statement: PurgeDelete) -> int:
        """Remove the rows that a DELETE finds, and return how many."""
        copy = self.mode.copy
        if copy is not None:
            deleted = statement.returning(*self._copied(copy)).cte("deleted")
            moved = select(*deleted.c, *copy.extra.values())
            with phase("archive"):  # and deleted
                count = self._execute(insert(copy.archive).from_select(copy.names, moved))
            self.archived += count
            return count
        if not self._is_reported:
            return self._count_scopes(statement) if self._has_scopes else self._execute(statement)
        rows = self.connection.execute(statement.returning(*self._columns())).all()
        self._weigh(rows)
        self._note(rows)
        return len(rows)

    def _count_scopes(self, statement: PurgeDelete) -> int:
        """Remove the rows that a DELETE finds, and count them by scope."""
        returning = statement.returning(*self._scope())
        if self.connection.dialect.name != "postgresql":
            scopes = Counter(self.connection.execute(returning).scalars().all())
        else:
            deleted = returning.cte("deleted")
            scope = deleted.c[_SCOPE]
            grouped = select(scope, func.count()).group_by(scope)
            scopes = Counter(dict(self.connection.execute(grouped).all()))
        self.by_scope.update({scope: rows for scope, rows in scopes.items() if scope is not None})
        return scopes.total()

    def by_key(self, rows: Sequence[Row[Any]], *, chunk: int = CHUNK) -> int:
        """Archive chosen rows if needed, delete them, and return how many.

        One statement has `chunk` keys.
        """
        deleted = 0
        for start in range(0, len(rows), chunk):
            some = rows[start : start + chunk]
            self.copy(some)
            deleted += self.delete(some)
        return deleted

    def choose(
        self,
        criteria: Sequence[ColumnElement[bool]],
        *,
        limit: int | None = None,
        waits: bool = False,
    ) -> Sequence[Row[Any]]:
        """Lock rows, and read their columns that have to be known.

        The criteria contain the predicate. With `waits` it waits for locked rows, otherwise it
        skips them.
        """
        chosen = SweepSelect(*self._columns()).where(*criteria).limit(limit)
        if clock_of(self.connection.dialect).locks_rows:
            chosen = chosen.with_for_update(skip_locked=not waits)
        with phase("find"):
            rows = self.connection.execute(chosen).all()
        self._weigh(rows)
        return rows

    def keys(self, rows: Sequence[Row[Any]]) -> list[Key]:
        """Return the primary keys of chosen rows."""
        columns = key_columns(self._table)
        return [tuple(row._mapping[key] for key in columns) for row in rows]  # noqa: SLF001 (it is public)

    def copy(self, rows: Sequence[Row[Any]]) -> None:
        """Copy rows that this transaction has locked to the archive, if there is one."""
        copy = self.mode.copy
        if copy is None:
            return
        chosen = is_one_of(key_columns(self._table), self.keys(rows))
        copied = select(*self._copied(copy), *copy.extra.values()).where(chosen)
        moved = insert(copy.archive).from_select(copy.names, copied.options(include_expired()))
        try:
            with phase("archive"):
                _check(self._execute(moved), len(rows))
        except DBAPIError as error:
            if is_passing(error):
                raise
            raise self.not_archived(copy, error) from error
        self.archived += len(rows)

    def not_archived(self, copy: Copy, error: DBAPIError) -> HookError:
        """Return the error for rows that the archive has rejected."""
        fix = ""
        if isinstance(error, IntegrityError) and not copy.has_own_key:
            fix = (
                ". If the key was used before, the archive needs a primary key of its own to keep "
                "both rows."
            )
        return HookError(
            f"The archive {copy.archive.name} did not accept rows of "
            f"{self.binding.table.fullname}: {in_short(error)}{fix}"
        )

    def delete(self, rows: Sequence[Row[Any]], *, judged: bool = False) -> int:
        """Delete rows that this transaction has locked, and return how many.

        The statement has the predicate, unless the rows are `judged` (then they count as expired,
        whatever was written since) or displaced.
        """
        connection, table, held = self.connection, self._table, self.keys(rows)
        self.dependents += remove_dependents(connection, self.binding, held).rows
        if self.mode.orm is not None:
            stay = self._delete_objects(self.mode.orm, held)
            gone = [row for row, key in zip(rows, held, strict=True) if key not in stay]
            self._note(gone)
            return len(gone)
        for sub in subtables(self.binding, connection.dialect.name):
            own = {root: column for column, root in sub.keys}
            parts = is_one_of([own[key] for key in key_columns(self.binding.table)], held)
            connection.execute(PurgeDelete(sub.table).where(parts))
        statement = PurgeDelete(table).where(is_one_of(key_columns(table), held))
        if is_mysql(connection):
            statement = hinted(statement, connection, BY_KEY)
        if not (judged or self.reason == "displaced"):  # displaced rows were judged when locked
            statement = statement.where(expired_in(connection, self.binding, table))
        deleted = self._execute(statement)
        remaining: list[Key] = []
        if deleted != len(held):  # a cascade from some may have deleted others
            columns = key_columns(table)
            keys = self.connection.execute(SweepSelect(*columns).where(is_one_of(columns, held)))
            remaining = list(map(tuple, keys))
        if judged:
            deleted = len(held) - len(remaining)
        if self._is_reported or self._has_scopes or self.mode.copy is not None:
            _check(deleted, len(held))
        self.undeleted += remaining
        self._note(rows)
        return deleted

    def _delete_objects(self, orm: type, keys: Sequence[Key]) -> set[Key]:
        """Delete rows through a session; return the keys of those that stay."""
        table = self.binding.table
        stay, loaded = delete_objects(self.connection, table, orm, keys, self._check_recorded)
        self.loaded += loaded
        self.undeleted += stay
        if stay and self.reason == "displaced":
            raise HookError(
                f"Expired rows of {table.fullname} block this write, and session.delete() of "
                f"{orm.__name__} doesn't delete them: an ORM event or a do_orm_execute criterion "
                "of the application keeps them."
            )
        return stay

    def _check_recorded(self, deleted: Iterable[object], own: Sequence[object]) -> None:
        """Reject the ORM's cascades to rows that have to be archived or reported to hooks."""
        chosen = set(map(id, own))
        for row in deleted:
            mapper: Any = inspect(type(row))
            binding = root_binding_of(mapper.local_table)
            if binding is None or id(row) in chosen:
                continue
            mode, name = mode_of(binding), binding.table.fullname
            if mode.copy is not None or mode.sink is not None or self.hooks.named.watches(name):
                if self.reason == "displaced":  # then it is live
                    own_name = self.binding.table.fullname
                    raise kept_by_live_rows(self.connection.dialect, own_name, name)
                raise RefusedError(
                    f"rows of {name} that are archived or reported to hooks refer to it, and a "
                    "cascade of the ORM would delete them unarchived and unreported"
                )

    def _copied(self, copy: Copy) -> list[ColumnElement[object]]:
        return [self._table.c[column.key] for column in copy.columns]

    def _weigh(self, rows: Sequence[Row[Any]]) -> None:
        if self._needs_rows:
            self.loaded += sum(map(weight, rows))

    def _note(self, rows: Sequence[Row[Any]]) -> None:
        if self._has_scopes:
            scopes = (row._mapping[_SCOPE] for row in rows)  # noqa: SLF001 (it is public)
            self.by_scope.update(scope for scope in scopes if scope is not None)
        if self._is_reported:
            self._noted += rows

    def _execute(self, statement: Any) -> int:
        # SQLAlchemy drops the row count of an INSERT without this.
        options = {"preserve_rowcount": True}
        return self.connection.execute(statement, execution_options=options).rowcount

    def report(self) -> list[Purged]:
        """Pass the rows to the model's sink, and call the hooks of the transaction.

        Returns what to pass to the hooks after the commit.

        Raises:
            HookError: The sink or a hook raised.
        """
        if not self._noted:
            return []
        purged = self._purged()
        if self.mode.sink is not None:
            self.archived += purged.count

        async def report_async(inside: Purged) -> None:
            if self.mode.sink is not None:
                await archive_async(self.mode.sink, inside)
            await self.hooks.call_async(inside)

        if self.connection.dialect.is_async:
            proxy = compat.async_connection(self.connection)
            await_only(report_async(replace(purged, transaction=proxy)))
        else:
            inside = replace(purged, transaction=self.connection)
            if self.mode.sink is not None:
                archive(self.mode.sink, inside)
            self.hooks.call(inside)
        return [purged]

    def _purged(self) -> Purged:
        table = self._table
        columns: list[Any] = list(table.c if self._needs_rows else key_columns(table))
        names = [str(column.name) for column in columns]
        places = [columns.index(key) for key in key_columns(table)]
        clock = clock_of(self.connection.dialect)
        return Purged(
            self.binding.table.fullname,
            keys=[tuple(row[place] for place in places) for row in self._noted],
            count=len(self._noted),
            as_of=clock.from_storage(max(row[-1] for row in self._noted)),
            rows=[dict(zip(names, row, strict=False)) for row in self._noted]
            if self._needs_rows
            else None,
            duration=time.monotonic() - self._began,
            reason=self.reason,
        )


def _check(done: int, rows: int) -> None:
    """Raise unless all rows that were chosen, and locked, were processed."""
    if done != rows:  # the default was raised in between
        raise TransientStoreError(
            f"{rows} rows were chosen, but {done} were deleted: the batch was rolled back."
        )


def is_mysql(connection: Connection) -> bool:
    """Return whether this is MySQL: MariaDB takes no hints, and can wait for less than a second.

    A dialect of another name that is derived from MySQL's isn't, since its server may differ.
    """
    dialect = connection.dialect
    return dialect.name in MYSQL_FAMILY and not getattr(dialect, "is_mariadb", False)


def take_file(connection: Connection, table: Table) -> None:
    """Take SQLite's write lock before reading the rows to delete.

    With a write-ahead log, others may delete them in between, and a transaction that has read by
    then can't get the lock any more: SQLite doesn't even wait for it.
    """
    if connection.dialect.name == "sqlite":
        connection.execute(PurgeDelete(table).where(false()))


def lock_defaults(
    connection: Connection,
    bindings: Iterable[Binding],
    execute: Callable[[Any], object] | None = None,
) -> None:
    """Keep other transactions from changing the default ttls of tables until this one ends.

    Args:
        connection: The connection of the transaction.
        bindings: The policies of the tables; those whose defaults Python knows are ignored.
        execute: Executes a statement on the connection, with the caller's options.
    """
    sources = {
        binding.first.table: binding.first.source
        for binding in bindings
        if not binding.source.is_known
    }
    if not sources or not clock_of(connection.dialect).locks_rows:
        return
    # Always in the same order, or two transactions deadlock.
    for table in sorted(sources, key=lambda table: str(table.fullname)):
        sources[table].lock(execute or connection.execute)


def count_rows(
    connection: Connection,
    source: FromClause,
    *criteria: ColumnElement[bool],
    limit: int | None = None,
) -> int:
    """Count rows, expired or not, up to a limit."""
    counted = counting(source, *criteria, limit=limit).options(include_expired())
    return int(connection.execute(counted).scalar_one())


def counting(
    source: FromClause,
    *criteria: ColumnElement[bool],
    limit: int | ColumnElement[int] | None = None,
) -> Select[Any]:
    """Return the SELECT that counts rows, up to a limit.

    As a part of another statement it sees the rows that this one sees.
    """
    rows: Select[Any] = select(literal_column("1")).select_from(source).where(*criteria)
    if limit is None:
        return rows.with_only_columns(func.count())
    some = rows.limit(limit).options(include_expired()).subquery()
    return select(func.count()).select_from(some)

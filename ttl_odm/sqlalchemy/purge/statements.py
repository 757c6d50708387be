"""Statements that read, count and delete expired rows past the gate; conditions for rows.

A sweep sends them, and so does a write that displaces the expired rows in its way. The UPDATEs and
INSERTs are for the sweepers' own tables. `lock_defaults` locks the defaults by which a transaction
deletes, if other transactions can change them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Delete,
    Insert,
    Select,
    Update,
    and_,
    false,
    func,
    literal_column,
    or_,
    select,
    tuple_,
)

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from sqlalchemy import Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding

    Bounds = Callable[[FromClause], list[ColumnElement[bool]]]
    """Conditions for rows of a table, or of an alias of it."""

T = TypeVar("T")

CHUNK: Final = 500
"""Keys in one statement: below every database's limit of bound values, and, with keys of several
columns, of SQLite's depth of expressions."""

_STEP: Final = 512


class PurgeDelete(Delete):
    """A DELETE of expired rows; the gate leaves it unchanged.

    It is a class of its own, and so has cache keys of its own.
    """

    inherit_cache = True


def is_mysql(connection: Connection) -> bool:
    """Return whether this is MySQL: MariaDB takes no hints, and can wait for less than a second.

    A dialect of another name that is derived from MySQL's isn't, since its server may differ.
    """
    dialect = connection.dialect
    return dialect.name in MYSQL_FAMILY and not getattr(dialect, "is_mariadb", False)


def hinted(statement: PurgeDelete, connection: Connection, hint: str, **names: str) -> PurgeDelete:
    """Return a DELETE with one of MySQL's hints, in which `{table}` is its target."""
    quote = connection.dialect.identifier_preparer.quote
    target: Any = statement.table  # never a join
    table = quote(target.name)
    # SQLAlchemy would take a word after a colon for a parameter.
    return statement.prefix_with(hint.format(table=table, **names).replace(":", r"\:"))


def take_file(connection: Connection, table: Table) -> None:
    """Take SQLite's write lock before reading the rows to delete.

    With a write-ahead log, others may delete them in between, and a transaction that has read by
    then can't get the lock any more: SQLite doesn't even wait for it.
    """
    if connection.dialect.name == "sqlite":
        connection.execute(PurgeDelete(table).where(false()))


class SweepSelect(Select[Any]):
    """A SELECT of expired rows, which the gate leaves unchanged; its subqueries see live ones."""

    inherit_cache = True


class SweepUpdate(Update):
    """An UPDATE of the sweepers' own tables, which the gate leaves unchanged."""

    inherit_cache = True


class SweepInsert(Insert):
    """An INSERT into the sweepers' own tables, which the gate leaves unchanged."""

    inherit_cache = True


def in_subquery(columns: Sequence[ColumnElement[Any]], rows: Any) -> ColumnElement[bool]:
    """Return the condition that columns have values that a SELECT (without LIMIT) finds."""
    # MySQL can't read the table that the same statement writes. It can read a derived table made
    # of it, unless it merges the two; DISTINCT prevents that.
    wrapped = rows.distinct().subquery()
    return (columns[0] if len(columns) == 1 else tuple_(*columns)).in_(select(*wrapped.c))


def chunks(rows: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Divide rows or keys into parts for a statement each."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def is_one_of(
    columns: Sequence[ColumnElement[Any]], keys: Iterable[Sequence[Any]]
) -> ColumnElement[bool]:
    """Return the condition for the rows with these keys: those of one of the `chunks`."""
    if len(columns) == 1:
        return columns[0].in_([value for (value,) in keys])
    # SQLite reads the whole table for (a, b) IN (VALUES ...).
    return or_(
        false(),
        *(
            and_(*(column == value for column, value in zip(columns, key, strict=True)))
            for key in padded(keys)
        ),
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


def padded(alternatives: Iterable[T]) -> list[T]:
    """Repeat the last alternative, up to a power of two or a multiple of 512.

    SQLAlchemy caches one statement for each number of alternatives, and every sweep would add some.
    """
    result = list(alternatives)
    if not result:
        return result
    length = len(result)
    full = 1 << (length - 1).bit_length() if length < _STEP else -(-length // _STEP) * _STEP
    return result + result[-1:] * (full - length)


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

"""Statements that read and delete expired rows past the gate, and conditions for their keys.

A sweep sends them, and so does a write that displaces the expired rows in its way. The UPDATEs and
INSERTs are for the sweepers' own tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import (
    ColumnElement,
    Delete,
    Insert,
    Select,
    Update,
    and_,
    false,
    or_,
    select,
    tuple_,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Connection

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


def hinted(statement: PurgeDelete, connection: Connection, hint: str, **names: str) -> PurgeDelete:
    """Return a DELETE with one of MySQL's hints, in which `{table}` is its target."""
    quote = connection.dialect.identifier_preparer.quote
    target: Any = statement.table  # never a join
    table = quote(target.name)
    # SQLAlchemy would take a word after a colon for a parameter.
    return statement.prefix_with(hint.format(table=table, **names).replace(":", r"\:"))


class SweepSelect(Select[Any]):
    """A SELECT of expired rows, which the gate leaves unchanged; its subqueries see live ones."""

    inherit_cache = True


class SweepUpdate(Update):
    """An UPDATE of the sweepers' own tables, which the gate leaves unchanged."""

    inherit_cache = True


class SweepInsert(Insert):
    """An INSERT into the sweepers' own tables, which the gate leaves unchanged."""

    inherit_cache = True


def in_subquery(columns: Sequence[ColumnElement[object]], rows: Any) -> ColumnElement[bool]:
    """Return the condition that columns have values that a SELECT (without LIMIT) finds."""
    # MySQL can't read the table that the same statement writes. It can read a derived table made
    # of it, unless it merges the two; DISTINCT prevents that.
    wrapped = rows.distinct().subquery()
    return (columns[0] if len(columns) == 1 else tuple_(*columns)).in_(select(*wrapped.c))


def chunks(rows: Sequence[T], size: int = CHUNK) -> Iterator[Sequence[T]]:
    """Divide rows or keys into parts for a statement each."""
    return (rows[start : start + size] for start in range(0, len(rows), size))


def is_one_of(
    columns: Sequence[ColumnElement[object]], keys: Iterable[Sequence[object]]
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

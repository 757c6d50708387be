"""The statement that deletes expired rows, and the conditions that pick rows by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import CTE, ColumnElement, Delete, Select, and_, or_, select, tuple_
from sqlalchemy.sql import visitors

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column

    from ttl_odm.sqlalchemy.policy.binding import SubBinding


class SweepDelete(Delete):
    """A DELETE of expired rows; the gate lets it through as it is.

    Being a class of its own, it has cache keys of its own.
    """

    inherit_cache = True


class SweepSelect(Select[Any]):
    """A SELECT of expired rows, which the gate lets through; a subquery in it sees live ones."""

    inherit_cache = True


def in_subquery(columns: Sequence[ColumnElement[Any]], rows: Any) -> ColumnElement[bool]:
    """Whether columns have one of the values that a SELECT (without LIMIT) finds."""
    # MySQL may not read a table that the same statement writes. It may read a derived table made
    # of it, unless it merges the two; DISTINCT keeps it from that.
    wrapped = rows.distinct().subquery()
    return (columns[0] if len(columns) == 1 else tuple_(*columns)).in_(select(*wrapped.c))


def at_root(sub: SubBinding | None, condition: ColumnElement[bool]) -> ColumnElement[bool]:
    """A condition on the table of a joined subclass, as one on the table that has the policy.

    Without a subclass it is that already.
    """
    if sub is None:
        return condition
    own, roots = zip(*sub.keys, strict=True)
    return in_subquery(roots, SweepSelect(*own).where(condition))


def is_one_of(columns: Sequence[Column[Any]], keys: Sequence[Sequence[Any]]) -> ColumnElement[bool]:
    """The condition for the rows with these keys."""
    if len(columns) == 1:
        return columns[0].in_([value for (value,) in keys])
    # SQLite reads the whole table for (a, b) IN (VALUES ...).
    return or_(
        *(
            and_(*(column == value for column, value in zip(columns, key, strict=True)))
            for key in keys
        )
    )


def has_cte(element: Any) -> bool:
    """Whether a statement with this inside begins with WITH."""
    return any(isinstance(inner, CTE) for inner in visitors.iterate(element))

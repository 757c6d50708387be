"""The statement that deletes expired rows, and the conditions that pick rows by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, ColumnElement, Delete, UpdateBase, and_, or_, select, tuple_
from sqlalchemy.sql import visitors

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Column


class SweepDelete(Delete):
    """A DELETE of expired rows; the gate lets it through as it is.

    Being a class of its own, it has cache keys of its own.
    """

    inherit_cache = True


def in_subquery(columns: Sequence[ColumnElement[Any]], rows: Any) -> ColumnElement[bool]:
    """Whether columns have one of the values that a SELECT (without LIMIT) finds."""
    # MySQL may not read a table that the same statement writes. It may read a derived table made
    # of it, unless it merges the two; DISTINCT keeps it from that.
    wrapped = rows.distinct().subquery()
    return (columns[0] if len(columns) == 1 else tuple_(*columns)).in_(select(*wrapped.c))


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


def filled(statement: Any, parameters: Mapping[str, Any]) -> Any:
    """A SELECT made of parts of a statement, with that statement's values for its parameters."""
    # Only for parameters that wait for a value: the others go by names that the compiler made.
    required = {
        element.key
        for element in visitors.iterate(statement)
        if isinstance(element, BindParameter) and element.required
    }
    return (
        statement.params({name: parameters[name] for name in required}) if required else statement
    )


def writes(*elements: Any) -> bool:
    """Whether an INSERT, UPDATE or DELETE is inside (in a CTE), so that evaluating it would act."""
    return any(
        isinstance(inner, UpdateBase) for element in elements for inner in visitors.iterate(element)
    )

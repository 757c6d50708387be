"""The rows that an INSERT FROM SELECT selects, as a subquery for the rest of a statement."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    ARRAY,
    VARCHAR,
    BindParameter,
    ColumnElement,
    CompoundSelect,
    Select,
    String,
    cast,
)
from sqlalchemy.sql.elements import ColumnClause, Label, Null
from sqlalchemy.types import NullType

from ttl_odm.sqlalchemy import compat

if TYPE_CHECKING:
    from sqlalchemy import Dialect, FromClause, Insert
    from sqlalchemy.types import TypeEngine

_CUT_OFF: Final = re.compile("CHAR|BIT")
"""PostgreSQL's types whose casts truncate a value that an assignment would reject as too long."""


def selected_rows(statement: Insert, dialect: Dialect) -> FromClause:
    """Return the rows that an INSERT selects, as a subquery.

    A literal column has no name there to refer to it by, and casts of NULL all have the same name.
    And PostgreSQL takes a bare value for one of the column that it is inserted into, but for text
    in a subquery.
    """

    def named(element: Any) -> Any:
        if isinstance(element, CompoundSelect):  # named as its first SELECT is
            first, *rest = element.selects
            return compat.copied(element, selects=[named(first), *rest])
        columns = [*element.inner_columns] if isinstance(element, Select) else []
        replaced = columns
        if element is statement.select and dialect.name == "postgresql":
            replaced = _typed(columns, statement, dialect)
        replaced = [column.label(None) if _is_nameless(column) else column for column in replaced]
        if all(new is column for new, column in zip(replaced, columns, strict=True)):
            return element
        return element.with_only_columns(*replaced)

    return named(statement.select).subquery()  # type: ignore[no-any-return]


def _is_nameless(element: object) -> bool:
    if isinstance(element, ColumnClause):
        return element.is_literal
    return isinstance(element, ColumnElement) and not isinstance(element, Label)


def _typed(selected: list[Any], statement: Insert, dialect: Dialect) -> list[Any]:
    """Return the selected columns, with bare values cast to the types of their target columns."""
    keys, columns = selected_columns(statement), statement.table.c
    if len(keys) != len(selected):  # text may be several columns
        return selected
    pairs = zip(selected, keys, strict=True)
    return [_for_column(element, columns.get(key), dialect) for element, key in pairs]


def _for_column(element: Any, column: ColumnClause[Any] | None, dialect: Dialect) -> Any:
    value = element.element if isinstance(element, Label) else element
    if column is None or not isinstance(value, (BindParameter, Null)):
        return element
    type_ = _without_loss(column.type, dialect)
    if type_ is None:
        return element
    made: ColumnElement[Any] = cast(value, type_)
    return made.label(element.name) if isinstance(element, Label) else made


def _without_loss(type_: TypeEngine[Any], dialect: Dialect) -> TypeEngine[Any] | None:
    """Return the type to which a value for a column is cast; None if it is left as it is.

    Unlike a string, an array of strings can't be compared with a value that has no type.
    """
    if isinstance(type_, NullType):
        return None
    if not _CUT_OFF.search(type_.compile(dialect)):
        return type_
    if isinstance(type_, ARRAY) and type(type_.item_type) in (String, VARCHAR):
        return ARRAY(String(), dimensions=type_.dimensions)
    return None


def selected_columns(statement: Insert) -> list[str]:
    """Return the columns of an INSERT FROM SELECT, in order; empty for any other statement."""
    return [compat.column_key(statement, name) for name in compat.selected_names(statement)]

"""What an INSERT or UPDATE writes, by column key.

SQLAlchemy keeps that in several places: in the statement, under columns or under names (which are
those of attributes where the ORM made it), and in the parameters of an execution. Nothing here
knows of keys or of expiry.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import BindParameter, Column, ColumnElement

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    Row = dict[str, Any]


def written_columns(statement: Any, compiler: Any) -> set[str]:
    """The keys of the columns that an UPDATE sets (and perhaps names of other parameters)."""
    return {key for key, _ in values_of(statement)}.union(compiler.column_keys or ())


def values_of(statement: Any) -> list[tuple[str, Any]]:
    """What the statement itself sets one row to: values, or SQL."""
    ordered = getattr(statement, "_ordered_values", None)  # SQLAlchemy 2.0
    given = ordered or (getattr(statement, "_values", None) or {}).items()
    return [(_column_key(statement, column), value) for column, value in given]


def selected_columns(statement: Any) -> list[str]:
    """The columns of an INSERT FROM SELECT, in order; empty for any other statement."""
    names = getattr(statement, "_select_names", None) or ()
    return [_column_key(statement, name) for name in names]


def rows_of(statement: Any, executions: Sequence[Mapping[str, Any]]) -> Iterator[Row]:
    """The rows that a statement writes: values, and SQL where it has some.

    Args:
        statement: an INSERT or UPDATE, but not an INSERT FROM SELECT.
        executions: the compiled parameters.
    """
    if getattr(statement, "_multi_values", ()):
        yield from _multi_rows(statement, executions[0])
        return
    given = [(key, value) for key, value in values_of(statement) if not _is_renamed(value)]
    for parameters in executions:
        row = dict(parameters)
        row.update((key, _plain(value, parameters)) for key, value in given)
        yield row


def inner_rows(statement: Any, parameters: Mapping[str, Any]) -> Iterator[Row]:
    """The rows of an INSERT inside another statement, which has the parameters."""
    if getattr(statement, "_multi_values", ()):
        yield from _multi_rows(statement, parameters)
    else:
        yield {key: _plain(value, parameters) for key, value in values_of(statement)}


def parameters_of(statement: Any, columns: Iterable[Column[Any]]) -> list[str] | None:
    """The names that columns have in the compiled parameters; None where one is set by SQL."""
    given = dict(values_of(statement))
    names = []
    for column in columns:
        value = given.get(column.key)
        if isinstance(value, BindParameter) and not _is_renamed(value):
            names.append(value.key)
        elif isinstance(value, ColumnElement) and not isinstance(value, BindParameter):
            return None
        else:
            names.append(column.key)
    return names


def is_sql(value: Any) -> bool:
    """Whether a value is for the database to compute."""
    return isinstance(value, ColumnElement)


def _multi_rows(statement: Any, parameters: Mapping[str, Any]) -> Iterator[Row]:
    columns = [column.key for column in statement.table.c]
    for values in (values for rows in statement._multi_values for values in rows):
        given = values if hasattr(values, "items") else dict(zip(columns, values, strict=False))
        yield {
            _column_key(statement, column): _plain(value, parameters)
            for column, value in given.items()
        }


def _is_renamed(value: Any) -> bool:
    """Whether SQLAlchemy names it after its column: it does with values that have no name."""
    return isinstance(value, BindParameter) and value.unique


def _plain(value: Any, parameters: Mapping[str, Any]) -> Any:
    if not isinstance(value, BindParameter):
        return value
    # With a name of its own, it may have another value in each execution.
    return value.effective_value if value.unique else parameters[value.key]


def _column_key(statement: Any, column: Any) -> str:
    if not isinstance(column, str):
        return str(column.key)
    mapper = getattr(statement, "_propagate_attrs", {}).get("plugin_subject")
    mapped = None if mapper is None else mapper.columns.get(column)
    return column if mapped is None else str(mapped.key)

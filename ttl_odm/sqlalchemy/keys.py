"""Freeing the keys of expired rows just before a statement takes them.

Neither the primary key nor a unique value of an expired row may stand in the way of an INSERT,
or of an UPDATE that moves a row there. One statement before it deletes the expired holders of
exactly the keys that are about to be written, in the same transaction; live holders stay, and
the write then fails on them as it always would. In a race the losers wait for the winner's row
and then see it live: one wins, whoever it is.

Savepoint-and-retry can't do this: a failed flush rolls back the whole transaction, and on
PostgreSQL so does a failed statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Index,
    UniqueConstraint,
    and_,
    literal,
    or_,
    select,
)

from ttl_odm.sqlalchemy.deleting import filled, in_subquery, is_one_of
from ttl_odm.sqlalchemy.displacing import displace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from sqlalchemy import Table

    from ttl_odm.sqlalchemy.binding import Binding

Key = tuple[Column[Any], ...]

_CHUNK: Final = 500
"""Rows in one statement: well below every database's limit of bound values."""


def written_columns(statement: Any, compiler: Any) -> set[str]:
    """The keys of the columns that an UPDATE sets (and perhaps names of other parameters)."""
    given = {_name(column) for column, _ in _values_of(statement)}
    return given.union(compiler.column_keys or ())


def keys_of(table: Table) -> tuple[Key, ...]:
    """The primary key, the unique constraints and the unique indexes of a table."""
    unique: list[Any] = [table.primary_key]
    unique += [c for c in table.constraints if isinstance(c, UniqueConstraint)]
    unique += [index for index in table.indexes if index.unique and _is_plain(index)]
    return tuple(dict.fromkeys(tuple(key.columns) for key in unique if len(key.columns)))


def _is_plain(index: Index) -> bool:
    return all(isinstance(expression, Column) for expression in index.expressions)


@dataclass(frozen=True, slots=True)
class InsertedKeys:
    """Before an INSERT: the keys of its rows."""

    binding: Binding
    keys: tuple[Key, ...]

    @classmethod
    def of(cls, binding: Binding) -> InsertedKeys | None:
        """For an INSERT into a TTL table; None where the table has no key."""
        keys = keys_of(binding.table)
        return cls(binding, keys) if keys else None

    def prepare(self, context: Any) -> None:
        """Delete the expired rows that hold a key of the INSERT which is about to run."""
        for criterion in self._holders(context):
            displace(context.root_connection, self.binding, criterion)

    def _holders(self, context: Any) -> Iterator[ColumnElement[bool]]:
        statement = context.invoked_statement
        names = getattr(statement, "_select_names", None)
        if names:
            yield from self._holders_of_selected(names, statement.select)
            return
        rows = list(_inserted_rows(context, self.binding.table))
        yield from _holders(self.keys, rows)

    def _holders_of_selected(self, names: Any, source: Any) -> Iterator[ColumnElement[bool]]:
        values = source.subquery()
        columns = dict(zip(map(_name, names), values.c, strict=True))
        for key in self.keys:
            if all(column.key in columns for column in key):
                wanted = select(*(columns[column.key] for column in key))
                yield in_subquery(key, wanted)


@dataclass(frozen=True, slots=True)
class UpdatedKeys:
    """Before an UPDATE that sets a column of a key: the keys that its rows will have."""

    binding: Binding
    keys: tuple[Key, ...]

    @classmethod
    def of(cls, binding: Binding, written: Collection[str]) -> UpdatedKeys | None:
        """For an UPDATE that writes these columns; None where it touches no key."""
        keys = tuple(
            key for key in keys_of(binding.table) if any(column.key in written for column in key)
        )
        return cls(binding, keys) if keys else None

    def prepare(self, context: Any) -> None:
        """Delete the expired rows that hold a key which the UPDATE is about to write."""
        statement = context.invoked_statement
        written = written_columns(statement, context.compiled)
        rows = [_row_of(statement, parameters) for parameters in context.compiled_parameters]
        plain = tuple(key for key in self.keys if _is_known(key, written, rows[0]))
        for criterion in _holders(plain, rows):
            displace(context.root_connection, self.binding, criterion)
        for key in set(self.keys).difference(plain):
            # A part of the key stays as it is in each row, or is computed from the row: the
            # database tells the keys that the rows will have.
            for row in rows:
                new = [_new_value(column, row, written) for column in key]
                wanted = filled(select(*new).where(*statement._where_criteria), row)
                displace(context.root_connection, self.binding, in_subquery(key, wanted))


def _inserted_rows(context: Any, table: Table) -> Iterator[Mapping[str, Any]]:
    """The values of each row to be inserted, by column key; SQL expressions as they are."""
    statement = context.invoked_statement
    multi = getattr(statement, "_multi_values", ())
    if not multi:
        for parameters in context.compiled_parameters:
            yield _row_of(statement, parameters)
        return
    columns = [column.key for column in table.c]
    for values in (values for rows in multi for values in rows):
        given = values if hasattr(values, "items") else dict(zip(columns, values, strict=False))
        yield {_name(column): _plain(value) for column, value in given.items()}


def _row_of(statement: Any, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The values that a statement writes, by column key, with one set of parameters."""
    row = dict(parameters)
    for column, value in _values_of(statement):
        if isinstance(value, BindParameter):
            # SQLAlchemy renames the anonymous ones after their column.
            if not value.unique:
                row[_name(column)] = parameters[value.key]
        elif isinstance(value, ColumnElement):
            row[_name(column)] = value
    return row


def _values_of(statement: Any) -> list[tuple[Any, Any]]:
    ordered = getattr(statement, "_ordered_values", None)  # SQLAlchemy 2.0
    return list(ordered or (getattr(statement, "_values", None) or {}).items())


def _name(column: Any) -> str:
    return column if isinstance(column, str) else str(column.key)


def _plain(value: Any) -> Any:
    return value.effective_value if isinstance(value, BindParameter) else value


def _is_known(key: Key, written: Collection[str], row: Mapping[str, Any]) -> bool:
    return all(
        column.key in written and not isinstance(row.get(column.key), ColumnElement)
        for column in key
    )


def _new_value(column: Column[Any], row: Mapping[str, Any], written: Collection[str]) -> Any:
    if column.key not in written:
        return column
    value = row.get(column.key)
    return value if isinstance(value, ColumnElement) else literal(value, column.type)


def _holders(
    keys: tuple[Key, ...], rows: Sequence[Mapping[str, Any]]
) -> Iterator[ColumnElement[bool]]:
    """Conditions that together find every holder of a key that the rows have."""
    for start in range(0, len(rows), _CHUNK):
        chunk = rows[start : start + _CHUNK]
        conditions = [condition for key in keys for condition in _holders_of(key, chunk)]
        if conditions:
            yield or_(*conditions)


def _holders_of(key: Key, rows: Sequence[Mapping[str, Any]]) -> Iterator[ColumnElement[bool]]:
    """Conditions for the holders of one key.

    A key with a NULL conflicts with nothing, and one whose value the database makes
    (autoincrement, a server default) is new.
    """
    plain: dict[tuple[Any, ...], None] = {}
    for row in rows:
        values = tuple(row.get(column.key) for column in key)
        if any(value is None for value in values):
            continue
        if any(isinstance(value, ColumnElement) for value in values):
            yield _has(key, values)
        else:
            plain[values] = None
    if plain:
        yield is_one_of(key, list(plain))


def _has(key: Key, values: tuple[Any, ...]) -> ColumnElement[bool]:
    return and_(*(column == value for column, value in zip(key, values, strict=True)))

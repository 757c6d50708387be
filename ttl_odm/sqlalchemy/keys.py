"""Freeing the keys of expired rows just before an INSERT takes them.

An expired row doesn't exist, so neither its primary key nor a unique value of its may stand in
the way. One statement before the INSERT deletes the expired holders of exactly the keys that
are about to be written, in the same transaction; live holders stay, and the INSERT then fails
on them as it always would. In a race the losers wait for the winner's row and then see it
live: one INSERT wins, whoever it is.

Savepoint-and-retry can't do this: a failed flush rolls back the whole transaction, and on
PostgreSQL so does a failed statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    Column,
    ColumnElement,
    Delete,
    Index,
    UniqueConstraint,
    and_,
    or_,
    select,
    tuple_,
)

from ttl_odm.sqlalchemy.clock import MYSQL_FAMILY, clock_of
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.predicate import Verdicts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from ttl_odm.sqlalchemy.binding import Binding

_CHUNK: Final = 500
"""Keys in one statement: well below every database's limit of bound values."""


class SweepDelete(Delete):
    """A DELETE of expired rows; the gate lets it through as it is.

    Being a class of its own, it has cache keys of its own.
    """

    inherit_cache = True


@dataclass(frozen=True, slots=True)
class FreedKeys:
    """The keys of a TTL table that an INSERT may take from expired rows."""

    binding: Binding
    keys: tuple[tuple[Column[Any], ...], ...]

    @classmethod
    def of(cls, binding: Binding) -> FreedKeys | None:
        """The primary key, unique constraints and unique indexes of a table, if any."""
        table = binding.table
        unique: list[Any] = [table.primary_key]
        unique += [c for c in table.constraints if isinstance(c, UniqueConstraint)]
        unique += [index for index in table.indexes if index.unique and _is_plain(index)]
        keys = dict.fromkeys(tuple(key.columns) for key in unique if len(key.columns))
        return cls(binding, tuple(keys)) if keys else None

    def purge(self, context: Any) -> None:
        """Delete the expired rows that hold a key of the INSERT which is about to run."""
        for criterion in self._conflicts(context):
            self._delete(context.root_connection, criterion)

    def _delete(self, connection: Any, criterion: ColumnElement[bool]) -> None:
        table = self.binding.table
        verdicts = Verdicts(clock_of(connection.dialect), writing=True)
        expired = verdicts.expired(self.binding, self.binding.columns_of(table))
        if connection.dialect.name in MYSQL_FAMILY and not self._any(
            connection, and_(expired, criterion)
        ):
            return
        connection.execute(SweepDelete(table).where(expired, criterion))

    def _any(self, connection: Any, criterion: ColumnElement[bool]) -> bool:
        # On InnoDB a DELETE that finds nothing locks the gap where the key would be, and two
        # such sessions that then insert deadlock. A plain read locks nothing.
        found = select(self.binding.table.c[self.keys[0][0].key]).where(criterion).limit(1)
        return connection.execute(found.options(include_expired())).first() is not None

    def _conflicts(self, context: Any) -> Iterator[ColumnElement[bool]]:
        """Conditions that together find every holder of a key of the INSERT."""
        statement = context.invoked_statement
        names = getattr(statement, "_select_names", None)
        if names:
            yield from self._selected(list(names), statement.select)
            return
        rows = list(_inserted_rows(context, self.binding.table))
        for start in range(0, len(rows), _CHUNK):
            chunk = rows[start : start + _CHUNK]
            conditions = [
                condition for key in self.keys for condition in _holders(key, chunk)
            ]
            if conditions:
                yield or_(*conditions)

    def _selected(self, names: list[Any], source: Any) -> Iterator[ColumnElement[bool]]:
        keys = [name if isinstance(name, str) else name.key for name in names]
        values = source.subquery()
        columns = dict(zip(keys, values.c, strict=True))
        for key in self.keys:
            if all(column.key in columns for column in key):
                wanted = select(*(columns[column.key] for column in key))
                yield (key[0] if len(key) == 1 else tuple_(*key)).in_(wanted)


def _is_plain(index: Index) -> bool:
    return all(isinstance(expression, Column) for expression in index.expressions)


def _inserted_rows(context: Any, table: Any) -> Iterator[Mapping[str, Any]]:
    """The values of each row to be inserted, by column key; SQL expressions as they are."""
    statement = context.invoked_statement
    multi = getattr(statement, "_multi_values", ())
    if multi:
        columns = [column.key for column in table.c]
        for values in (values for group in multi for values in group):
            given = values if hasattr(values, "items") else dict(zip(columns, values, strict=False))
            yield {_key(column): _plain(value) for column, value in given.items()}
        return
    expressions = {
        _key(column): value
        for column, value in (getattr(statement, "_values", None) or {}).items()
        if isinstance(value, ColumnElement) and not hasattr(value, "effective_value")
    }
    for parameters in context.compiled_parameters:
        yield {**parameters, **expressions}


def _key(column: Any) -> str:
    return column if isinstance(column, str) else str(column.key)


def _plain(value: Any) -> Any:
    return value.effective_value if hasattr(value, "effective_value") else value


def _holders(
    key: tuple[Column[Any], ...], rows: list[Mapping[str, Any]]
) -> Iterator[ColumnElement[bool]]:
    """Conditions for the rows that hold one key with any of these values.

    A key with a NULL conflicts with nothing, and one whose value the database makes
    (autoincrement, a server default) is new.
    """
    plain: dict[tuple[Any, ...], None] = {}
    for row in rows:
        values = tuple(row.get(column.key) for column in key)
        if any(value is None for value in values):
            continue
        if any(isinstance(value, ColumnElement) for value in values):
            yield and_(*(column == value for column, value in zip(key, values, strict=True)))
        else:
            plain[values] = None
    if not plain:
        return
    if len(key) == 1:
        yield key[0].in_([value for (value,) in plain])
    elif len(plain) == 1:
        yield and_(*(c == value for c, value in zip(key, next(iter(plain)), strict=True)))
    else:
        yield tuple_(*key).in_(list(plain))

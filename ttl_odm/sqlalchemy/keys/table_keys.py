"""The keys of a table, and which of them a row has: `Key`, `NamedKey`.

What frees them of expired rows is `ttl_odm.sqlalchemy.keys.taken`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Label,
    UnaryExpression,
    and_,
    select,
)
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy.keys.conversions import as_sql, as_stored, is_kept
from ttl_odm.sqlalchemy.keys.defaults import (
    UNKNOWN,
    is_made_of,
    of_new_rows,
    with_sources,
    with_values,
)
from ttl_odm.sqlalchemy.rewrite.unique_indexes import Prefix
from ttl_odm.sqlalchemy.rewrite.writes import is_sql, uniques

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import Select, Table

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.rewrite.unique_indexes import IndexCondition

    Row = Mapping[str, Any]
    Rows = Callable[..., Select[Any]]
    Stored = Callable[[Any, Column[Any]], ColumnElement[Any]]


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key, a unique constraint or a unique index: what no two rows have in common.

    Its parts are its columns, or expressions of them. In place of `generated` columns it has those
    that they are computed from. With a `condition` it is one of the rows that meet it, which the
    columns that are `deciding` tell; no row does where one of the `nulls` among them has a value.
    """

    parts: tuple[ColumnElement[Any], ...]
    columns: tuple[Column[Any], ...]
    generated: tuple[Column[Any], ...] = ()
    condition: IndexCondition | None = None
    deciding: frozenset[str] = frozenset()
    nulls: frozenset[str] = frozenset()

    @property
    def is_plain(self) -> bool:
        """Whether it is a key of columns, and not of what is made of them."""
        return self.parts is self.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of its columns."""
        return tuple(column.key for column in self.columns)

    def selected(
        self,
        values: Mapping[Column[Any], Any],
        matched: Rows = select,
        stored: Stored = as_sql,
        *,
        typed: bool = False,
    ) -> Select[Any]:
        """A SELECT of this key, with values or SQL in the place of the columns.

        `matched` selects columns of the rows that are written; `stored` makes of SQL what a column
        stores, for generated ones; `typed` gives values the types and collations of the table's
        columns.
        """
        if not (self.generated or typed):
            return matched(*self.made_of(values, stored))
        return self._over_rows(self.parts, values, stored, matched)

    def equals(
        self, values: Mapping[Column[Any], Any], stored: Stored = as_sql
    ) -> ColumnElement[bool]:
        """The condition for rows that have this key of such values; for `stored` see `selected`."""
        made = self.made_of(values, stored)
        conditions = [part == value for part, value in zip(self.parts, made, strict=True)]
        for part, value in zip(self.parts, made, strict=True):
            if isinstance(part, Prefix) and isinstance(value, Prefix):
                (column, _) = part.clauses
                conditions.append(value.may_begin(column))
        return and_(*conditions, *self.holding)

    @property
    def holding(self) -> list[ColumnElement[bool]]:
        """The conditions for rows to have the key at all."""
        return [] if self.condition is None else [self.condition]

    def is_changed_by(self, written: Collection[str]) -> bool:
        """Whether a write of these columns may give it to a row."""
        return not (self.deciding.isdisjoint(written) and set(self.names).isdisjoint(written))

    def is_left_by(self, row: Row) -> bool:
        """Whether a row that a write sets to values surely doesn't have it then."""
        return any(row.get(name) is not None and not is_sql(row[name]) for name in self.nulls)

    def held_by(self, row: Row, reclaimer: KeyReclaimer) -> ColumnElement[bool] | None:
        """The condition for rows that have the key of a row; None if nobody else can have it."""
        values = [row.get(name, UNKNOWN) for name in self.names]
        if any(value is UNKNOWN or (value is None and self.is_plain) for value in values):
            return None
        stored = partial(as_stored, reclaimer)
        made = map(stored, values, self.columns)
        return self.equals(dict(zip(self.columns, made, strict=True)), stored)

    def made_of(self, values: Mapping[Column[Any], Any], stored: Stored = as_sql) -> list[Any]:
        """The parts of this key, with values or SQL in the place of the columns."""
        if self.is_plain:
            return [values[column] for column in self.columns]
        return [
            # As a value: with IN and a subquery beside an OR, no database uses an index.
            self._over_rows([part], values, stored).scalar_subquery()
            if is_made_of(part, self.generated)
            else with_values(part, values)
            for part in self.parts
        ]

    def _over_rows(
        self,
        parts: Iterable[ColumnElement[Any]],
        values: Mapping[Column[Any], Any],
        stored: Stored,
        matched: Rows = select,
    ) -> Select[Any]:
        new = matched(*(value.label(column.name) for column, value in values.items()))
        return of_new_rows(parts, self.generated, values, new, stored)


def keys_of(table: Table) -> list[Key]:
    """The keys of a table, as far as its metadata tells."""
    keys = []
    for unique, condition in dict.fromkeys(uniques(table)):
        bare = []
        for part in unique:  # of an index they may have names, and an order
            element = part
            while isinstance(element, Label) or (
                isinstance(element, UnaryExpression) and element.modifier
            ):
                element = element.element
            bare.append(element)
        parts = tuple(bare)
        inner = [[c for c in visitors.iterate(part) if isinstance(c, Column)] for part in parts]
        if not (inner and all(inner)):  # there is text, in which nobody can find the columns
            continue
        columns = dict.fromkeys(c for some in inner for own in some for c in with_sources(own))
        generated = tuple(column for column in columns if column.computed is not None)
        if generated or not all(isinstance(part, Column) for part in parts):
            own = tuple(column for column in columns if column.computed is None)
            key = Key(parts, own, generated)
        else:
            key = Key(parts, parts)
        if condition is not None:
            deciding = [c for own in condition.columns_of(table) for c in with_sources(own)]
            key = replace(
                key,
                condition=condition,
                deciding=frozenset(column.key for column in deciding),
                nulls=frozenset(condition.nulls_of(table)),
            )
        keys.append(key)
    return keys


class NamedKey:
    """A key, and under which names a row has the values of its columns.

    No row has the columns that are `made`: the database makes the same of them for every row.
    """

    __slots__ = ("_always_converted", "columns", "is_plain", "key", "made", "names")

    def __init__(
        self, key: Key, names: Sequence[str], made: Mapping[Column[Any], Any] | None = None
    ) -> None:
        named = [
            pair for pair in zip(key.columns, names, strict=True) if pair[0] not in (made or ())
        ]
        self.key = key
        self.columns = tuple([column for column, _ in named])
        self.names = tuple([name for _, name in named])
        self.made = {column: as_sql(value, column) for column, value in (made or {}).items()}
        self.is_plain = key.is_plain
        computed: list[tuple[Column[Any], Any]] = [(c, c.computed) for c in key.generated]
        always = [*self.made.items(), *((column, sql.sqltext) for column, sql in computed)]
        self._always_converted = [column for column, sql in always if not is_kept(sql, column)]

    def converted(self, rows: Sequence[Row]) -> Iterator[Column[Any]]:
        """The columns that may not store what rows have for them as it is."""
        yield from self._always_converted
        for column, name in zip(self.columns, self.names, strict=True):
            if not all(is_kept(row.get(name), column) for row in rows):
                yield column

    def values_of(self, row: Row) -> tuple[Any, ...] | None:
        """What a row has there, or None if that is in nobody's way.

        Columns with a NULL among them conflict with nothing, nor does a value that isn't known
        beforehand. Expressions may make something of a NULL.
        """
        values = tuple([row.get(name) for name in self.names])
        if self.is_plain:
            return None if any(value is None for value in values) else values
        return values if all(name in row for name in self.names) else None

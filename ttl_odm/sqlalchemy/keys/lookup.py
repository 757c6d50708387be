"""The keys of a table, and the statement that frees them of expired rows.

It is built once per compiled write and executed with the values alone. It runs before every INSERT
that brings its own keys, so its Python must cost next to nothing: what can't change between two
executions is kept, and SQLAlchemy's cache finds the compiled statement. Where that suffices it is a
DELETE. Where rows hang on others, have to be archived or reported to hooks, and on InnoDB, it is a
SELECT, which `ttl_odm.sqlalchemy.keys.displace` follows if it finds something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Label,
    UnaryExpression,
    and_,
    bindparam,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy.keys.displace import must_select_first, purge_conditions, with_hint
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepDelete, in_subquery
from ttl_odm.sqlalchemy.rewrite.stamps import unique_parts

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import Delete, Select, Table

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.policy.binding import Binding, SubBinding

    Row = Mapping[str, Any]

_MOST_VALUES: Final = 5_000
"""In one statement. Databases allow more, but MariaDB reads the whole table from 16,000 on."""

_MOST_TUPLES: Final = 200
"""Values of composite keys: with more, PostgreSQL plans for longer than it then works."""

_RESERVED: Final = 50
"""Bound values that the predicate may need beside the keys."""


@dataclass(frozen=True, slots=True)
class Key:
    """A primary key, a unique constraint or a unique index: what no two rows have in common.

    Its parts are its columns, or expressions of them.
    """

    parts: tuple[ColumnElement[Any], ...]
    columns: tuple[Column[Any], ...]

    @property
    def is_plain(self) -> bool:
        """Whether it is a key of columns, and not of what is made of them."""
        return self.parts is self.columns

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of its columns."""
        return tuple(column.key for column in self.columns)

    def made_of(self, values: Mapping[Column[Any], Any]) -> list[Any]:
        """The parts, with values or SQL in the place of the columns."""
        if self.is_plain:
            return [values[column] for column in self.columns]

        def replaced(element: Any, **_: object) -> Any:
            return values.get(element) if isinstance(element, Column) else None

        return [visitors.replacement_traverse(part, {}, replaced) for part in self.parts]

    def equals(self, values: Mapping[Column[Any], Any]) -> ColumnElement[bool]:
        """The condition for rows that have this key of such values."""
        made = self.made_of(values)
        return and_(*(part == value for part, value in zip(self.parts, made, strict=True)))


def keys_of(table: Table) -> list[Key]:
    """The keys of a table, as far as its metadata tells."""
    keys = []
    for unique in filter(None, dict.fromkeys(unique_parts(table))):
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
        if all(isinstance(part, Column) for part in parts):
            keys.append(Key(parts, parts))
        elif all(inner):  # there is nothing in text, in which nobody can find the columns
            keys.append(Key(parts, tuple(dict.fromkeys(c for columns in inner for c in columns))))
    return keys


@dataclass(frozen=True, slots=True)
class ConflictingRows:
    """The rows that may hold a key of a table with a policy, or of a joined subclass's (`sub`)."""

    binding: Binding
    sub: SubBinding | None = None

    @property
    def table(self) -> Table:
        """The table that the keys are in."""
        return self.binding.table if self.sub is None else self.sub.table

    def with_keys(self, condition: ColumnElement[bool]) -> ColumnElement[bool]:
        """A condition on the table of the keys, as one on the table that has the policy."""
        if self.sub is None:
            return condition
        own, roots = zip(*self.sub.keys, strict=True)
        return in_subquery(roots, select(*own).where(condition).options(include_expired()))


class NamedKey:
    """A key, and under which names a row has the values of its columns."""

    __slots__ = ("is_plain", "key", "names")

    def __init__(self, key: Key, names: tuple[str, ...]) -> None:
        self.key = key
        self.names = names
        self.is_plain = key.is_plain

    def values_of(self, row: Row) -> tuple[Any, ...] | None:
        """What a row has there, or None if that is in nobody's way.

        Columns with a NULL among them conflict with nothing, and a value that the database makes
        (autoincrement, a server default) is new. Expressions may make something of a NULL.
        """
        values = tuple([row.get(name) for name in self.names])
        missing = [value is None for value in values]
        return None if (any if self.is_plain else all)(missing) else values


class _Shape(NamedTuple):
    """What a statement hangs on beside its values.

    Those are for one row or some, and for the keys of these numbers. `current`: see `KeyReclaimer`.
    """

    keys: tuple[int, ...]
    rows: Literal["one", "some"]
    current: bool


class KeyPurge:
    """Frees keys whose values are plain; a `NamedKey` says how the rows name their columns."""

    def __init__(self, conflicting: ConflictingRows, keys: Iterable[NamedKey]) -> None:
        """Build nothing yet: statements depend on the dialect, and on what the rows bring."""
        self._conflicting = conflicting
        self._keys = tuple(keys)
        self._has_tuples = any(len(key.names) > 1 for key in self._keys)
        self._has_expressions = not all(key.is_plain for key in self._keys)
        self._conditions: tuple[object, ...] | None = None
        self._selects_first = False
        self._statements: dict[_Shape, Select[Any] | Delete] = {}

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take; return how many."""
        dialect, binding = reclaimer.dialect, self._conflicting.binding
        conditions = purge_conditions(binding)
        if conditions != self._conditions:  # models were declared since, or another purge
            self._selects_first = must_select_first(binding, dialect)
            self._statements = {}
            self._conditions = conditions
        # SQLite reads the whole table for (a, b) IN (VALUES ...).
        singly = self._has_expressions or (self._has_tuples and dialect.name == "sqlite")
        if singly or len(rows) == 1:
            return self._free_each(reclaimer, rows)
        most = min(_MOST_VALUES, dialect.insertmanyvalues_max_parameters - _RESERVED)
        most //= sum(len(key.names) for key in self._keys)
        if self._has_tuples:
            most = min(most, _MOST_TUPLES)
        deleted = 0
        for start in range(0, len(rows), most):
            values: dict[str, Any] = {}
            numbers: list[int] = []
            for number, key in enumerate(self._keys):
                values_of, some = key.values_of, rows[start : start + most]
                taken = [value for row in some if (value := values_of(row)) is not None]
                if taken:
                    numbers.append(number)
                    values[f"key_{number}"] = taken if len(key.names) > 1 else [v for (v,) in taken]
            if numbers:
                shape = _Shape(tuple(numbers), "some", reclaimer.current)
                deleted += self._run(reclaimer, shape, values)
        return deleted

    def _free_each(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """By a statement for one row, where NULL is no key either."""
        keys = self._keys
        numbers = tuple([n for n, key in enumerate(keys) if any(map(key.values_of, rows))])
        if not numbers:
            return 0
        shape = _Shape(numbers, "one", reclaimer.current)
        sets = [
            {
                f"key_{number}_{place}": row.get(name)
                for number in numbers
                for place, name in enumerate(keys[number].names)
            }
            for row in rows
        ]
        if self._selects_first or len(sets) == 1:
            return sum([self._run(reclaimer, shape, values) for values in sets])
        return self._run(reclaimer, shape, sets)

    def _run(self, reclaimer: KeyReclaimer, shape: _Shape, values: Any) -> int:
        binding, statement = self._conflicting.binding, self._statements.get(shape)
        if statement is None:
            criterion = self._criterion(shape)
            if self._selects_first:
                first = next(iter(binding.table.c))
                statement = reclaimer.expired_rows(binding, [first]).where(criterion).limit(1)
            else:
                is_expired = expired_in(reclaimer.connection, binding)
                statement = SweepDelete(binding.table).where(is_expired, criterion)
            self._statements[shape] = statement
        if not self._selects_first:
            with with_hint(binding.table):
                return int(reclaimer.execute(statement, values).rowcount)
        if reclaimer.execute(statement, values).first() is None:
            return 0
        return reclaimer.displace(binding, self._criterion(shape, values))

    def _criterion(
        self, shape: _Shape, values: Mapping[str, Any] | None = None
    ) -> ColumnElement[bool]:
        """With places for values, or with values."""

        def bind(name: str, **how: Any) -> BindParameter[Any]:
            return (
                bindparam(name, **how) if values is None else bindparam(name, values[name], **how)
            )

        conditions = []
        for number in shape.keys:
            key = self._keys[number].key
            if shape.rows == "one":
                places = {
                    column: bind(f"key_{number}_{place}", type_=column.type)
                    for place, column in enumerate(key.columns)
                }
                conditions.append(key.equals(places))
            else:
                columns: Any = key.columns[0] if len(key.columns) == 1 else tuple_(*key.columns)
                taken = bind(f"key_{number}", expanding=True, type_=columns.type)
                conditions.append(columns.in_(taken))
        return self._conflicting.with_keys(or_(*conditions))

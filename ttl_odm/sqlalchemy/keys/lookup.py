"""The keys of a table, and the statement that frees them of expired rows.

It is built once per compiled write and executed with the values alone: what can't change between
two executions is kept, and SQLAlchemy's cache finds the compiled statement. When it runs, after a
write that met a taken key or before one, is decided in `ttl_odm.sqlalchemy.gate.execution`. Where
that suffices it is a DELETE. Where rows hang on others, have to be archived or reported to hooks,
and on InnoDB, it is a SELECT, which `ttl_odm.sqlalchemy.keys.displace` follows if it finds
something.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
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
    union_all,
)
from sqlalchemy.sql import visitors

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.compat import is_mysql
from ttl_odm.sqlalchemy.keys.conversions import as_sql, as_stored, forms_of, in_form, is_kept
from ttl_odm.sqlalchemy.keys.defaults import (
    UNKNOWN,
    is_made_of,
    of_new_rows,
    with_sources,
    with_values,
)
from ttl_odm.sqlalchemy.keys.displace import must_select_first, purge_conditions, with_hint
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepDelete, at_root
from ttl_odm.sqlalchemy.rewrite.unique_indexes import Prefix
from ttl_odm.sqlalchemy.rewrite.writes import is_sql, uniques

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import CompoundSelect, Delete, Select, Table

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.policy.binding import Binding, SubBinding
    from ttl_odm.sqlalchemy.rewrite.unique_indexes import IndexCondition

    Row = Mapping[str, Any]
    Rows = Callable[..., Select[Any]]
    Stored = Callable[[Any, Column[Any]], ColumnElement[Any]]

_MOST_VALUES: Final = 5_000
"""In one statement. Databases allow more, but MariaDB reads the whole table from 16,000 on."""

_MOST_TUPLES: Final = 200
"""Values of composite keys: with more, PostgreSQL plans for longer than it then works."""

_MOST_CONVERTED: Final = 64
"""Rows in one statement where values are compared as they are stored: each has a condition."""

_RESERVED: Final = 50
"""Bound values that the predicate may need beside the keys."""


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
        return at_root(self.sub, condition)

    def purge_of(self, keys: Iterable[NamedKey]) -> KeyPurge:
        """What frees keys whose values are plain."""
        return KeyPurge(self, keys)

    def displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        """Delete the expired rows that a condition finds; return how many."""
        return reclaimer.displace(self.binding, self.with_keys(condition))


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


class _Shape(NamedTuple):
    """What a statement hangs on beside its values.

    Those are for the keys of these numbers, and for one row, some, or exactly so many.
    `current`: see `KeyReclaimer`; `selects`: whether it is a SELECT, which another thread may be
    about to change its mind on; `forms`: what columns store for values, by the columns' names.
    """

    keys: tuple[int, ...]
    rows: Literal["one", "some"] | int
    current: bool
    selects: bool
    forms: tuple[tuple[str, str], ...]


class KeyPurge:
    """Frees keys whose values are plain; a `NamedKey` says how the rows name their columns."""

    def __init__(self, conflicting: ConflictingRows, keys: Iterable[NamedKey]) -> None:
        """Build nothing yet: statements depend on the dialect, and on what the rows bring."""
        self._conflicting = conflicting
        self._keys = tuple(keys)
        self._has_tuples = any(len(key.names) > 1 for key in self._keys)
        self._width = sum(len(key.names) for key in self._keys) or 1
        self._has_expressions = not all(key.is_plain for key in self._keys)
        self._generated = {n for n, key in enumerate(self._keys) if key.key.generated}
        self._conditions: tuple[object, ...] | None = None
        self._selects_first = False
        self._statements: dict[_Shape, Select[Any] | CompoundSelect[Any] | Delete] = {}

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take; return how many."""
        dialect, binding = reclaimer.dialect, self._conflicting.binding
        conditions = purge_conditions(binding)
        if conditions != self._conditions:  # models were declared since, or another purge
            self._selects_first = must_select_first(binding, dialect)
            self._statements = {}
            self._conditions = conditions
        forms = self._forms(reclaimer, rows)
        # SQLite reads the whole table for (a, b) IN (VALUES ...).
        singly = self._has_expressions or (self._has_tuples and dialect.name == "sqlite")
        if singly or len(rows) == 1:
            return self._free_singly(reclaimer, rows, forms)
        most = min(_MOST_VALUES, dialect.insertmanyvalues_max_parameters - _RESERVED)
        most //= self._width
        if self._has_tuples:
            most = min(most, _MOST_TUPLES)
        if forms:
            most = min(most, _MOST_CONVERTED)
        deleted = 0
        for start in range(0, len(rows), most):
            taken: dict[int, list[tuple[Any, ...]]] = {}
            for number, key in enumerate(self._keys):
                values_of, some = key.values_of, rows[start : start + most]
                values = [value for row in some if (value := values_of(row)) is not None]
                if values:
                    taken[number] = values
            if taken:
                deleted += self._free_many(reclaimer, taken, forms)
        return deleted

    def _forms(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
        """What columns store for values of theirs, where these may be converted."""
        columns = {column.name for key in self._keys for column in key.converted(rows)}
        if not columns:
            return ()
        every = forms_of(reclaimer, self._conflicting.table)
        return tuple(sorted((name, every[name]) for name in columns if name in every))

    def _free_many(
        self,
        reclaimer: KeyReclaimer,
        taken: Mapping[int, list[tuple[Any, ...]]],
        forms: tuple[tuple[str, str], ...],
    ) -> int:
        """By a statement for lists of values; of converted ones, for so many."""
        values: dict[str, Any] = {}
        count = 1 << (max(map(len, taken.values())) - 1).bit_length() if forms else None
        for number, several in taken.items():
            names = self._keys[number].names
            if count is not None:
                for place in range(count):  # the last one again and again
                    row = several[min(place, len(several) - 1)]
                    keys = (f"key_{number}_{n}_{place}" for n in range(len(names)))
                    values |= zip(keys, row, strict=True)
            elif names:
                single = len(names) == 1
                values[f"key_{number}"] = [value for (value,) in several] if single else several
        rows: Any = count or "some"
        shape = _Shape(tuple(taken), rows, reclaimer.current, self._selects_first, forms)
        return self._run(reclaimer, shape, values)

    def _free_singly(
        self, reclaimer: KeyReclaimer, rows: Sequence[Row], forms: tuple[tuple[str, str], ...]
    ) -> int:
        """By a statement for one row, where NULL is not a key either."""
        keys = self._keys
        numbers = tuple(
            [
                number
                for number, key in enumerate(keys)
                if not key.names or any(map(key.values_of, rows))
            ]
        )
        if not self._generated or reclaimer.dialect.name not in MYSQL_FAMILY:
            return self._free_some(reclaimer, numbers, rows, forms)
        # MariaDB plans before it knows the value of a subquery: beside an OR, it reads all rows.
        apart = self._generated.intersection(numbers)
        groups = [
            tuple([number for number in numbers if number not in apart]),
            *((number,) for number in apart),
        ]
        return sum([self._free_some(reclaimer, group, rows, forms) for group in groups])

    def _free_some(
        self,
        reclaimer: KeyReclaimer,
        numbers: tuple[int, ...],
        rows: Sequence[Row],
        forms: tuple[tuple[str, str], ...],
    ) -> int:
        if not numbers:
            return 0
        shape = _Shape(numbers, "one", reclaimer.current, self._selects_first, forms)
        sets = [
            {
                f"key_{number}_{place}": row.get(name)
                for number in numbers
                for place, name in enumerate(self._keys[number].names)
            }
            for row in rows
        ]
        if shape.selects or len(sets) == 1:
            return sum([self._run(reclaimer, shape, values) for values in sets])
        return self._run(reclaimer, shape, sets)

    def _run(self, reclaimer: KeyReclaimer, shape: _Shape, values: Any) -> int:
        binding, statement = self._conflicting.binding, self._statements.get(shape)
        # MySQL merges indexes for some 100 values, and with more reads the whole table. And of one
        # row InnoDB looks up each key without a lock on any other row, such as one that somebody
        # is inserting; for an OR it may read, and lock, all of a small table.
        dialect = reclaimer.dialect
        apart = is_mysql(dialect) or (shape.rows == "one" and dialect.name in MYSQL_FAMILY)
        if statement is None:
            criteria = self._criteria(shape, apart=apart)
            if shape.selects:
                first = next(iter(binding.table.c))
                rows = reclaimer.expired_rows(binding, [first]).limit(1)
                parts = [rows.where(criterion) for criterion in criteria]
                statement = union_all(*parts).limit(1) if len(parts) > 1 else parts[0]
            else:
                is_expired = expired_in(reclaimer.connection, binding)
                statement = SweepDelete(binding.table).where(is_expired, *criteria)
            self._statements[shape] = statement
        if not shape.selects:
            with with_hint(binding.table):
                return int(reclaimer.execute(statement, values).rowcount)
        if reclaimer.read(binding.table, statement, values).first() is None:
            return 0
        criteria = self._criteria(shape, values, apart=apart)
        return sum([reclaimer.displace(binding, criterion) for criterion in criteria])

    def _criteria(
        self, shape: _Shape, values: Mapping[str, Any] | None = None, *, apart: bool
    ) -> list[ColumnElement[bool]]:
        """For each key apart or for all, with places for values or with values."""

        def bind(name: str, **how: Any) -> BindParameter[Any]:
            return (
                bindparam(name, **how) if values is None else bindparam(name, values[name], **how)
            )

        forms = dict(shape.forms)

        def stored(element: ColumnElement[Any], column: Column[Any]) -> ColumnElement[Any]:
            form = forms.get(column.name)
            return element if form is None else in_form(form, element, column)

        conditions = []
        for number in shape.keys:
            named = self._keys[number]
            made = {column: stored(value, column) for column, value in named.made.items()}
            if shape.rows == "some":
                parts = [column == value for column, value in made.items()]
                if named.columns:
                    one = len(named.columns) == 1
                    columns: Any = named.columns[0] if one else tuple_(*named.columns)
                    taken = bind(f"key_{number}", expanding=True, type_=columns.type)
                    parts.append(columns.in_(taken))
                conditions.append(and_(*parts, *named.key.holding))
                continue
            rows = [""] if shape.rows == "one" else [f"_{row}" for row in range(shape.rows)]
            conditions += [
                named.key.equals(
                    {
                        **{
                            column: stored(
                                bind(f"key_{number}_{place}{row}", type_=column.type), column
                            )
                            for place, column in enumerate(named.columns)
                        },
                        **made,
                    },
                    stored,
                )
                for row in rows
            ]
        return list(map(self._conflicting.with_keys, conditions if apart else [or_(*conditions)]))

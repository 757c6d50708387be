"""The statement that frees keys: built once per compiled write, executed with the values alone.

It runs before every INSERT that brings its own keys, so its Python must cost next to nothing: what
can't change between two executions is kept, and SQLAlchemy's cache finds the compiled statement.
Where that suffices it is a DELETE. Where rows hang on others, have to be archived or told to
hooks, and on InnoDB, it is a look, which `ttl_odm.sqlalchemy.keys.displace` follows if it finds
something.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    bindparam,
    or_,
    select,
    tuple_,
)

from ttl_odm.sqlalchemy.keys.displace import must_select_first, purge_conditions, with_hint
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepDelete, in_subquery

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sqlalchemy import Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.keys.unique import Key
    from ttl_odm.sqlalchemy.policy.binding import Binding, SubBinding

    Row = Mapping[str, Any]

_MOST_VALUES: Final = 5_000
"""In one statement. Databases allow more, but MariaDB reads the whole table from 16,000 on."""

_MOST_TUPLES: Final = 200
"""Values of composite keys: with more, PostgreSQL plans for longer than it then works."""

_RESERVED: Final = 50
"""Bound values that the predicate may need beside the keys."""


@dataclass(frozen=True, slots=True)
class ConflictingRows:
    """The rows that may hold a key.

    Attributes:
        binding: their policy.
        sub: where the key is, if that is the table of a joined subclass.
    """

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


class NamedKey(NamedTuple):
    """A key, and under which names a row has the values of its columns."""

    key: Key
    names: tuple[str, ...]

    def values_of(self, row: Row) -> tuple[Any, ...] | None:
        """What a row has there, or None if that is in nobody's way.

        Columns with a NULL among them conflict with nothing, and a value that the database makes
        (autoincrement, a server default) is new. Expressions may make something of a NULL.
        """
        values = tuple([row.get(name) for name in self.names])
        missing = [value is None for value in values]
        return None if (any if self.key.is_plain else all)(missing) else values


class _Shape(NamedTuple):
    """What a statement hangs on beside its values.

    Attributes:
        keys: the numbers of the keys that it is about.
        rows: how many rows one set of values is for.
        current: see `KeyReclaimer`.
    """

    keys: tuple[int, ...]
    rows: Literal["one", "some"]
    current: bool


class KeyPurge:
    """Frees keys whose values are plain.

    Args:
        conflicting: who may have them.
        keys: which, and how the rows that want them name their columns.
    """

    def __init__(self, conflicting: ConflictingRows, keys: Sequence[NamedKey]) -> None:
        """Build nothing yet: statements depend on the dialect, and on what the rows bring."""
        self._conflicting = conflicting
        self._keys = keys
        self._has_tuples = any(len(key.names) > 1 for key in keys)
        self._has_expressions = not all(named.key.is_plain for named in keys)
        self._circumstances: tuple[object, ...] | None = None
        self._looks_first = False
        self._statements: dict[_Shape, Any] = {}

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take.

        Returns:
            How many are gone.
        """
        dialect = reclaimer.dialect
        self._look_around(dialect)
        # SQLite reads the whole table for (a, b) IN (VALUES ...).
        singly = self._has_expressions or (self._has_tuples and dialect.name == "sqlite")
        if singly or len(rows) == 1:
            return self._free_each(reclaimer, rows)
        most = self._most_rows(dialect)
        chunks = (rows[start : start + most] for start in range(0, len(rows), most))
        return sum(self._free_some(reclaimer, chunk) for chunk in chunks)

    def _look_around(self, dialect: Dialect) -> None:
        """Begin anew if models were declared since, or a purge was declared otherwise."""
        current = purge_conditions(self._conflicting.binding)
        if current != self._circumstances:
            self._looks_first = must_select_first(self._conflicting.binding, dialect)
            self._statements = {}
            self._circumstances = current

    def _most_rows(self, dialect: Dialect) -> int:
        values = min(_MOST_VALUES, dialect.insertmanyvalues_max_parameters - _RESERVED)
        rows = values // sum(len(key.names) for key in self._keys)
        return min(rows, _MOST_TUPLES) if self._has_tuples else rows

    def _free_each(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """By a statement for one row, where NULL is no key either."""
        keys = self._keys
        given = tuple([n for n, key in enumerate(keys) if any(map(key.values_of, rows))])
        if not given:
            return 0
        shape = _Shape(given, "one", reclaimer.current)
        sets = [
            {
                _bound(number, place): row.get(name)
                for number in given
                for place, name in enumerate(keys[number].names)
            }
            for row in rows
        ]
        if self._looks_first or len(sets) == 1:
            return sum([self._run(reclaimer, shape, values) for values in sets])
        return self._run(reclaimer, shape, sets)

    def _free_some(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        values: dict[str, Any] = {}
        given: list[int] = []
        for number, key in enumerate(self._keys):
            found = [found for row in rows if (found := key.values_of(row)) is not None]
            if found:
                given.append(number)
                values[_bound(number)] = found if len(key.names) > 1 else [one for (one,) in found]
        if not given:
            return 0
        return self._run(reclaimer, _Shape(tuple(given), "some", reclaimer.current), values)

    def _run(self, reclaimer: KeyReclaimer, shape: _Shape, values: Any) -> int:
        statement = self._statements.get(shape)
        if statement is None:
            statement = self._statements[shape] = self._built(reclaimer, shape)
        binding = self._conflicting.binding
        if not self._looks_first:
            with with_hint(binding.table):
                return int(reclaimer.execute(statement, values).rowcount)
        if reclaimer.execute(statement, values).first() is None:
            return 0
        return reclaimer.displace(binding, self._criterion(shape, values))

    def _built(self, reclaimer: KeyReclaimer, shape: _Shape) -> Any:
        binding, criterion = self._conflicting.binding, self._criterion(shape)
        if self._looks_first:
            first = next(iter(binding.table.c))
            return reclaimer.looking(binding, [first]).where(criterion).limit(1)
        return SweepDelete(binding.table).where(
            expired_in(reclaimer.connection, binding), criterion
        )

    def _criterion(
        self, shape: _Shape, values: Mapping[str, Any] | None = None
    ) -> ColumnElement[bool]:
        """With places for values, or with values."""
        has = _has if shape.rows == "one" else _has_one_of
        conditions = (has(number, self._keys[number].key, values) for number in shape.keys)
        return self._conflicting.with_keys(or_(*conditions))


def _has(number: int, key: Key, values: Mapping[str, Any] | None) -> ColumnElement[bool]:
    return key.equals(
        {
            column: _bind(_bound(number, place), values, type_=column.type)
            for place, column in enumerate(key.columns)
        }
    )


def _has_one_of(number: int, key: Key, values: Mapping[str, Any] | None) -> ColumnElement[bool]:
    columns: Any = key.columns[0] if len(key.columns) == 1 else tuple_(*key.columns)
    return columns.in_(_bind(_bound(number), values, expanding=True, type_=columns.type))  # type: ignore[no-any-return]


def _bind(name: str, values: Mapping[str, Any] | None, **how: Any) -> BindParameter[Any]:
    return bindparam(name, **how) if values is None else bindparam(name, values[name], **how)


def _bound(number: int, place: int | None = None) -> str:
    return f"key_{number}" if place is None else f"key_{number}_{place}"

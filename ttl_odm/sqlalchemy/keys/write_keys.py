"""Which keys a write takes, and the statement that frees them of expired rows.

Neither the primary key nor a unique value of an expired row may block an INSERT, or an UPDATE that
moves a row there. Conflicts are rare, so such a write is sent first. Only after a conflict are the
expired rows deleted that hold exactly its keys, in the same transaction, and the write is sent
again; live rows stay, and it then fails on them as always. If a conflict would end the transaction,
as that of an UPDATE does on PostgreSQL, or if the conflicting rows can't be determined, as after
``executemany()``, the keys are freed before the write. In a race the losers wait for the winner's
row and then see it live, so exactly one wins.

Savepoint-and-retry can't do this: a failed flush rolls back the whole transaction, and on
PostgreSQL so does a failed statement.

The statement (`KeyPurge`) is built once per compiled write and executed with different values:
everything that can't change between two executions is kept, and SQLAlchemy's cache finds the
compiled one. Whether it runs after the write or before it is decided in
`ttl_odm.sqlalchemy.gate.execution`. Where possible it is a DELETE. On InnoDB, and for rows that
others depend on, or that must be archived or reported to hooks, it is a SELECT; if that finds a
row, `ttl_odm.sqlalchemy.keys.displace` deletes it.

A row that expires by a rule frees its keys too, and is deleted after the rows that depend on it
(`RuledRows`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from sqlalchemy import (
    BindParameter,
    Column,
    ColumnElement,
    Insert,
    and_,
    bindparam,
    or_,
    tuple_,
    union_all,
)

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.compat import (
    emitted,
    invoked,
    is_mysql,
    is_temporary,
    original,
    selected_names,
    value_lists,
)
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, default_of, with_defaults
from ttl_odm.sqlalchemy.keys.displace import (
    KeyReclaimer,
    must_select_first,
    purge_conditions,
    with_hint,
)
from ttl_odm.sqlalchemy.keys.table_keys import (
    ConflictingRows,
    Key,
    RuledRows,
    as_sql,
    as_stored,
    forms_of,
    in_form,
    is_kept,
    is_null,
    is_sql,
    keys_of,
)
from ttl_odm.sqlalchemy.policy.bindings import binding_of, sub_binding_of
from ttl_odm.sqlalchemy.policy.predicate import expired_in
from ttl_odm.sqlalchemy.policy.references import rule_of
from ttl_odm.sqlalchemy.purge.statements import PurgeDelete, chunks
from ttl_odm.sqlalchemy.rewrite.selections import selected_columns, selected_rows
from ttl_odm.sqlalchemy.rewrite.writes import has_writes, parameters_of, rows_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import CompoundSelect, Delete, Dialect, Select, Table
    from sqlalchemy.engine.default import DefaultExecutionContext

    from ttl_odm.sqlalchemy.keys.displace import PurgeConditions
    from ttl_odm.sqlalchemy.keys.table_keys import Values

    Row = Mapping[str, object]

_MOST_VALUES: Final = 5_000
"""Values in one statement. Databases allow more; MariaDB reads the whole table from 16,000 on."""

_MOST_TUPLES: Final = 200
"""Values of composite keys: with more, PostgreSQL's planning takes longer than the execution."""

_MOST_CONVERTED: Final = 64
"""Rows in one statement if values are compared as they are stored: each row has a condition."""

_MOST_CONDITIONS: Final = 200
"""Conditions of a statement, each for one key of one row: SQLite nests them at most 1,000 deep."""

_RESERVED: Final = 50
"""Bound values that the predicate may need beside the keys."""


class TakenKeys:
    """The keys of a table that a statement may take, and the rows that may have them."""

    def __init__(self, conflicting: ConflictingRows | RuledRows, keys: Iterable[Key]) -> None:
        self.conflicting = conflicting
        self.keys = tuple(keys)
        self._columns = tuple(dict.fromkeys(c for key in self.keys for c in key.columns))
        self._purge = _purge_of(conflicting, [NamedKey(key, key.names) for key in self.keys])

    @classmethod
    def of(
        cls, table: Table, dialect: Dialect, written: set[str] | None = None
    ) -> TakenKeys | None:
        """Return the keys that a write of these columns takes; None if no expired row has any.

        `written` is None for an INSERT, which writes all columns.
        """
        table = original(table)
        binding, sub = binding_of(table), sub_binding_of(table)
        conflicting: ConflictingRows | RuledRows
        if binding is not None:
            conflicting, keys = ConflictingRows(binding), keys_of(table, dialect)
        elif sub is not None:
            conflicting, keys = ConflictingRows(sub.base, sub), keys_of(table, dialect)
            if written is None:  # a new row has the primary key of its root, where it was freed
                shared = {own for own, _ in sub.keys}
                keys = [key for key in keys if not shared.issuperset(key.columns)]
        else:
            rule = rule_of(table)
            if rule is None:
                return None
            conflicting, keys = RuledRows(rule), keys_of(table, dialect)
        if written is not None:
            keys = [key for key in keys if key.is_changed_by(written)]
        return cls(conflicting, keys) if keys else None

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key of these rows (values by column key)."""
        plain = [{key: value for key, value in row.items() if not is_sql(value)} for row in rows]
        deleted = self._purge.free(reclaimer, plain)
        conditions = [
            same
            for key in self.keys
            for row in rows
            # Keys that the database computes, at least in part.
            if any(is_sql(row.get(name)) for name in key.names)
            if (same := key.held_by(row, reclaimer)) is not None
        ]
        return deleted + _displace_any(self.conflicting, reclaimer, conditions)

    def free_for_insert(
        self, reclaimer: KeyReclaimer, statement: Insert, rows: Iterable[Row], parameters: Row
    ) -> int:
        """Delete the expired rows that hold a key of the rows that an INSERT writes or selects.

        The parameters are those of the whole statement.
        """
        columns = selected_columns(statement)
        if not columns:
            completed = [
                with_defaults(row, self._columns, parameters, number)
                for number, row in enumerate(rows)
            ]
            return self.free(reclaimer, completed)
        selected: Any = statement.select
        values = selected_rows(statement, reclaimer.dialect)
        # Evaluating a write would write, and the columns of text have no names.
        if has_writes(selected) or len(values.c) != len(columns):
            return 0
        row = with_defaults(dict(zip(columns, values.c, strict=True)), self._columns, parameters)
        deleted, stored = 0, partial(as_stored, reclaimer)
        for key in self.keys:
            if row.keys() >= set(key.names):
                new = {column: stored(row[column.key], column) for column in key.columns}
                is_typed = not set(columns).issuperset(key.names)
                taken = key.selected(new, stored=stored, typed=is_typed)
                deleted += self.free_selected(reclaimer, key, taken)
        return deleted

    def free_selected(self, reclaimer: KeyReclaimer, key: Key, taken: Select[Any]) -> int:
        """Delete the expired rows that hold a value of one key that a SELECT returns."""
        conditions = key.held_by_selected(taken, reclaimer)
        return sum([self.conflicting.displace(reclaimer, same) for same in conditions])


class InsertedKeys:
    """Before an INSERT: the keys of its rows."""

    def __init__(self, taken: TakenKeys) -> None:
        self._taken = taken
        self._purge: KeyPurge | RuledPurge | None = None
        """Set after the first execution, if the rows are the statement's parameters."""

    @classmethod
    def of(cls, table: Table, dialect: Dialect) -> InsertedKeys | None:
        """Return this for an INSERT into a table; None if no expired row can be in its way."""
        taken = TakenKeys.of(table, dialect)
        return None if taken is None else cls(taken)

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key of the INSERT that is about to run."""
        reclaimer = KeyReclaimer.of(context, current=current)
        parameters = context.compiled_parameters
        if self._purge is not None:  # nearly always, from the second time on
            return self._purge.free(reclaimer, parameters)
        statement = emitted(invoked(context))
        if not (selected_names(statement) or value_lists(statement)):
            keys = self._named_keys(statement, parameters[0])
            if keys is not None:  # the names are the same in every execution
                self._purge = _purge_of(self._taken.conflicting, keys)
                return self._purge.free(reclaimer, parameters)
        rows = () if selected_names(statement) else rows_of(statement, parameters)
        return self._taken.free_for_insert(reclaimer, statement, rows, parameters[0])

    def _named_keys(self, statement: Insert, parameters: Row) -> list[NamedKey] | None:
        """Return the keys, named by parameters; None if SQL computes one.

        Keys that no other row can have yet are left out.
        """
        keys = []
        for key in self._taken.keys:
            names = parameters_of(statement, key.columns)
            if names is None:
                return None
            made = {
                column: default_of(column, {})
                for column, name in zip(key.columns, names, strict=True)
                if name not in parameters
            }
            if not any(
                value is UNKNOWN or (value is None and key.skips_nulls) for value in made.values()
            ):
                keys.append(NamedKey(key, names, made))
        return keys


class NamedKey:
    """A key, and the names under which a row has the values of its columns.

    Rows lack the columns that are `made`: the database gives these the same SQL in every row.
    """

    __slots__ = ("_always_converted", "columns", "is_plain", "key", "made", "names", "needs_all")

    def __init__(self, key: Key, names: Sequence[str], made: Values | None = None) -> None:
        named = [
            pair for pair in zip(key.columns, names, strict=True) if pair[0] not in (made or ())
        ]
        self.key = key
        self.columns = tuple([column for column, _ in named])
        self.names = tuple([name for _, name in named])
        self.made = {column: as_sql(value, column) for column, value in (made or {}).items()}
        self.is_plain = key.is_plain
        self.needs_all = key.is_plain or key.equates_nulls
        computed: list[tuple[Column[Any], Any]] = [(c, c.computed) for c in key.generated]
        always = [*self.made.items(), *((column, sql.sqltext) for column, sql in computed)]
        self._always_converted = [
            column
            for column, sql in always
            if not (is_kept(sql, column) or (key.equates_nulls and is_null(sql)))
        ]

    def with_nulls(self, names: Collection[str]) -> NamedKey:
        """Return the key for rows that have NULL under some of the names."""
        named = dict(zip(self.columns, self.names, strict=True))
        nulls = {column: None for column, name in named.items() if name in names}
        every = [named.get(column, "") for column in self.key.columns]
        return NamedKey(self.key, every, {**self.made, **nulls})

    def converted(self, rows: Sequence[Row]) -> Iterator[Column[Any]]:
        """Yield the columns that may store something else than the rows' values."""
        yield from self._always_converted
        for column, name in zip(self.columns, self.names, strict=True):
            if not all(is_kept(row.get(name), column) for row in rows):
                yield column

    def values_of(self, row: Row) -> tuple[object, ...] | None:
        """Return a row's values in the key, or None if they can't conflict with any.

        Columns with a NULL among them conflict with nothing, nor does a value that isn't known
        beforehand. Expressions may turn a NULL into a value. Where NULL is a value like others,
        such rows need a key of their own (`with_nulls`).
        """
        values = tuple([row.get(name) for name in self.names])
        if self.needs_all:
            return None if any(value is None for value in values) else values
        return values if all(name in row for name in self.names) else None


class _Shape(NamedTuple):
    """What a statement depends on, apart from its values.

    Attributes:
        keys: The numbers of the keys whose values it has.
        rows: Whether it has them for one row, for some, or for exactly this number.
        current: See `KeyReclaimer`.
        selects: Whether it is a SELECT. Another thread may be about to change that.
        forms: The SQL for what columns store, by column name.
    """

    keys: tuple[int, ...]
    rows: Literal["one", "some"] | int
    current: bool
    selects: bool
    forms: tuple[tuple[str, str], ...]


class KeyPurge:
    """Frees keys whose values are plain; each `NamedKey` names its columns in the rows."""

    def __init__(self, conflicting: ConflictingRows, keys: Sequence[NamedKey]) -> None:
        """Build nothing yet: statements depend on the dialect, and on the values of the rows."""
        self._conflicting = conflicting
        self._keys = keys
        self._has_tuples = any(len(key.names) > 1 for key in self._keys)
        self._width = sum(len(key.names) for key in self._keys) or 1
        self._has_expressions = not all(key.is_plain for key in self._keys)
        self._generated = {n for n, key in enumerate(self._keys) if key.key.generated}
        self._equating_nulls = [key for key in self._keys if key.key.equates_nulls and key.names]
        self._with_nulls: dict[tuple[NamedKey, frozenset[str]], KeyPurge] = {}
        """By key, and by the names under which rows have NULL in it."""
        self._conditions: PurgeConditions | None = None
        self._selects_first = False
        self._converts = False
        self._statements: dict[_Shape, Select[Any] | CompoundSelect[Any] | Delete] = {}

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take; return how many."""
        dialect, binding = reclaimer.dialect, self._conflicting.binding
        conditions = purge_conditions(binding, self._conditions)
        if conditions != self._conditions:  # since then, models or purges have been declared
            self._selects_first = must_select_first(binding, dialect)
            self._converts = clock_of(dialect).converts
            self._statements = {}
            self._conditions = conditions
        deleted = self._free_nulls(reclaimer, rows) if self._equating_nulls else 0
        forms = self._forms(reclaimer, rows)
        # SQLite reads the whole table for (a, b) IN (VALUES ...).
        is_one_each = self._has_expressions or (self._has_tuples and dialect.name == "sqlite")
        if is_one_each or len(rows) == 1:
            return deleted + self._free_singly(reclaimer, rows, forms)
        most = min(_MOST_VALUES, dialect.insertmanyvalues_max_parameters - _RESERVED)
        most //= self._width
        if self._has_tuples:
            most = min(most, _MOST_TUPLES)
        if forms:
            most = min(most, _MOST_CONVERTED)
        for start in range(0, len(rows), most):
            taken: dict[int, list[tuple[object, ...]]] = {}
            for number, key in enumerate(self._keys):
                values_of, some = key.values_of, rows[start : start + most]
                values = [value for row in some if (value := values_of(row)) is not None]
                if values:
                    taken[number] = values
            if taken:
                deleted += self._free_many(reclaimer, taken, forms)
        return deleted

    def _free_nulls(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Free the keys of rows with NULL in them, where two such rows have the same key."""
        deleted = 0
        for key in self._equating_nulls:
            by_nulls: dict[frozenset[str], list[Row]] = {}
            for row in rows:
                nulls = frozenset(name for name in key.names if row.get(name, UNKNOWN) is None)
                if nulls:
                    by_nulls.setdefault(nulls, []).append(row)
            for nulls, some in by_nulls.items():
                purge = self._with_nulls.get((key, nulls))
                if purge is None:
                    purge = KeyPurge(self._conflicting, [key.with_nulls(nulls)])
                    self._with_nulls[key, nulls] = purge
                deleted += purge.free(reclaimer, some)
        return deleted

    def _forms(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
        """Return the SQL for what columns store, where they may convert these rows' values."""
        if not self._converts:
            return ()
        columns = {column.name for key in self._keys for column in key.converted(rows)}
        if not columns:
            return ()
        every = forms_of(reclaimer, self._conflicting.table)
        return tuple(sorted((name, every[name]) for name in columns if name in every))

    def _free_many(
        self,
        reclaimer: KeyReclaimer,
        taken: Mapping[int, list[tuple[object, ...]]],
        forms: tuple[tuple[str, str], ...],
    ) -> int:
        """Use one statement for lists of values; for converted values, one for so many rows."""
        values: dict[str, object] = {}
        count = 1 << (max(map(len, taken.values())) - 1).bit_length() if forms else None
        for number, several in taken.items():
            names = self._keys[number].names
            if count is not None:
                for place in range(count):  # the last one is repeated
                    row = several[min(place, len(several) - 1)]
                    keys = (f"key_{number}_{n}_{place}" for n in range(len(names)))
                    values |= zip(keys, row, strict=True)
            elif names:
                single = len(names) == 1
                values[f"key_{number}"] = [value for (value,) in several] if single else several
        rows: Literal["some"] | int = count or "some"
        shape = _Shape(tuple(taken), rows, reclaimer.current, self._selects_first, forms)
        return self._run(reclaimer, shape, values)

    def _free_singly(
        self, reclaimer: KeyReclaimer, rows: Sequence[Row], forms: tuple[tuple[str, str], ...]
    ) -> int:
        """Use a statement for one row, in which a NULL isn't a key either."""
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
        # MySQL merges indexes for some 100 values, and with more reads the whole table. And for one
        # row InnoDB looks up each key without a lock on any other row, such as one that is being
        # inserted; for an OR it may read, and lock, all of a small table.
        dialect = reclaimer.dialect
        apart = is_mysql(dialect) or (shape.rows == "one" and dialect.name in MYSQL_FAMILY)
        # MySQL reads a temporary table, which no other session locks, once in a statement.
        apart = apart and not is_temporary(binding.table)
        if statement is None:
            criteria = self._criteria(shape, apart=apart)
            if shape.selects:
                first = next(iter(binding.table.c))
                rows = reclaimer.expired_rows(binding, [first]).limit(1)
                parts = [rows.where(criterion) for criterion in criteria]
                statement = union_all(*parts).limit(1) if len(parts) > 1 else parts[0]
            else:
                is_expired = expired_in(reclaimer.connection, binding)
                statement = PurgeDelete(binding.table).where(is_expired, *criteria)
            self._statements[shape] = statement
        if not shape.selects:
            with with_hint(binding.table):
                return int(reclaimer.execute(statement, values).rowcount)
        if reclaimer.read(binding.table, statement, values).first() is None:
            return 0
        criteria = self._criteria(shape, values, apart=apart)
        return sum([reclaimer.displace(binding, criterion) for criterion in criteria])

    def _criteria(
        self, shape: _Shape, values: Mapping[str, object] | None = None, *, apart: bool
    ) -> list[ColumnElement[bool]]:
        """Return a condition for each key (`apart`) or for all, with parameters or values."""

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
                parts = [named.key.has(column, value) for column, value in made.items()]
                if named.columns:
                    one = len(named.columns) == 1
                    columns: Any = named.columns[0] if one else tuple_(*named.columns)
                    taken = bind(f"key_{number}", expanding=True, type_=columns.type)
                    parts.append(columns.in_(taken))
                conditions.append(and_(*parts, *named.key.holding))
                continue
            rows = [""] if shape.rows == "one" else [f"_{row}" for row in range(shape.rows)]
            for row in rows:
                bound = {
                    column: bind(f"key_{number}_{place}{row}", type_=column.type)
                    for place, column in enumerate(named.columns)
                }
                own = {column: stored(value, column) for column, value in bound.items()}
                conditions.append(named.key.equals({**own, **made}, stored))
        return list(map(self._conflicting.at_root, conditions if apart else [or_(*conditions)]))


@dataclass(frozen=True, slots=True)
class RuledPurge:
    """Frees keys whose values are plain, like `KeyPurge`."""

    conflicting: RuledRows
    keys: Sequence[NamedKey]

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take; return how many."""
        return _displace_any(self.conflicting, reclaimer, list(self._held(rows, reclaimer)))

    def _held(self, rows: Sequence[Row], reclaimer: KeyReclaimer) -> Iterator[ColumnElement[bool]]:
        for named in self.keys:
            made = {column.key: value for column, value in named.made.items()}
            for row in rows:
                pairs = zip(named.columns, named.names, strict=True)
                values = {column.key: row[name] for column, name in pairs if name in row}
                held = named.key.held_by({**made, **values}, reclaimer)
                if held is not None:
                    yield held


def _purge_of(
    conflicting: ConflictingRows | RuledRows, keys: Sequence[NamedKey]
) -> KeyPurge | RuledPurge:
    """Return what frees keys whose values are plain."""
    if isinstance(conflicting, RuledRows):
        return RuledPurge(conflicting, keys)
    return KeyPurge(conflicting, keys)


def _displace_any(
    conflicting: ConflictingRows | RuledRows,
    reclaimer: KeyReclaimer,
    conditions: Sequence[ColumnElement[bool]],
) -> int:
    """Delete the expired rows that meet one of the conditions; return how many."""
    return sum(
        conflicting.displace(reclaimer, or_(*some)) for some in chunks(conditions, _MOST_CONDITIONS)
    )

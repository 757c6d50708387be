"""The rows that an UPDATE or DELETE is about to change, and the keys that an UPDATE gives them.

A statement from SQLAlchemy's cache was compiled for another one, with other values and other
aliases. So all but the simplest writes are examined again when they run (`TargetLookup`, with
`ttl_odm.sqlalchemy.rewrite.writes`).

The keys that an upsert inserts are freed like those of any INSERT
(`ttl_odm.sqlalchemy.keys.write_keys`). If its update half sets a key to something else, or one to
which rows refer, it is an UPDATE of the live rows that have a key of the new ones. `MetRows` makes
that UPDATE, which is prepared like any other.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Alias,
    BindParameter,
    ClauseElement,
    Column,
    Delete,
    SelectBase,
    TextClause,
    Update,
    literal,
    or_,
    update,
)
from sqlalchemy.sql import visitors
from sqlalchemy.sql.functions import Function

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.compat import Resolved
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, onupdate_of, with_defaults
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.table_keys import as_sql, as_stored, is_sql, keys_of
from ttl_odm.sqlalchemy.keys.write_keys import TakenKeys
from ttl_odm.sqlalchemy.rewrite.writes import (
    Assignment,
    Target,
    plain,
    rows_of,
    targets_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Dialect, Insert, Table
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.sqlalchemy.keys.table_keys import Key
    from ttl_odm.sqlalchemy.rewrite.writes import Parameters

    Row = Mapping[str, object]


class UpdatedKeys:
    """Before an UPDATE that sets a column of a key: the keys that its rows will have."""

    def __init__(self, taken: TakenKeys, lookup: TargetLookup | MetRows) -> None:
        self._taken = taken
        self._lookup = lookup
        self._known: dict[tuple[frozenset[str], tuple[Key, ...]], TakenKeys] = {}
        """The keys that are known from values, without a query for the rows.

        By the columns with such values, and the keys that the rows may have after the UPDATE.
        """
        columns = [column for key in taken.keys for column in key.columns]
        onupdates = {column.key: onupdate_of(column) for column in columns}
        self._onupdates = {k: value for k, value in onupdates.items() if value is not UNKNOWN}
        """The SQL that sets columns of keys by itself, by column key."""

    @classmethod
    def of(cls, target: Target, dialect: Dialect, met: MetRows | None = None) -> Self | None:
        """Return this for a table that a target changes; None if no expired row can be in its way.

        Keys that an upsert (`met`) sets to inserted values are left out: they have been freed
        already.
        """
        taken = TakenKeys.of(target.table, dialect, target.written)
        if taken is None or (met and all(met.inserted.issuperset(k.names) for k in taken.keys)):
            return None
        return cls(taken, met or TargetLookup(target))

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key which the UPDATE is about to write."""
        reclaimer = KeyReclaimer.of(context, current=current)
        return sum(
            self._free(reclaimer, target, executions)
            for target, executions in self._lookup.targets(context)
        )

    def _free(self, reclaimer: KeyReclaimer, target: Target, executions: Sequence[Row]) -> int:
        rows = [{**self._onupdates, **row} for row in target.rows(executions)]
        written = target.written.intersection(rows[0])
        plain = frozenset(name for name in written if not is_sql(rows[0][name]))
        keys = tuple(key for key in self._taken.keys if not all(map(key.is_left_by, rows)))
        known = self._known.get((plain, keys))
        if known is None:
            by_values = [key for key in keys if plain.issuperset(key.names)]
            known = self._known[plain, keys] = TakenKeys(self._taken.conflicting, by_values)
        deleted = known.free(reclaimer, rows) if known.keys else 0
        if target.acts:
            return deleted  # which rows it changes is known only after it has run
        stored = partial(as_stored, reclaimer)
        for key in set(keys).difference(known.keys):
            # A part of the key stays as it is in each row, or is computed from the row, so the
            # database computes the keys that the rows will have.
            for row, parameters in zip(rows, executions, strict=True):
                new = {
                    column: stored(row[column.key], column)
                    if column.key in written
                    else target.source.c[column.key]
                    for column in key.columns
                }
                matched = partial(target.matched, parameters)
                taken = key.selected(new, matched, stored, typed=True)
                deleted += self._taken.free_selected(reclaimer, key, taken)
        return deleted


class TargetLookup:
    """Finds a target of a compiled statement again, in the statement that is about to run."""

    def __init__(self, target: Target) -> None:
        write = target.statement.statement
        self._table = target.table
        self._kind = Update if isinstance(write, Update) else Delete
        self._is_inner = target.is_inner
        self._is_simple = (
            not target.is_inner
            and target.sources == [target.table]
            and len(target.statement.criteria) == len(compat.where_criteria(write))
        )

    def targets(
        self, context: DefaultExecutionContext
    ) -> list[tuple[Target, Sequence[Parameters]]]:
        """Return the target, with the parameters of its executions.

        For a target inside another statement, return all that may be it.
        """
        compiled: Any = context.compiled
        whole, executions = compat.invoked(context), context.compiled_parameters
        if self._is_simple:  # needs no compile state
            simple = Resolved(whole, [self._table], compat.where_criteria(whole))
            return [(target, executions) for target in targets_of(simple, compiled)]
        inner = (element for element in visitors.iterate(whole) if element is not whole)
        return [
            (target, executions)
            for write in (inner if self._is_inner else [whole])
            if isinstance(write, self._kind)
            for target in targets_of(
                compat.resolved(
                    write, context.dialect.statement_compiler(context.dialect, None), {}
                ),
                compiled,
                is_inner=self._is_inner,
            )
            if target.table is self._table
        ]


class MetRows:
    """The rows of a table that an upsert may meet; looked up like those of an UPDATE."""

    def __init__(self, target: Target, dialect: Dialect, inserted: frozenset[str]) -> None:
        self.target = target
        self.inserted = inserted
        """The columns that the update half sets to the inserted value of the same column."""
        self._keys = keys_of(target.table, dialect)

    @classmethod
    def of(cls, statement: Insert, half: compat.UpdateHalf, dialect: Dialect) -> MetRows | None:
        """Return those of an INSERT that is being compiled; None if no key of theirs changes."""
        values = half.values
        table: Any = compat.original(statement.table)
        inserted = frozenset(
            key for key, value in values.items() if _inserted_key(value, table) == key
        )
        moving = {key: value for key, value in values.items() if key not in inserted & half.met_by}
        target = _target(table, moving)
        return cls(target, dialect, inserted) if moving and target.may_change_keys else None

    def targets(self, context: DefaultExecutionContext) -> Iterator[tuple[Target, list[Row]]]:
        """Yield an UPDATE, without parameters, of the rows that each row of the INSERT meets."""
        statement = compat.emitted(compat.invoked(context))
        half = compat.update_half(statement)
        if half is None or compat.selected_names(statement):  # what it inserts isn't known yet
            return
        executions, table = context.compiled_parameters, self.target.table
        reclaimer = KeyReclaimer.of(context)
        columns = dict.fromkeys(column for key in self._keys for column in key.columns)
        for number, row in enumerate(rows_of(statement, executions)):
            parameters = executions[0 if compat.value_lists(statement) else number]
            new = with_defaults(row, columns, parameters, number)
            held = (key.held_by(new, reclaimer) for key in self._keys)
            met = [same for same in held if same is not None]
            fixed = partial(_fixed, new=new, table=table, parameters=parameters)
            if met:
                where = fixed(half.where)
                values = {key: fixed(value) for key, value in half.values.items()}
                known = {key: value for key, value in values.items() if value is not UNKNOWN}
                only = () if where is None or where is UNKNOWN else (where,)
                yield _target(table, known, or_(*met), *only), [{}]


def _target(table: Table, values: Row, *criteria: ColumnElement[bool]) -> Target:
    half = Resolved(update(table), [table], criteria)
    assignments = [Assignment(key, key, value) for key, value in values.items()]
    return Target(half, table, table, assignments, (), is_first=True, is_inner=True)


def _inserted_key(element: Any, table: Table) -> str | None:
    """Return the key of a column of the inserted row, if an element stands for one."""
    if isinstance(element, Function) and element.name.lower() == "values":  # MariaDB, MySQL
        (element,) = element.clauses
        return str(element.key)
    source = getattr(element, "table", None)
    if (
        isinstance(element, Column)
        and isinstance(source, Alias)
        and source.name in {"excluded", "inserted"}
        and compat.original(source.element) is table
    ):
        return element.key
    return None


def _fixed(value: object, *, new: Row, table: Table, parameters: Row) -> Any:
    """Return the value that an update half has for one new row, as it would stand in an UPDATE.

    `UNKNOWN` if text may name that row, or if a subquery would run in another statement.
    """
    value = plain(value, parameters)
    if not isinstance(value, ClauseElement):
        return value
    for element in visitors.iterate(value):
        key = _inserted_key(element, table)
        is_text = isinstance(element, TextClause) or getattr(element, "is_literal", False)
        if is_text or isinstance(element, SelectBase) or (key and new.get(key, UNKNOWN) is UNKNOWN):
            return UNKNOWN

    def replaced(element: Any, **_: object) -> Any:
        key = _inserted_key(element, table)
        if key is not None:
            return as_sql(new[key], table.c[key])
        if isinstance(element, BindParameter) and not compat.is_anonymous(element):
            return literal(parameters[element.key], element.type)
        return None

    return visitors.replacement_traverse(value, {}, replaced)

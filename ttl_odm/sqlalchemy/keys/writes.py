"""Which keys a write is about to take, to be freed of expired rows just before it.

Neither the primary key nor a unique value of an expired row may stand in the way of an INSERT,
or of an UPDATE that moves a row there. One statement before it deletes the expired rows that hold
exactly the keys that are about to be written, in the same transaction; live rows stay, and
the write then fails on them as it always would. In a race the losers wait for the winner's row
and then see it live: one wins, whoever it is.

Savepoint-and-retry can't do this: a failed flush rolls back the whole transaction, and on
PostgreSQL so does a failed statement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import Column, ColumnElement, Insert, literal, or_, select
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy.compat import original, selected_names, value_lists, where_criteria
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.lookup import ConflictingRows, Key, KeyPurge, NamedKey, keys_of
from ttl_odm.sqlalchemy.policy.binding import binding_of, sub_binding_of
from ttl_odm.sqlalchemy.purge.statements import filled, in_subquery, writes
from ttl_odm.sqlalchemy.rewrite.stamps import (
    inner_rows,
    is_sql,
    parameters_of,
    rows_of,
    selected_columns,
    written_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    Row = Mapping[str, Any]


class TakenKeys:
    """The keys of a table that a statement may take, and the rows that may have them."""

    def __init__(self, conflicting: ConflictingRows, keys: Iterable[Key]) -> None:
        self.conflicting = conflicting
        self.keys = tuple(keys)
        self._purge = KeyPurge(conflicting, [NamedKey(key, key.names) for key in self.keys])

    @classmethod
    def of(cls, table: Any, written: set[str] | None = None) -> TakenKeys | None:
        """Those that a write of these columns (None: of any) takes; None if no expired row can."""
        table = original(table)
        binding, sub = binding_of(table), sub_binding_of(table)
        if binding is not None:
            conflicting, keys = ConflictingRows(binding), keys_of(table)
        elif sub is not None:
            # Its primary key is that of the root, where it is freed.
            shared = {own for own, _ in sub.keys}
            conflicting = ConflictingRows(sub.base, sub)
            keys = [key for key in keys_of(table) if not shared.issuperset(key.columns)]
        else:
            return None
        if written is not None:
            keys = [key for key in keys if written.intersection(key.names)]
        return cls(conflicting, keys) if keys else None

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key of these rows, by column key."""
        plain = [{key: value for key, value in row.items() if not is_sql(value)} for row in rows]
        deleted = self._purge.free(reclaimer, plain)
        conditions = []  # for keys that the database computes, in part at least
        for key in self.keys:
            for row in rows:
                values = {column: row.get(column.key) for column in key.columns}
                if not any(value is None for value in values.values()) and any(
                    map(is_sql, values.values())
                ):
                    made = {column: _as_sql(value, column) for column, value in values.items()}
                    conditions.append(key.equals(made))
        if conditions:
            deleted += self._displace(reclaimer, or_(*conditions))
        return deleted

    def free_for_insert(
        self, reclaimer: KeyReclaimer, statement: Insert, rows: Iterable[Row]
    ) -> int:
        """The same for the rows of an INSERT, or what it selects."""
        columns = selected_columns(statement)
        if not columns:
            return self.free(reclaimer, list(rows))
        selected: Any = statement.select
        values = selected.subquery()
        # What writes would write; what text selects has no names.
        if writes(selected) or len(values.c) != len(columns):
            return 0
        place = dict(zip(columns, values.c, strict=True))
        return sum(
            self.free_selected(
                reclaimer, key, {column: place[column.key] for column in key.columns}
            )
            for key in self.keys
            if place.keys() >= set(key.names)
        )

    def free_selected(
        self,
        reclaimer: KeyReclaimer,
        key: Key,
        values: Mapping[Column[Any], Any],
        *criteria: ColumnElement[bool],
        row: Row | None = None,
    ) -> int:
        """The same for one key, with the values that a SELECT finds; a row fills its parameters."""
        taken = filled(select(*key.made_of(values)).where(*criteria), row or {})
        return self._displace(reclaimer, in_subquery(key.parts, taken))

    def _displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        return reclaimer.displace(self.conflicting.binding, self.conflicting.with_keys(condition))


class _KeysOfWrite:
    """Before a write: the keys that it takes."""

    def __init__(self, taken: TakenKeys) -> None:
        self._taken = taken

    @classmethod
    def of(cls, table: object, written: set[str] | None = None) -> Self | None:
        """For a write to a table; None where no expired row can be in its way."""
        taken = TakenKeys.of(table, written)
        return None if taken is None else cls(taken)


class InsertedKeys(_KeysOfWrite):
    """Before an INSERT: the keys of its rows."""

    _purge: KeyPurge | None = None
    """Known once the statement has run, if its rows are its parameters."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key of the INSERT which is about to run."""
        reclaimer = KeyReclaimer.of(context, current=current)
        parameters = context.compiled_parameters
        if self._purge is not None:  # nearly always, from the second time on
            return self._purge.free(reclaimer, parameters)
        statement: Any = context.invoked_statement
        if not (selected_names(statement) or value_lists(statement)):
            named = [
                NamedKey(key, names)
                for key in self._taken.keys
                if (names := parameters_of(statement, key.columns)) is not None
            ]
            if len(named) == len(self._taken.keys):  # every execution of it is alike
                self._purge = KeyPurge(self._taken.conflicting, named)
                return self._purge.free(reclaimer, parameters)
        rows = () if selected_names(statement) else rows_of(statement, parameters)
        return self._taken.free_for_insert(reclaimer, statement, rows)


class InnerInserts(_KeysOfWrite):
    """Before a statement with INSERTs into one table in its CTEs: the keys of their rows."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key which one of them takes."""
        reclaimer = KeyReclaimer.of(context, current=current)
        whole: Any = context.invoked_statement
        inserts = [
            element
            for element in visitors.iterate(whole)
            if isinstance(element, Insert) and element is not whole
            if original(element.table) is self._taken.conflicting.table
        ]
        return sum(
            self._taken.free_for_insert(reclaimer, inner, inner_rows(inner, parameters))
            for inner in inserts
            for parameters in context.compiled_parameters
        )


class UpdatedKeys(_KeysOfWrite):
    """Before an UPDATE that sets a column of a key: the keys that its rows will have."""

    _known: TakenKeys | None = None
    """Those that its values tell, without a look at its rows."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key which the UPDATE is about to write."""
        statement: Any = context.invoked_statement
        compiled: Any = context.compiled
        reclaimer = KeyReclaimer.of(context, current=current)
        written = written_columns(statement, compiled)
        rows = list(rows_of(statement, context.compiled_parameters))
        if self._known is None:
            known = {name for name in written if not is_sql(rows[0].get(name))}
            keys = [key for key in self._taken.keys if known.issuperset(key.names)]
            self._known = TakenKeys(self._taken.conflicting, keys)
        deleted = self._known.free(reclaimer, rows) if self._known.keys else 0
        criteria = where_criteria(statement)
        if writes(*criteria):
            return deleted  # which rows it changes is known once it has run
        for key in set(self._taken.keys).difference(self._known.keys):
            # A part of the key stays as it is in each row, or is computed from the row: the
            # database tells the keys that the rows will have.
            for row in rows:
                new = {
                    column: _as_sql(row.get(column.key), column)
                    if column.key in written
                    else column
                    for column in key.columns
                }
                deleted += self._taken.free_selected(reclaimer, key, new, *criteria, row=row)
        return deleted


def _as_sql(value: Any, column: Column[Any]) -> ColumnElement[Any]:
    return value if is_sql(value) else literal(value, column.type)

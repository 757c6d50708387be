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

from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import Insert, and_, or_
from sqlalchemy.sql import visitors

from ttl_odm.sqlalchemy.compat import (
    emitted,
    invoked,
    original,
    selected_names,
    value_lists,
)
from ttl_odm.sqlalchemy.keys.conversions import as_stored
from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN, default_of, onupdate_of, with_defaults
from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
from ttl_odm.sqlalchemy.keys.lookup import (
    ConflictingRows,
    Key,
    NamedKey,
    keys_of,
)
from ttl_odm.sqlalchemy.keys.ruled import RuledRows
from ttl_odm.sqlalchemy.policy.binding import binding_of, sub_binding_of
from ttl_odm.sqlalchemy.policy.rules import rule_of
from ttl_odm.sqlalchemy.purge.statements import in_subquery
from ttl_odm.sqlalchemy.rewrite.selections import selected_columns, selected_rows
from ttl_odm.sqlalchemy.rewrite.target_lookup import TargetLookup
from ttl_odm.sqlalchemy.rewrite.writes import has_writes, inner_rows, is_sql, parameters_of, rows_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sqlalchemy import ColumnElement, Select
    from sqlalchemy.engine.default import DefaultExecutionContext
    from typing_extensions import Self

    from ttl_odm.sqlalchemy.keys.lookup import KeyPurge
    from ttl_odm.sqlalchemy.keys.ruled import RuledPurge
    from ttl_odm.sqlalchemy.keys.upserts import MetRows
    from ttl_odm.sqlalchemy.rewrite.writes import Target

    Row = Mapping[str, Any]


class TakenKeys:
    """The keys of a table that a statement may take, and the rows that may have them."""

    def __init__(self, conflicting: ConflictingRows | RuledRows, keys: Iterable[Key]) -> None:
        self.conflicting = conflicting
        self.keys = tuple(keys)
        self._columns = tuple(dict.fromkeys(c for key in self.keys for c in key.columns))
        self._purge = conflicting.purge_of(NamedKey(key, key.names) for key in self.keys)

    @classmethod
    def of(cls, table: Any, written: set[str] | None = None) -> TakenKeys | None:
        """Those that a write of these columns (None: of any) takes; None if no expired row can."""
        table = original(table)
        binding, sub = binding_of(table), sub_binding_of(table)
        conflicting: ConflictingRows | RuledRows
        if binding is not None:
            conflicting, keys = ConflictingRows(binding), keys_of(table)
        elif sub is not None:
            conflicting, keys = ConflictingRows(sub.base, sub), keys_of(table)
            if written is None:  # the primary key of a new row is that of the root, and free there
                shared = {own for own, _ in sub.keys}
                keys = [key for key in keys if not shared.issuperset(key.columns)]
        else:
            rule = rule_of(table)
            if rule is None:
                return None
            conflicting, keys = RuledRows(rule), keys_of(table)
        if written is not None:
            keys = [key for key in keys if key.is_changed_by(written)]
        return cls(conflicting, keys) if keys else None

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key of these rows, by column key."""
        plain = [{key: value for key, value in row.items() if not is_sql(value)} for row in rows]
        deleted = self._purge.free(reclaimer, plain)
        conditions = [
            same
            for key in self.keys
            for row in rows
            # What the database computes, in part at least.
            if any(is_sql(row.get(name)) for name in key.names)
            if (same := key.held_by(row, reclaimer)) is not None
        ]
        if conditions:
            deleted += self._displace(reclaimer, or_(*conditions))
        return deleted

    def free_for_insert(
        self, reclaimer: KeyReclaimer, statement: Insert, rows: Iterable[Row], parameters: Row
    ) -> int:
        """The same for the rows of an INSERT, or what it selects.

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
        # What writes would write; what text selects has no names.
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
        """The same for one key, with the values that a SELECT finds."""
        return self._displace(reclaimer, and_(in_subquery(key.parts, taken), *key.holding))

    def _displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        return self.conflicting.displace(reclaimer, condition)


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

    _purge: KeyPurge | RuledPurge | None = None
    """Known once the statement has run, if its rows are its parameters."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key of the INSERT which is about to run."""
        reclaimer = KeyReclaimer.of(context, current=current)
        parameters = context.compiled_parameters
        if self._purge is not None:  # nearly always, from the second time on
            return self._purge.free(reclaimer, parameters)
        statement = emitted(invoked(context))
        if not (selected_names(statement) or value_lists(statement)):
            named = [self._named(key, statement, parameters[0]) for key in self._taken.keys]
            if UNKNOWN not in named:  # every execution of it is alike
                self._purge = self._taken.conflicting.purge_of(filter(None, named))
                return self._purge.free(reclaimer, parameters)
        rows = () if selected_names(statement) else rows_of(statement, parameters)
        return self._taken.free_for_insert(reclaimer, statement, rows, parameters[0])

    def _named(self, key: Key, statement: Insert, parameters: Row) -> Any:
        """Where the parameters have a key; None if it is nowhere, `UNKNOWN` if it is computed."""
        names = parameters_of(statement, key.columns)
        if names is None:
            return UNKNOWN
        made = {
            column: default_of(column, {})
            for column, name in zip(key.columns, names, strict=True)
            if name not in parameters
        }
        is_new = any(
            value is UNKNOWN or (value is None and key.is_plain) for value in made.values()
        )
        return None if is_new else NamedKey(key, names, made)


class InnerInserts(_KeysOfWrite):
    """Before a statement with INSERTs into one table in its CTEs: the keys of their rows."""

    def prepare(self, context: DefaultExecutionContext, *, current: bool = False) -> int:
        """Delete the expired rows that hold a key which one of them takes."""
        reclaimer = KeyReclaimer.of(context, current=current)
        whole = invoked(context)
        inserts = [
            element
            for element in visitors.iterate(whole)
            if isinstance(element, Insert) and element is not whole
            if original(element.table) is self._taken.conflicting.table
        ]
        return sum(
            self._taken.free_for_insert(reclaimer, inner, inner_rows(inner, parameters), parameters)
            for inner in inserts
            for parameters in context.compiled_parameters
        )


class UpdatedKeys:
    """Before an UPDATE that sets a column of a key: the keys that its rows will have."""

    def __init__(self, taken: TakenKeys, lookup: TargetLookup | MetRows) -> None:
        self._taken = taken
        self._lookup = lookup
        self._known: dict[tuple[frozenset[str], tuple[Key, ...]], TakenKeys] = {}
        """Those that values tell, without a look at the rows.

        By the columns with such values, and the keys that the rows may have after the UPDATE.
        """
        columns = [column for key in taken.keys for column in key.columns]
        onupdates = {column.key: onupdate_of(column) for column in columns}
        self._onupdates = {k: value for k, value in onupdates.items() if value is not UNKNOWN}
        """What SQL sets columns of keys to, by itself."""

    @classmethod
    def of(cls, target: Target, met: MetRows | None = None) -> Self | None:
        """For a table that it changes; None where no expired row can be in its way.

        Of an upsert (`met`), what is inserted for a key has been freed already.
        """
        taken = TakenKeys.of(target.table, target.written)
        if taken is None or (met and all(met.brought.issuperset(k.names) for k in taken.keys)):
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
        given = tuple(key for key in self._taken.keys if not all(map(key.is_left_by, rows)))
        known = self._known.get((plain, given))
        if known is None:
            keys = [key for key in given if plain.issuperset(key.names)]
            known = self._known[plain, given] = TakenKeys(self._taken.conflicting, keys)
        deleted = known.free(reclaimer, rows) if known.keys else 0
        if target.acts:
            return deleted  # which rows it changes is known once it has run
        stored = partial(as_stored, reclaimer)
        for key in set(given).difference(known.keys):
            # A part of the key stays as it is in each row, or is computed from the row: the
            # database tells the keys that the rows will have.
            for row, parameters in zip(rows, executions, strict=True):
                new = {
                    column: stored(row[column.key], column)
                    if column.key in written
                    else target.source.c[column.key]
                    for column in key.columns
                }
                matched = partial(target.matched, parameters)
                taken = key.selected(new, matched, stored)
                deleted += self._taken.free_selected(reclaimer, key, taken)
        return deleted

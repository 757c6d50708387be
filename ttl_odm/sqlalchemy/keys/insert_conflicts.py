"""The rows that an INSERT leaves out, since a live row has one of their keys.

``ON CONFLICT DO NOTHING`` and ``INSERT IGNORE`` don't write such a row, so it renews no parent.
Rows are looked up before the INSERT, which doesn't report afterwards which of them it wrote. If
that is in doubt, as with a partial unique index, a row counts as written: no parent dies too early.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import exists, literal_column, or_, select

from ttl_odm.sqlalchemy.keys.defaults import UNKNOWN
from ttl_odm.sqlalchemy.keys.table_keys import as_stored, is_sql, keys_of
from ttl_odm.sqlalchemy.policy.predicate import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.rewrite.writes import filled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Column, ColumnElement, Table

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.keys.table_keys import Key

    Row = Mapping[str, object]

_AT_ONCE: Final = 100
"""The number of rows that one statement looks up."""


class IgnoredRows:
    """The rows of one INSERT that conflict with a live row of its table."""

    def __init__(self, table: Table, reclaimer: KeyReclaimer) -> None:
        self._table = table
        self._reclaimer = reclaimer
        self._keys = [key for key in keys_of(table, reclaimer.dialect) if key.condition is None]
        self.columns: tuple[Column[Any], ...] = tuple(
            dict.fromkeys(column for key in self._keys for column in key.columns)
        )

    def among(self, rows: Sequence[Row], executions: Sequence[Row]) -> set[int]:
        """Return the numbers of rows that conflict with a live row or an earlier one of these."""
        held: dict[int, Any] = {}
        for number, row in enumerate(rows):
            conditions = (key.held_by(row, self._reclaimer) for key in self._keys)
            some = [condition for condition in conditions if condition is not None]
            if some:
                live: Any = select(literal_column("1")).select_from(self._table).where(or_(*some))
                held[number] = filled(live, executions[number]).exists()
        met, numbers = set(), list(held)
        for start in range(0, len(numbers), _AT_ONCE):
            places = numbers[start : start + _AT_ONCE]
            lookups: Any = select(*(held[number].label(f"row_{number}") for number in places))
            lookups = lookups.execution_options(**{INCLUDE_EXPIRED: False})
            answers = self._reclaimer.execute(lookups).one()
            met |= {number for number, is_met in zip(places, answers, strict=True) if is_met}
        return met | self._repeated(rows, met)

    def _repeated(self, rows: Sequence[Row], met: set[int]) -> set[int]:
        """Return the numbers of the rows with the key of an earlier row that is written."""
        repeated, seen = set(), set[object]()
        for number, row in enumerate(rows):
            if number in met:
                continue
            own = {(place, values) for place, values in enumerate(map(_values(row), self._keys))}
            own = {(place, values) for place, values in own if values is not None}
            if own & seen:
                repeated.add(number)
            else:
                seen |= own
        return repeated

    def unmet(self, values: Row) -> list[ColumnElement[bool]]:
        """Return the conditions for a selected row, by column key, to conflict with no live row."""
        stored = partial(as_stored, self._reclaimer)
        conditions = []
        for key in self._keys:
            if values.keys() >= set(key.names):
                new = {column: stored(values[column.key], column) for column in key.columns}
                same = key.equals(new, stored)
                conditions.append(~exists().select_from(self._table).where(same))
        return conditions


def _values(row: Row) -> Callable[[Key], tuple[object, ...] | None]:
    """Return a function of a key that returns its values in a row; None unless all are plain."""

    def of(key: Key) -> tuple[object, ...] | None:
        values = tuple(row.get(name, UNKNOWN) for name in key.names)
        is_unknown = any(
            value is UNKNOWN or is_sql(value) or (value is None and key.skips_nulls)
            for value in values
        )
        try:
            hash(values)
        except TypeError:
            return None
        return None if is_unknown or not key.is_plain else values

    return of

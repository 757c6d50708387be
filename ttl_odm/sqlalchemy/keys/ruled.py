"""The rows that may hold a key of a table with a rule: `RuledRows`.

A row whose parent has expired is expired, so its keys are free too, and it keeps no other from
going. It goes after what hangs on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import or_

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Table

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.keys.table_keys import NamedKey
    from ttl_odm.sqlalchemy.policy.rules import Rule

    Row = Mapping[str, Any]

_BATCH: Final = 200
"""Rows whose keys one statement names: SQLite nests conditions at most 1,000 deep."""


@dataclass(frozen=True, slots=True)
class RuledRows:
    """The rows of a table with a rule; what `ConflictingRows` is for a policy."""

    rule: Rule

    @property
    def table(self) -> Table:
        """The table that the keys are in."""
        return self.rule.table

    def purge_of(self, keys: Iterable[NamedKey]) -> RuledPurge:
        """What frees keys whose values are plain."""
        return RuledPurge(self, tuple(keys))

    def displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        """Delete those that a condition finds, and that are expired; return how many."""
        return reclaimer.displace_ruled(self.rule, condition)


@dataclass(frozen=True, slots=True)
class RuledPurge:
    """Frees keys whose values are plain; as `KeyPurge` does for rows with a policy."""

    conflicting: RuledRows
    keys: Sequence[NamedKey]

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take; return how many."""
        return sum(
            self.conflicting.displace(reclaimer, or_(*conditions))
            for start in range(0, len(rows), _BATCH)
            if (conditions := list(self._held(rows[start : start + _BATCH], reclaimer)))
        )

    def _held(self, rows: Sequence[Row], reclaimer: KeyReclaimer) -> Iterator[ColumnElement[bool]]:
        for named in self.keys:
            made = {column.key: value for column, value in named.made.items()}
            for row in rows:
                pairs = zip(named.columns, named.names, strict=True)
                values = {column.key: row[name] for column, name in pairs if name in row}
                held = named.key.held_by({**made, **values}, reclaimer)
                if held is not None:
                    yield held

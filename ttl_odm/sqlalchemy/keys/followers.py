"""The rows that may hold a key of a table whose rows follow others: `FollowingRows`.

A row whose parent has expired is expired, so its keys are free too. It has nothing in it that says
so, hence the rows with a key are looked up, and those of them that are live; the others go, after
what follows them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import or_, select

from ttl_odm.sqlalchemy.policy.binding import key_columns, root_binding_of
from ttl_odm.sqlalchemy.policy.following import following_of
from ttl_odm.sqlalchemy.policy.foreign_keys import Change
from ttl_odm.sqlalchemy.policy.parameters import INCLUDE_EXPIRED
from ttl_odm.sqlalchemy.purge.followers import FollowersRemoval, seal
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Table

    from ttl_odm.sqlalchemy.keys.displace import KeyReclaimer
    from ttl_odm.sqlalchemy.keys.lookup import NamedKey
    from ttl_odm.sqlalchemy.policy.following import Following

    Row = Mapping[str, Any]

    Keys = Sequence[Sequence[Any]]

_BATCH: Final = 200
"""Rows whose keys one statement names: SQLite nests conditions at most 1,000 deep."""


@dataclass(frozen=True, slots=True)
class FollowingRows:
    """The rows of a table that follow others."""

    following: Following

    @property
    def table(self) -> Table:
        """The table that the keys are in."""
        return self.following.table

    def purge_of(self, keys: Iterable[NamedKey]) -> FollowersPurge:
        """What frees keys whose values are plain."""
        return FollowersPurge(self, tuple(keys))

    def displace(self, reclaimer: KeyReclaimer, condition: ColumnElement[bool]) -> int:
        """Delete those that a condition finds, and that are expired; return how many."""
        table, connection = self.table, reclaimer.connection
        columns, own = key_columns(table), self.following.links().own
        rows: Any = SweepSelect(*columns, *own).where(condition)
        if reclaimer.current and clock_of(reclaimer.dialect).locks_rows:
            rows = rows.with_for_update(read=True)
        held = reclaimer.read(table, rows).all()
        if not held:
            return 0
        width = len(columns)
        keys = [tuple(row[:width]) for row in held]
        live: Any = select(*columns).where(is_one_of(columns, keys))
        live = live.execution_options(**{INCLUDE_EXPIRED: False})
        found = set(map(tuple, reclaimer.execute(live)))
        expired = [row for row, key in zip(held, keys, strict=True) if key not in found]
        if not expired:
            return 0
        _seal_root(reclaimer, self.following, [tuple(row[width:]) for row in expired])
        doomed = is_one_of(columns, [tuple(row[:width]) for row in expired])
        below = reclaimer.clear_below(Change(table), doomed)
        removal = FollowersRemoval(connection)
        removal.of_table(table, doomed)
        return below + removal.removed.total()


@dataclass(frozen=True, slots=True)
class FollowersPurge:
    """Frees keys whose values are plain; as `KeyPurge` does for rows with a policy."""

    conflicting: FollowingRows
    keys: Sequence[NamedKey]

    def free(self, reclaimer: KeyReclaimer, rows: Sequence[Row]) -> int:
        """Delete the expired rows that hold a key which rows are about to take; return how many."""
        return sum(
            self.conflicting.displace(reclaimer, or_(*conditions))
            for start in range(0, len(rows), _BATCH)
            if (conditions := list(self._held(rows[start : start + _BATCH])))
        )

    def _held(self, rows: Sequence[Row]) -> Iterator[ColumnElement[bool]]:
        for named in self.keys:
            made = {column.key: value for column, value in named.made.items()}
            for row in rows:
                pairs = zip(named.columns, named.names, strict=True)
                values = {column.key: row[name] for column, name in pairs if name in row}
                held = named.key.held_by({**made, **values})
                if held is not None:
                    yield held


def _seal_root(reclaimer: KeyReclaimer, following: Following, keys: Keys) -> None:
    """See that what rows followed stays expired, since it isn't whole any more."""
    links, some = following.links(), [key for key in keys if None not in key]
    above = following_of(links.parent)
    while some:
        columns = key_columns(links.parent) if above is None else above.links().own
        parents = SweepSelect(*columns).where(is_one_of(links.theirs, some))
        some = [tuple(row) for row in reclaimer.execute(parents) if None not in tuple(row)]
        if above is None:
            binding = root_binding_of(links.parent)
            if binding is not None and some:
                seal(reclaimer.connection, binding, some)
            return
        links, above = above.links(), following_of(above.links().parent)

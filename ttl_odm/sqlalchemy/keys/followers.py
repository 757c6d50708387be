"""The rows that may hold a key of a table whose rows follow others: `FollowingRows`.

A row whose parent has expired is expired, so its keys are free too, and it keeps no other from
going. It goes after what follows it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, or_, select

from ttl_odm.sqlalchemy.policy.binding import key_columns
from ttl_odm.sqlalchemy.policy.following import following_of, root_of
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.followers import FollowersRemoval, seal
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, FromClause, Table

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
        return reclaimer.displace_followers(self.following, condition)


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


def remove_followers(reclaimer: KeyReclaimer, following: Following, keys: Keys) -> int:
    """Delete expired rows, by primary key, after all that follows them; return how many.

    What they followed isn't whole any more, so it is locked, and made to stay expired. Rows stay
    that are live again by then.
    """
    columns, removal = key_columns(following.table), FollowersRemoval(reclaimer.connection)
    for start in range(0, len(keys), _BATCH):
        doomed = _doomed(reclaimer, following, is_one_of(columns, keys[start : start + _BATCH]))
        if doomed:
            removal.of_table(following.table, is_one_of(columns, doomed))
    return removal.removed.total()


def _doomed(
    reclaimer: KeyReclaimer, following: Following, condition: ColumnElement[bool]
) -> list[tuple[Any, ...]]:
    """The keys of rows whose root has expired, and is locked and sealed now; and of orphans.

    The root is locked before the rows, as in a sweep.
    """
    own = key_columns(following.table)
    source: FromClause = following.table
    joined: FromClause = following.table
    levels = [following]
    met: list[ColumnElement[Any]] = []
    for level in levels:
        links = level.links()
        parent = links.parent.alias()
        same = (source.c[mine.key] == parent.c[theirs.key] for mine, theirs in links.pairs)
        joined = joined.outerjoin(parent, and_(*same))
        met.append(parent.c[links.theirs[0].key])
        source, above = parent, following_of(links.parent)
        if above is not None:
            levels.append(above)
    binding = root_of(following.table)
    assert binding is not None  # noqa: S101 (that is where a chain ends)
    root = [source.c[column.key] for column in key_columns(binding.table)]
    found: Any = select(*own, *met, *root).select_from(joined).where(condition)
    doomed: list[tuple[Any, ...]] = []
    under: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for row in reclaimer.execute(found.options(include_expired())):
        key, parents = tuple(row[: len(own)]), row[len(own) : len(own) + len(met)]
        if None not in parents:
            under[tuple(row[len(own) + len(met) :])].append(key)
        elif levels[list(parents).index(None)].declared.orphan == "expired":
            doomed.append(key)
    if under:
        columns = key_columns(binding.table)
        roots: Any = SweepSelect(*columns).where(is_one_of(columns, under))
        roots = roots.where(expired_in(reclaimer.connection, binding))
        if clock_of(reclaimer.dialect).locks_rows:
            roots = roots.with_for_update()
        expired = [tuple(row) for row in reclaimer.execute(roots)]
        seal(reclaimer.connection, binding, expired)
        doomed += [key for row in expired for key in under[row]]
    return doomed

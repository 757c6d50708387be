"""Removing expired followers that are in the way of a write, by their keys.

Their parents then lack some of their followers. So the row at the root is locked first, as in a
sweep, and sealed, so that it stays expired.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import select

from ttl_odm.follows.sqlalchemy.follower import ancestry
from ttl_odm.follows.sqlalchemy.removal import FollowersRemoval, seal
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import expired_in, include_expired
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.policy.rules import Execute, Keys

_BATCH: Final = 200
"""Rows whose keys one statement names: SQLite nests conditions at most 1,000 deep."""


def remove_followers(
    connection: Connection, execute: Execute, following: Following, keys: Keys
) -> int:
    """Delete expired rows after all their followers; return how many of all these rows.

    Rows that are live again by then stay.

    Args:
        connection: Where they are.
        execute: Executes a statement there, with the options of the write.
        following: The rule of their table.
        keys: Their primary keys.
    """
    columns, removal = key_columns(following.table), FollowersRemoval(connection)
    for start in range(0, len(keys), _BATCH):
        some = keys[start : start + _BATCH]
        doomed = _doomed(connection, execute, following, is_one_of(columns, some))
        if doomed:
            removal.of_table(following.table, is_one_of(columns, doomed))
    return removal.removed.total()


def _doomed(
    connection: Connection,
    execute: Execute,
    following: Following,
    condition: ColumnElement[bool],
) -> list[tuple[Any, ...]]:
    """The keys of expired rows, including orphans; their roots are locked and sealed."""
    own, above = key_columns(following.table), ancestry(following.table, keeps_orphans=True)
    parents = [parent.c[level.links().theirs[0].key] for level, parent in above.levels]
    binding = root_of(following.table)
    assert binding is not None  # noqa: S101 (that is where a chain ends)
    root = [above.root.c[column.key] for column in key_columns(binding.table)]
    rows: Any = select(*own, *parents, *root).select_from(above.joined).where(condition)
    doomed: list[tuple[Any, ...]] = []
    under: dict[tuple[Any, ...], list[tuple[Any, ...]]] = defaultdict(list)
    width, end = len(own), len(own) + len(parents)
    for row in execute(rows.options(include_expired())):
        key, chain = tuple(row[:width]), list(row[width:end])
        if None not in chain:
            under[tuple(row[end:])].append(key)
        elif above.levels[chain.index(None)][0].declared.orphan == "expired":
            doomed.append(key)
    if under:
        columns = key_columns(binding.table)
        roots: Any = SweepSelect(*columns).where(is_one_of(columns, under))
        roots = roots.where(expired_in(connection, binding, locking=True))
        if clock_of(connection.dialect).locks_rows:
            roots = roots.with_for_update()
        expired = [tuple(row) for row in execute(roots)]
        seal(connection, binding, expired)
        doomed += [key for row in expired for key in under[row]]
    return doomed

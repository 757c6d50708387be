"""Removing expired followers by their keys, from under a root that is locked and sealed."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, select

from ttl_odm.follows.sqlalchemy.following import following_of
from ttl_odm.follows.sqlalchemy.removal import FollowersRemoval, seal
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement, Connection, FromClause

    from ttl_odm.follows.sqlalchemy.following import Following
    from ttl_odm.sqlalchemy.policy.rules import Execute, Keys

_BATCH: Final = 200
"""Rows whose keys one statement names: SQLite nests conditions at most 1,000 deep."""


def remove_followers(
    connection: Connection, execute: Execute, following: Following, keys: Keys
) -> int:
    """Delete expired rows, by primary key, after all that follows them; return how many.

    What they followed isn't whole any more, so it is locked, and made to stay expired. Rows stay
    that are live again by then.

    Args:
        connection: Where they are.
        execute: Executes a statement there, with the options of the write.
        following: What the rows follow.
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
    for row in execute(found.options(include_expired())):
        key, parents = tuple(row[: len(own)]), row[len(own) : len(own) + len(met)]
        if None not in parents:
            under[tuple(row[len(own) + len(met) :])].append(key)
        elif levels[list(parents).index(None)].declared.orphan == "expired":
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

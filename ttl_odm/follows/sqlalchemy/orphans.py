"""Orphans: rows whose parent is missing, as it was deleted past the gate or never existed.

They are expired, unless ``orphan="live"``, but no sweep of their parents finds them. If the
database enforces a foreign key for the link, the only orphans are rows with a NULL in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, exists, false, not_, or_, select

from ttl_odm.follows.sqlalchemy.follower import all_followers
from ttl_odm.follows.sqlalchemy.removal import FollowersRemoval
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.purge.statements import SweepSelect
from ttl_odm.sqlalchemy.sweep.transactions import (
    prepared,
    reading,
    unlogged,
    writing,
    zone_settings,
)
from ttl_odm.sweeper import BatchResult

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.follows.sqlalchemy.follower import Following
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Kept
    from ttl_odm.sweeper import BatchRequest


def has_orphans(connection: Connection, binding: Binding) -> bool:
    """Whether the tables that follow a table have orphans, by a connection fresh from the pool."""
    queries: list[Any] = [
        SweepSelect(*table.primary_key.columns).where(orphaned).limit(1)
        for table, orphaned in _orphans(connection.dialect, binding)
    ]
    if not queries:
        return False
    with prepared(connection), reading(connection):
        return any(connection.execute(rows).first() is not None for rows in queries)


def purge_orphans(
    connection: Connection, binding: Binding, request: BatchRequest, kept: Kept
) -> BatchResult:
    """Delete a batch of orphans and their followers, by a connection fresh from the pool.

    Rows that `kept` selects stay: deleting them would cascade to rows whose deletion is recorded.
    """
    with (
        prepared(connection, request.timeout, settings=zone_settings(connection, binding)),
        unlogged(connection, replicate=request.replicate),
        writing(connection, binding.table, request.timeout, replicate=request.replicate),
    ):
        removal = FollowersRemoval(connection, request.size)
        for table, orphaned in _orphans(connection.dialect, binding):
            stays = kept(table)
            removal.of_table(table, orphaned if stays is None else and_(orphaned, not_(stays)))
    return BatchResult(0, removal.resume(request), referring=removal.removed)


def _orphans(dialect: Dialect, binding: Binding) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The tables that follow a table, each with the condition for its orphans."""
    for following in all_followers(binding.table):
        if following.declared.orphan == "live":
            continue
        links = following.links()
        orphaned: list[ColumnElement[bool]] = [own.is_(None) for own in links.own if own.nullable]
        if not _is_enforced(dialect, following):
            parent = links.parent.alias()
            same_row = (own == parent.c[theirs.key] for own, theirs in links.pairs)
            parents = select().add_columns(*parent.primary_key).where(*same_row)
            orphaned.append(
                not_(exists(parents.correlate(following.table).options(include_expired())))
            )
        if orphaned:
            yield following.table, or_(false(), *orphaned)


def _is_enforced(dialect: Dialect, following: Following) -> bool:
    """Whether the database enforces that each link leads to a parent."""
    pairs = set(following.links().pairs)
    return dialect.name != "sqlite" and any(
        {(element.parent, element.column) for element in key.elements} == pairs
        for key in following.table.foreign_key_constraints
    )

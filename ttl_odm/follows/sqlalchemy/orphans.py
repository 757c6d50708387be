"""Rows that follow nothing: their parent was deleted behind the gate's back, or never was.

They are expired, unless ``orphan="live"``, and no sweep of parents meets them. A foreign key that
the database enforces keeps them away, so with one nothing but NULLs is looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import ColumnElement, and_, exists, false, not_, or_, select

from ttl_odm.follows.sqlalchemy.removal import FollowersRemoval, all_followings
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

    from ttl_odm.follows.sqlalchemy.following import Following
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Kept
    from ttl_odm.sweeper import BatchRequest


def has_orphans(connection: Connection, binding: Binding) -> bool:
    """Whether a sweep of a table has orphans to delete, by a connection fresh from the pool."""
    found: list[Any] = [
        SweepSelect(*table.primary_key.columns).where(orphaned).limit(1)
        for table, orphaned in _orphans(connection.dialect, binding)
    ]
    if not found:
        return False
    with prepared(connection), reading(connection):
        return any(connection.execute(rows).first() is not None for rows in found)


def purge_orphans(
    connection: Connection, binding: Binding, request: BatchRequest, kept: Kept
) -> BatchResult:
    """Delete a batch of them, and what follows them, by a connection fresh from the pool.

    Rows that are kept, for the sake of recorded ones that a cascade would delete, stay.
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
    before = request.resume if isinstance(request.resume, int) else 0
    resume = None if removal.is_done else before + removal.removed.total()
    return BatchResult(0, resume, referring=removal.removed)


def _orphans(dialect: Dialect, binding: Binding) -> Iterator[tuple[Table, ColumnElement[bool]]]:
    """The tables that follow one, each with the condition for rows without a parent."""
    for following in all_followings(binding):
        if following.declared.orphan == "live":
            continue
        links = following.links()
        nothing: list[ColumnElement[bool]] = [own.is_(None) for own in links.own if own.nullable]
        if not _is_enforced(dialect, following):
            parent = links.parent.alias()
            same_row = (own == parent.c[theirs.key] for own, theirs in links.pairs)
            parents = select().add_columns(*parent.primary_key).where(*same_row)
            nothing.append(
                not_(exists(parents.correlate(following.table).options(include_expired())))
            )
        if nothing:
            yield following.table, or_(false(), *nothing)


def _is_enforced(dialect: Dialect, following: Following) -> bool:
    """Whether the database lets no row refer to a parent that isn't there."""
    pairs = set(following.links().pairs)
    return dialect.name != "sqlite" and any(
        {(element.parent, element.column) for element in key.elements} == pairs
        for key in following.table.foreign_key_constraints
    )

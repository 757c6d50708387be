"""Which rows of a query need no look at their parents, because it joins these anyway.

A row that follows another is live while that is. Where both stand in FROM, tied by the very columns
of the link, the predicate of the parent says it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models.sql.constants import INNER
from django.db.models.sql.datastructures import Join

if TYPE_CHECKING:
    from django.db.models.sql import Query

    from ttl_odm.follows.django.following import Following


def judged_by_joins(following: Following, query: Query, alias: str) -> bool:
    """Whether the rows of an alias are such, in a query in which every table has its predicate."""
    source = query.alias_map[alias]
    if isinstance(source, Join) and _is_used(query, source.parent_alias):
        above = query.alias_map[source.parent_alias]
        backwards = {(own, theirs) for theirs, own in source.join_cols}
        if _is_link(following, above.table_name, backwards):
            return True
    return any(
        isinstance(join, Join)
        and join.parent_alias == alias
        and join.join_type == INNER
        and _is_used(query, child)
        and _is_link(following, join.table_name, set(join.join_cols))
        for child, join in query.alias_map.items()
    )


def leads_to_parent(following: Following, join: Join) -> bool:
    """Whether a join leads from rows to what they follow, and is there whenever they are."""
    return following.declared.orphan == "expired" and _is_link(
        following, join.table_name, set(join.join_cols)
    )


def _is_used(query: Query, alias: str) -> bool:
    return bool(query.alias_refcount.get(alias))


def _is_link(following: Following, table: str, columns: set[Any]) -> bool:
    links = following.links
    ties = {(own.column, theirs.column) for own, theirs in links.pairs}
    return bool(table == links.parent._meta.db_table and columns == ties)

"""Which rows of a query need no look at their parents, because it joins these anyway.

A row that follows another is live while that is. Where both stand in FROM, tied by the very columns
of the link, the predicate of the parent says it all.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db.models.sql.constants import INNER
from django.db.models.sql.datastructures import Join

from ttl_odm.django.policy.binding import policy_in
from ttl_odm.django.policy.following import Following

if TYPE_CHECKING:
    from django.db.models.sql import Query


def judged_by_joins(query: Query) -> set[str]:
    """The aliases of such rows, in a query in which every other table has its predicate."""
    found = set()
    for alias, source in query.alias_map.items():
        following = policy_in(query, source.table_name)
        if not isinstance(following, Following):
            continue
        if isinstance(source, Join) and _is_used(query, source.parent_alias):
            above = query.alias_map[source.parent_alias]
            backwards = {(own, theirs) for theirs, own in source.join_cols}
            if _is_link(following, above.table_name, backwards):
                found.add(alias)
        for child, join in query.alias_map.items():
            if (
                isinstance(join, Join)
                and join.parent_alias == alias
                and join.join_type == INNER
                and _is_used(query, child)
                and _is_link(following, join.table_name, set(join.join_cols))
            ):
                found.add(alias)
    return found


def leads_to_parent(query: Query, join: Join) -> bool:
    """Whether a join leads from rows to what they follow, and is there whenever they are."""
    following = policy_in(query, query.alias_map[join.parent_alias].table_name)
    return (
        isinstance(following, Following)
        and following.follows.orphan == "expired"
        and _is_link(following, join.table_name, set(join.join_cols))
    )


def _is_used(query: Query, alias: str) -> bool:
    return bool(query.alias_refcount.get(alias))


def _is_link(following: Following, table: str, columns: set[Any]) -> bool:
    links = following.links
    ties = {(own.column, theirs.column) for own, theirs in links.pairs}
    return bool(table == links.parent._meta.db_table and columns == ties)

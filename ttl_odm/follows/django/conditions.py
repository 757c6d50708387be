"""Whether a row that follows another is live, by its parent.

`FollowerPredicate` is a subquery of the parent's table. A query that joins a row with its parent,
by the columns of the link, needs none: the parent's own predicate is enough (`judged_by_joins`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db.models.sql.constants import INNER
from django.db.models.sql.datastructures import Join

from ttl_odm.django.policy.predicate import Predicate, RowCondition
from ttl_odm.django.time import clock
from ttl_odm.follows.django.follower import Following

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.expressions import Expression
    from django.db.models.sql import Query
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.options import Kind
    from ttl_odm.django.time.fields import BoundSQL
    from ttl_odm.follows.django.parent_locks import ParentEnds


class FollowerPredicate(Predicate):
    """The predicate of a follower.

    Rows of the tables `orphaned` are live without a parent: they are deleted together with it.
    """

    def __init__(
        self,
        following: Following,
        alias: str,
        kind: Kind,
        *,
        writing: bool = False,
        orphaned: frozenset[str] = frozenset(),
    ) -> None:
        """Take the rule, and the arguments of a `Predicate`."""
        super().__init__(following, alias, kind, writing=writing)
        self._following = following
        self._orphaned = orphaned

    def render(
        self,
        connection: BaseDatabaseWrapper,
        alias: str,
        scopes: Sequence[str] = (),  # noqa: ARG002 (only rows with a lifetime have them)
    ) -> str:
        """Return the SQL for the table, or its alias, quoted."""
        return f"({self.by_parent(connection, alias)})"

    def by_parent(self, connection: BaseDatabaseWrapper, source: str) -> str:
        """Return the SQL for a live parent; where orphans are live, for no expired parent."""
        following, quote = self._following, connection.ops.quote_name
        links, table = following.links, following.model._meta.db_table
        alias = f"ttl_parent{following.depth}"
        needs_parent = following.declared.orphan == "expired" and table not in self._orphaned
        same_key = " AND ".join(
            f"{quote(alias)}.{quote(str(theirs.column))} = {source}.{quote(str(own.column))}"
            for own, theirs in links.pairs
        )
        kind: Kind = "live" if needs_parent else "expired"
        above, writing, orphaned = links.policy, self.writing, self._orphaned
        judged: Predicate
        if isinstance(above, Following):
            judged = FollowerPredicate(above, alias, kind, writing=writing, orphaned=orphaned)
        else:
            judged = Predicate(above, alias, kind, writing=writing)
        condition = judged.render(connection, quote(alias))
        parent = f"{quote(links.parent._meta.db_table)} {quote(alias)}"
        exists = f"EXISTS (SELECT 1 FROM {parent} WHERE {same_key} AND {condition})"  # noqa: S608 (names that Django quotes)
        return exists if kind == self.kind else f"NOT {exists}"


class KnownEnd(RowCondition):
    """True for rows of some parents until these expire; otherwise a condition decides.

    The condition is evaluated for rows of other parents, and once a parent has expired.
    """

    def __init__(self, condition: Expression, ends: ParentEnds) -> None:
        """Take the condition, and the parents of which it is known when they expire."""
        super().__init__()
        self.condition = condition
        self.ends = ends

    @classmethod
    def of(cls, condition: Expression, ends: ParentEnds | None) -> Expression:
        """Return the condition alone if no live parent is known."""
        return cls(condition, ends) if ends is not None and ends.parents else condition

    def as_sql(self, compiler: SQLCompiler, connection: BaseDatabaseWrapper) -> BoundSQL:
        """Render it, in parentheses."""
        now = clock.now(connection, "instant", writing=True)
        is_one = " OR ".join([self.ends.names_parent] * len(self.ends.parents))
        # In its own subquery: MySQL would turn the EXISTS into a join, and always read the parents.
        sql, params = compiler.compile(self.condition)
        values = (value for parent in self.ends.parents for value in parent)
        return (
            f"(({is_one}) AND {now} < {self.ends.end} OR (SELECT {sql}) = 1)",
            (*values, *params),
        )


def judged_by_joins(following: Following, query: Query, alias: str) -> bool:
    """Return whether a query joins the rows of an alias with their parents, so these judge them.

    Every table of the query has its own predicate.
    """
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
    """Return whether a join leads from rows to their parents, and every live row has a parent."""
    return following.declared.orphan == "expired" and _is_link(
        following, join.table_name, set(join.join_cols)
    )


def _is_used(query: Query, alias: str) -> bool:
    return bool(query.alias_refcount.get(alias))


def _is_link(following: Following, table: str, columns: set[tuple[str, str]]) -> bool:
    links = following.links
    link = {(own.column, theirs.column) for own, theirs in links.pairs}
    return bool(table == links.parent._meta.db_table and columns == link)

"""Whether a row that follows another is live, by its parent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.django.policy.predicate import Predicate, RowCondition
from ttl_odm.django.time import clock
from ttl_odm.follows.django.following import Following

if TYPE_CHECKING:
    from collections.abc import Sequence

    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models.expressions import Expression
    from django.db.models.sql.compiler import SQLCompiler

    from ttl_odm.django.policy.options import Kind
    from ttl_odm.follows.django.parent_ends import ParentEnds


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
        """Say which row, as of a `Predicate`."""
        super().__init__(following, alias, kind, writing=writing)
        self._following = following
        self._orphaned = orphaned

    def render(
        self,
        connection: BaseDatabaseWrapper,
        alias: str,
        scopes: Sequence[str] = (),  # noqa: ARG002 (those are of rows with a lifetime)
    ) -> str:
        """Its text for the table, or its alias, quoted."""
        return f"({self.by_parent(connection, alias)})"

    def by_parent(self, connection: BaseDatabaseWrapper, source: str) -> str:
        """Whether there is a live parent; or none that has expired, where orphans are live."""
        following, quote = self._following, connection.ops.quote_name
        links, table = following.links, following.model._meta.db_table
        alias = f"ttl_parent{following.depth}"
        needs_parent = following.declared.orphan == "expired" and table not in self._orphaned
        ties = " AND ".join(
            f"{quote(alias)}.{quote(str(theirs.column))} = {source}.{quote(str(own.column))}"
            for own, theirs in links.pairs
        )
        kind: Kind = "live" if needs_parent else "expired"
        condition = self._of_parent(alias, kind).render(connection, quote(alias))
        rows = f"{quote(links.parent._meta.db_table)} {quote(alias)} WHERE {ties} AND {condition}"
        exists = f"EXISTS (SELECT 1 FROM {rows})"  # noqa: S608 (names that Django quotes)
        return exists if kind == self.kind else f"NOT {exists}"

    def _of_parent(self, alias: str, kind: Kind) -> Predicate:
        above = self._following.links.policy
        if not isinstance(above, Following):
            return Predicate(above, alias, kind, writing=self.writing)
        return FollowerPredicate(above, alias, kind, writing=self.writing, orphaned=self._orphaned)


class KnownEnd(RowCondition):
    """Whether rows of some parents live until an end that is to come; or else a condition.

    The condition is evaluated for rows of other parents, and once the end has come.
    """

    def __init__(self, condition: Expression, ends: ParentEnds) -> None:
        """Say until when the condition certainly holds, and for which rows."""
        super().__init__()
        self.condition = condition
        self.ends = ends

    @classmethod
    def of(cls, condition: Expression, ends: ParentEnds | None) -> Expression:
        """The condition alone where no live parent is known."""
        return cls(condition, ends) if ends is not None and ends.parents else condition

    def as_sql(
        self, compiler: SQLCompiler, connection: BaseDatabaseWrapper
    ) -> tuple[str, tuple[Any, ...]]:
        """Render it, in parentheses."""
        now = clock.now(connection, "instant", writing=True)
        is_one = " OR ".join([self.ends.names_parent] * len(self.ends.parents))
        # In a subquery of its own: MySQL would make a join of the EXISTS and read it in any case.
        sql, params = compiler.compile(self.condition)
        values = (value for parent in self.ends.parents for value in parent)
        return (
            f"(({is_one}) AND {now} < {self.ends.end} OR (SELECT {sql}) = 1)",
            (*values, *params),
        )

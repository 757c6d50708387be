"""`FollowsRule` and `Followers`: everything that the base asks of this package."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from django.db import connections

from ttl_odm.django.policy import options
from ttl_odm.django.policy.bindings import binding_of
from ttl_odm.django.policy.rules import Removed
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.django import conditions, parents
from ttl_odm.follows.django.conditions import FollowerPredicate, KnownEnd
from ttl_odm.follows.django.follower import Following
from ttl_odm.follows.django.index import check_indexes, check_model
from ttl_odm.follows.django.parent_locks import before_delete, known_parents
from ttl_odm.follows.django.removal import (
    FollowersRemoval,
    has_orphans,
    purge_orphans,
    seal,
    seal_above,
)
from ttl_odm.follows.sweep import ORPHANS, due_followers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from django.core.checks import CheckMessage
    from django.db.backends.base.base import BaseDatabaseWrapper
    from django.db.models import Model as Instance
    from django.db.models.expressions import Expression
    from django.db.models.sql import DeleteQuery, InsertQuery, Query, UpdateQuery
    from django.db.models.sql.datastructures import Join

    from ttl_odm.django.policy.bindings import Binding, Model, Rejected
    from ttl_odm.django.policy.options import Kind
    from ttl_odm.django.policy.rules import Doomed
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact
    from ttl_odm.sweeper.findings import Finding

R = TypeVar("R")


class FollowsRule(Following):
    """The rule of a model whose rows live while their parents do; see `Rule` and `TablePolicy`."""

    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError:
        """Return the error, with the fix."""
        if what == "change":
            return self.declared.unchangeable(where)
        if what == "lifetime":
            return self.declared.no_own_lifetime(where)
        if what == "unread":
            return TTLConfigurationError(
                f"{where} follows its parent, so the expiry of a row isn't known before it is "
                "saved."
            )
        if what == "sweep":
            return TTLConfigurationError(
                f"{where} can't be swept alone: its rows follow those of "
                f"{self.binding.model._meta.label} and are deleted with them. Give that model "
                "instead."
            )
        return TTLConfigurationError(
            f"{where} follows its parent, and its subclasses can't have tables of their own. Make "
            "this one a proxy, or a model of its own that follows the parent."
        )

    def check(self) -> Iterator[CheckMessage]:
        """Check that its rows are found by an index, and can be deleted."""
        return check_model(self)

    def expires_at(self, obj: Instance, age: int | None = None) -> datetime | None:  # noqa: ARG002
        """Return when the row at the root expires; None without one."""
        root = self.root_of(obj)
        if root is None:
            return None
        binding, row = root
        return binding.expires_at(row)

    def expired_without_end(self, obj: Instance) -> bool | None:
        """Return whether a row without a parent has expired; None for a row with one."""
        orphan = self.orphan_of(obj)
        return None if orphan is None else orphan == "expired"

    def condition(
        self, connection: BaseDatabaseWrapper, source: str, kind: Kind, *, writing: bool
    ) -> str:
        """Return the SQL for a live parent, or for an expired one."""
        predicate = FollowerPredicate(self, source, kind, writing=writing)
        return predicate.by_parent(connection, source)

    def judged_by_joins(self, query: Query, alias: str) -> bool:
        """Return whether the query joins the parent."""
        return conditions.judged_by_joins(self, query, alias)

    def leads_to_parent(self, query: Query, join: Join) -> bool:  # noqa: ARG002
        """Return whether the join leads to the parent, and no row is live without one."""
        return conditions.leads_to_parent(self, join)

    def live_to_update(self, query: UpdateQuery, live: Expression) -> Sequence[Expression]:
        """Return the conditions that the parent is live, and the new parent has not expired."""
        live = self._or_orphaned(live, options.orphaned_for(query))
        moved = parents.NotUnderExpired(self, query)
        return [KnownEnd.of(live, known_parents(query)), *([moved] if moved.is_needed else [])]

    def live_to_delete(self, query: DeleteQuery, using: str, live: Expression) -> Expression:
        """Return the condition that the parent is live; InnoDB leaves it unlocked if possible."""
        live = self._or_orphaned(live, options.orphaned_tables())
        if connections[using].vendor != "mysql" or self.declared.renews:
            return live
        return KnownEnd.of(live, before_delete(self, query, using))

    def _or_orphaned(self, live: Expression, orphaned: frozenset[str]) -> Expression:
        if not orphaned:
            return live
        table = self.model._meta.db_table
        return FollowerPredicate(self, table, "live", writing=True, orphaned=orphaned)

    def insert(self, query: InsertQuery, using: str, write: Callable[[], R]) -> R:
        """Let no row get an expired parent, and renew live parents."""
        return parents.insert(self, query, using, write)

    def update(self, query: UpdateQuery, using: str, write: Callable[[], R]) -> R:
        """Let no row move to an expired parent, and renew live parents."""
        return parents.update(self, query, using, write)

    def delete(self, query: DeleteQuery, using: str, write: Callable[[], R]) -> R:
        """Renew the parents, unless the rows have expired."""
        is_purge = options.purges(query) or self.model._meta.db_table in options.purged_tables()
        if is_purge or not self.declared.renews:
            return write()
        return parents.delete(self, query, using, write)

    def seal(self, using: str, keys: Sequence[object]) -> None:
        """Seal the expired rows at the root."""
        seal_above(self, using, keys)


class Followers:
    """The rows that follow rows of a policy; see `Dependents`."""

    part = ORPHANS

    def remove(self, doomed: Doomed, keys: Sequence[object], limit: int | None) -> Removed:
        """Remove followers, the deepest first; if some are left, seal the rows that they follow."""
        removal = FollowersRemoval(
            doomed.using, limit, hooks=doomed.hooks_below, reason=doomed.reason
        )
        removal.of(doomed.root, keys)
        binding = binding_of(doomed.root)
        if not removal.is_done and binding is not None:
            seal(binding, doomed.using, keys)
        return Removed(removal.removed, removal.purged, removal.is_done)

    def is_due(self, binding: Binding, using: str) -> bool:
        """Return whether followers have orphans."""
        return has_orphans(binding, using)

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return the fact about followers that go along."""
        return due_followers(rows)

    def purge(self, binding: Binding, using: str, request: BatchRequest) -> BatchResult:
        """Delete a batch of orphans."""
        return purge_orphans(binding, using, request)

    def check(self, model: Model, connection: BaseDatabaseWrapper) -> Iterator[Finding]:
        """Check that followers are found by an index."""
        return check_indexes(model, connection)

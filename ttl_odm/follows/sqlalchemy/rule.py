"""`FollowsRule` and `Followers`: everything that the base asks of this package."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ttl_odm.combinations import combination
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.sqlalchemy.conditions import BY_PARENT, live_parent
from ttl_odm.follows.sqlalchemy.follower import Following, all_followers, index_link
from ttl_odm.follows.sqlalchemy.links import moved_update, selected_insert
from ttl_odm.follows.sqlalchemy.parent_locks import KnownParents
from ttl_odm.follows.sqlalchemy.parents import LiveParents
from ttl_odm.follows.sqlalchemy.removal import (
    FollowersRemoval,
    check_followers,
    has_orphans,
    purge_orphans,
    remove_displaced,
    seal,
)
from ttl_odm.follows.sqlalchemy.renewals import RenewedParents
from ttl_odm.follows.sweep import ORPHANS, due_followers
from ttl_odm.sqlalchemy.gate.preparations import Several
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.policy.rules import Removed
from ttl_odm.sqlalchemy.time.clock import UnwrappedConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import ColumnElement, Connection, FromClause, Insert, Update
    from sqlalchemy.engine import Dialect
    from sqlalchemy.orm import Mapper

    from ttl_odm.sqlalchemy.compat import Resolved
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.policy.rules import Checked, Execute, Kept, Keys, Rejected
    from ttl_odm.sqlalchemy.rewrite.statement_rules import Asked, Joins, Preparation, Rows
    from ttl_odm.sqlalchemy.rewrite.writes import Target
    from ttl_odm.sweeper import BatchRequest, BatchResult, Fact
    from ttl_odm.sweeper.findings import Finding


@dataclass(frozen=True, slots=True)
class FollowsRule(Following):
    """The rule of a table whose rows live while their parents do; see `StatementRule`."""

    def meaning(self) -> object:
        """Return what an orphan is, and the columns of the parent by which rows follow."""
        return self.declared.orphan, tuple(map(str, self.links().theirs))

    def inherited_by(self, mapper: Mapper[Any], cls: type) -> None:
        """Reject a subclass with a policy or a table of its own."""
        above: Any = mapper.inherits
        if "__ttl__" in vars(cls) or mapper.local_table is not above.local_table:
            raise TTLConfigurationError(
                f"{cls.__name__}.__ttl__: {above.class_.__name__} follows its parent, and so do "
                "all rows of its table: a subclass can have neither a __ttl__ nor a table of its "
                "own."
            )

    def rejected(self, what: Rejected, where: str) -> TTLConfigurationError:
        """Return the error, with the fix."""
        if what == "change":
            return self.declared.unchangeable(where)
        if what == "lifetime":
            return self.declared.no_own_lifetime(where)
        if what == "unread":
            return TTLConfigurationError(
                f"{where} follows its parent, so the expiry of a row is known only once it has "
                "been flushed, and while it is in a session."
            )
        if what == "sweep":
            root: Any = root_of(self.table)
            line = combination("sqlalchemy", "follows", "database_sweep")
            reason = line.reason_for(parent=repr(root.table.fullname))
            return TTLConfigurationError(
                f"Table {where!r} {reason}. {line.instead_for(root=root.name)}."
            )
        return UnwrappedConfigurationError(
            f"An upsert that updates rows of {where!r}, which follow others, can't tell which of "
            "these have an expired parent: use session.merge(), or an UPDATE and then an INSERT "
            "that does nothing on a conflict."
        )

    def add_index(self) -> None:
        """Give the table the index of its link."""
        index_link(self.table)

    def remove(self, connection: Connection, execute: Execute, keys: Keys) -> int:
        """Delete expired rows after their followers, with the root locked."""
        return remove_displaced(connection, execute, self, keys)

    def live(
        self, rows: Rows, source: FromClause, joins: Joins | None
    ) -> ColumnElement[bool] | None:
        """Return the condition that the parent is live."""
        return live_parent(rows, self, source, joins)

    def expression(self, asked: Asked, source: FromClause) -> ColumnElement[object]:
        """Return what the function returns for the parent."""
        own = [source.c[column.key] for column in self.links().own]
        return BY_PARENT[asked](self, own)

    def insert(
        self, statement: Insert, rows: Rows, dialect: Dialect
    ) -> tuple[Insert, Preparation | None]:
        """Let no row get an expired parent, and renew live parents."""
        # Renewed first: if two transactions held a parent in shared mode, neither could write it.
        before = Several.of(RenewedParents.of_insert(self.table), LiveParents.of_insert(self.table))
        return selected_insert(statement, rows, dialect), before

    def update(
        self, statement: Update, target: Target, rows: Rows, dialect: Dialect
    ) -> tuple[Update, Preparation | None]:
        """Let no row move to an expired parent, and renew live parents."""
        before = Several.of(RenewedParents.of_target(target), LiveParents.of_update(target))
        return moved_update(statement, target, rows, dialect), before

    def delete(self, target: Target) -> Preparation | None:
        """Renew the parents."""
        return RenewedParents.of_target(target)

    def matched(
        self, criteria: list[ColumnElement[bool]], statement: Resolved, dialect: Dialect
    ) -> tuple[list[ColumnElement[bool]], Preparation | None]:
        """On InnoDB, leave parents unlocked if they can be read before the statement."""
        known = KnownParents.of(statement, dialect)
        if known is None:
            return criteria, None
        return [known.or_else(criterion, dialect) for criterion in criteria], known


class Followers:
    """The rows that follow rows of a policy; see `Dependents`."""

    part = ORPHANS

    def reason(self, binding: Binding) -> str | None:
        """Return why rows that others follow can't go alone; None if no table follows."""
        line = combination("sqlalchemy", "followed", "partitions")
        return line.reason if all_followers(binding.table) else None

    def remove(
        self, connection: Connection, binding: Binding, keys: Keys, limit: int | None
    ) -> Removed:
        """Remove followers, the deepest first; if some are left, seal the rows that they follow."""
        removal = FollowersRemoval(connection, limit)
        removal.of(binding, keys)
        if not removal.is_done:
            seal(connection, binding, keys)
        return Removed(removal.removed, removal.is_done)

    def is_due(self, connection: Connection, binding: Binding) -> bool:
        """Return whether followers have orphans."""
        return has_orphans(connection, binding)

    def facts(self, rows: Mapping[str, int]) -> Mapping[str, Fact]:
        """Return the fact about followers that go along."""
        return due_followers(rows)

    def purge(
        self, connection: Connection, binding: Binding, request: BatchRequest, kept: Kept
    ) -> BatchResult:
        """Delete a batch of orphans."""
        return purge_orphans(connection, binding, request, kept)

    def check(self, checked: Checked) -> Iterator[Finding]:
        """Check that followers can be deleted."""
        return check_followers(checked)

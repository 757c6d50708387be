"""Purging one batch of what has expired.

Where nothing hangs on the rows, one statement deletes what lies between two places of the index,
and neither rows nor keys come to Python. Where that meets a row that somebody holds, or one that
can't go, and where rows are deleted as objects, the batch goes by keys: it locks those that nobody
holds (``SKIP LOCKED``: the sweeper doesn't stand in a queue behind a writer), deletes them with the
predicate in the DELETE, calls the hooks, and commits. If one of them can't go, because others refer
to it or a trigger or a signal's receiver raises, the batch is undone, and the sweeper asks for
smaller ones. The same goes for objects that are still there after they were deleted.

On MySQL, whose shortest wait for a row is a second, every batch goes by keys.

Each batch begins where the one before it ended, so that none walks again over what others left.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, connections, transaction

from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.django.policy.bindings import table_policy
from ttl_odm.django.policy.rules import Removed, dependents, remove_dependents
from ttl_odm.django.policy.sources import lock_defaults
from ttl_odm.django.purge.errors import in_short, is_locked, is_refused, is_restricted
from ttl_odm.django.purge.references import referring
from ttl_odm.django.purge.removal import Removal, expired_rows, locked, take_file
from ttl_odm.django.sweep.due import ExpiredRows
from ttl_odm.django.sweep.transactions import at_once, under_origin
from ttl_odm.django.sweep.walks import walk_of
from ttl_odm.sweeper import BatchResult, HookError, Part, RefusedError, Skip, StoreError
from ttl_odm.sweeper.facts import latest
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ttl_odm.django.policy.bindings import AnyQuerySet, Binding, Model
    from ttl_odm.django.sweep.walks import Walk
    from ttl_odm.sweeper import BatchRequest, Fact, Purged


_MOST_KEYS: Final = 10_000
"""That come to Python for one batch."""


def purge(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Purge one batch; see `ttl_odm.sweeper.Store.purge`."""
    for one in dependents:
        if request.part is one.part:
            return one.purge(binding, using, request)
    return _purge_rows(binding, using, request)


def _purge_rows(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    walk = walk_of(binding, using) if request.part is Part.INHERITING else None
    expired = ExpiredRows(binding, using, request.part) if walk is None else walk
    result = _purge_range(binding, using, request, expired)
    return _purge_keys(binding, using, request, expired) if result is None else result


def _purge_keys(
    binding: Binding, using: str, request: BatchRequest, expired: ExpiredRows | Walk
) -> BatchResult:
    """Purge the next rows by their keys."""
    size = min(request.size, _MOST_KEYS)
    with phase("find"):
        found = expired.keys(request.resume, size)
    if found is None or not found.keys:  # as where somebody raised a default in between
        return BatchResult(0, found and found.resume)
    keys, resume, again = found
    batch = _Batch(binding, using, request, resume, request.resume or again)
    try:
        try:
            return batch.run(keys)
        except DatabaseError as error:
            removal = Removal(binding.model, using, request.hooks)
            if not (is_restricted(error) and removal.is_plain and removal.is_referred):
                raise
        # Expired rows may be what refers to these, which Django was told to do nothing about.
        return batch.run(keys, as_objects=True)
    except HookError as error:
        return batch.undone(keys, Skip.HOOK, error)
    except DatabaseError as error:
        if not is_refused(error):
            raise
        reason = Skip.RESTRICTED if is_restricted(error) else Skip.REFUSED
        return batch.undone(keys, reason, RefusedError.by(error, in_short(error)))


def _purge_range(
    binding: Binding, using: str, request: BatchRequest, expired: ExpiredRows | Walk
) -> BatchResult | None:
    """Purge the next rows by their order alone.

    None where something hangs on the rows, where nothing but keys tells more than one batch of them
    apart, and where one of them can't go.
    """
    connection, removal = connections[using], Removal(binding.model, using, request.hooks)
    waits = connection.vendor == "mysql" and not getattr(connection, "mysql_is_mariadb", False)
    # A DELETE that counts by scope returns rows; a database that does so of an INSERT can do that.
    counts = binding.source.scoping is None or connection.features.can_return_columns_from_insert
    is_plain = removal.is_plain and not removal.has_dependents
    if request.part is Part.ALL or waits or not counts or not is_plain:
        return None
    with phase("find"):
        found: Any = expired.next_range(request.resume, request.size)
    if found is None:
        return BatchResult(0)
    if found.is_crowded:
        return None
    batch = _Batch(binding, using, request, found.resume)
    try:
        # A purge that a crash undoes is only done again, and nobody has heard of it.
        with batch.limited(lazily=True), at_once(using):
            deleted = removal.by_statement(expired.within(found))
    except DatabaseError as error:
        if not (is_refused(error) or is_locked(error)):
            raise
        return None
    result = BatchResult(deleted, found.resume, facts=_facts(binding, removal))
    if connection.vendor == "mysql" or deleted == request.size:
        return result
    return _with_undeleted(result, binding, using, request, (expired, found))


def _with_undeleted(
    result: BatchResult,
    binding: Binding,
    using: str,
    request: BatchRequest,
    rows: tuple[ExpiredRows | Walk, Any],
) -> BatchResult:
    """Add what is left of a range: triggers of PostgreSQL and SQLite keep rows without an error.

    By their keys they are told from rows that have expired since.
    """
    expired, found = rows
    try:
        if not expired.within(found).exists():
            return result
        size = request.size - result.deleted
        rest = _purge_keys(binding, using, replace(request, size=size), expired)
    except (DatabaseError, StoreError):  # what was deleted is committed, and has to be counted
        return result
    return replace(
        rest,
        deleted=rest.deleted + result.deleted,
        facts=latest(result.facts, rest.facts),
    )


def _facts(binding: Binding, removal: Removal) -> Mapping[str, Fact]:
    scoping = binding.source.scoping
    return {} if scoping is None else scoping.deleted(removal.by_scope)


@dataclass
class _Batch:
    """Rows that were found, to be removed if they are still expired."""

    binding: Binding
    using: str
    request: BatchRequest
    resume: Any
    again: Any = None

    def run(self, keys: Sequence[Any], *, as_objects: bool = False) -> BatchResult:
        """Remove what nobody holds, report it, and commit."""
        removal = Removal(self.binding.model, self.using, self.request.hooks)
        purged: Sequence[Purged] = ()
        undeleted = 0
        with self.limited():
            if removal.is_plain and not as_objects:
                free = self._free(removal, keys)
                before = self._remove_dependents(removal, free)
                free = free if before.is_done else []
                deleted = removal.by_key(free)
                if deleted < len(free):
                    undeleted = len(removal.undeleted(free))
            else:
                with phase("find"):  # as they are before others go
                    objs = list(locked(self._rows(keys), self.using, skip=True))
                before = self._remove_dependents(removal, [obj.pk for obj in objs])
                objs = objs if before.is_done else []
                purged = [*removal.by_objects(objs), *removal.purged]
                deleted = len(objs)
        left = self.left(keys) if deleted < len(keys) and before.is_done else 0
        own = removal.referring.pop(self.request.target, 0)
        return BatchResult(
            deleted + own,
            self.resume if before.is_done else self.again,
            archived=removal.archived,
            skipped=_some({Skip.LOCKED: max(0, left - undeleted), Skip.REFUSED: undeleted}),
            purged=[*before.purged, *purged],
            referring=removal.referring,
            loaded=removal.loaded,
            facts=_facts(self.binding, removal),
        )

    def _free(self, removal: Removal, keys: Sequence[Any]) -> Sequence[Any]:
        """Lock the rows that nobody holds, where the database can pass over the others."""
        can_skip = connections[self.using].features.has_select_for_update_skip_locked
        if not can_skip and not removal.has_dependents:
            return keys
        with phase("find"):
            by_key = self._rows(keys).values_list("pk", flat=True)
            return list(locked(by_key, self.using, skip=True))

    def _remove_dependents(self, removal: Removal, keys: Sequence[Any]) -> Removed:
        """Remove what goes before rows that are locked; unless that is all of it, these stay."""
        if not removal.has_dependents:
            return Removed()
        removed = remove_dependents(removal, keys, self.request.size)
        removal.referring += removed.rows
        return removed

    def undone(
        self, keys: Sequence[Any], reason: Skip, failure: HookError | RefusedError
    ) -> BatchResult:
        """Report rows that had to stay."""
        left = [(key,) for key in keys]
        return BatchResult(
            0, self.resume, skipped={reason: self.left(keys)}, failure=failure, left=left
        )

    def left(self, keys: Sequence[Any]) -> int:
        """How many of the rows are there, and still expired."""
        return int(self._rows(keys).count())

    def _rows(self, keys: Sequence[Any]) -> AnyQuerySet:
        return expired_rows(self.binding.model, self.using).filter(pk__in=list(keys))

    @contextmanager
    def limited(self, *, lazily: bool = False) -> Iterator[None]:
        """The batch's transaction; PostgreSQL commits it `lazily` without waiting for the disk."""
        connection = connections[self.using]
        with ExitStack() as ending, transaction.atomic(using=self.using, durable=True):
            take_file(self.binding.model, self.using)
            self._lock_defaults()
            if lazily and connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL synchronous_commit = off")
            with under_origin(self.using, replicate=self.request.replicate):
                yield
                if connection.vendor == "postgresql":
                    # They are deferred: better now than at the commit.
                    connection.check_constraints()
            ending.enter_context(phase("commit"))

    def _lock_defaults(self) -> None:
        """Lock the defaults by which rows go, these and such as refer to them."""
        models: dict[Model, None] = {self.binding.model: None}
        for model in (waiting := [self.binding.model]):
            found = [relation.related_model for relation in referring(model)]
            waiting += [other for other in found if other not in models]
            models |= dict.fromkeys(found)
        policies = (table_policy(model._meta.db_table) for model in models)
        try:
            lock_defaults([policy.binding for policy in policies if policy], self.using)
        except DatabaseError as error:
            if not is_forbidden(error.__cause__):
                raise
            raise StoreError(str(error)) from error


def _some(skipped: dict[Skip, int]) -> dict[Skip, int]:
    return {reason: rows for reason, rows in skipped.items() if rows}

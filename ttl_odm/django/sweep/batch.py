"""Purging one batch of expired rows.

If nothing depends on the rows, one statement deletes a range of the index, and neither rows nor
keys are loaded into Python. If that statement meets a locked row, or one that can't be deleted, or
if rows are deleted as objects, the batch is purged by keys: it locks the free rows (by SKIP LOCKED,
so the sweeper doesn't queue behind a writer), deletes them with the predicate in the DELETE, calls
the hooks, and commits. If one of them can't be deleted, because others refer to it, or a trigger or
a signal's receiver raises, or it still exists afterwards, the batch is rolled back, and the sweeper
requests smaller ones.

On MySQL, whose shortest wait for a lock is a second, every batch is purged by keys.

Each batch begins where the one before it ended, so rows that were skipped aren't read again.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, connections, transaction

from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.django.policy.bindings import table_policy
from ttl_odm.django.policy.rules import Removed, dependents, remove_dependents
from ttl_odm.django.purge.errors import in_short, is_locked, is_refused, is_restricted
from ttl_odm.django.purge.references import referring
from ttl_odm.django.purge.removal import (
    Removal,
    expired_rows,
    lock_defaults,
    locked,
    take_file,
)
from ttl_odm.django.sweep.due import ExpiredRows
from ttl_odm.django.sweep.transactions import at_once, under_origin
from ttl_odm.django.sweep.walks import walk_of
from ttl_odm.django.time.clock import is_mariadb
from ttl_odm.sweeper import BatchResult, HookError, Part, RefusedError, Skip, StoreError
from ttl_odm.sweeper.facts import latest
from ttl_odm.sweeper.hooks import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.django.policy.options import AnyQuerySet
    from ttl_odm.django.sweep.walks import Walk
    from ttl_odm.sweeper import BatchRequest, Fact, Purged


_MOST_KEYS: Final = 10_000
"""The most keys that are loaded into Python for one batch."""


def purge(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Purge one batch; see `ttl_odm.sweeper.Store.purge`."""
    for dependent in dependents:
        if request.part is dependent.part:
            return dependent.purge(binding, using, request)
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
        next_keys = expired.keys(request.resume, size)
    if next_keys is None or not next_keys.keys:  # for example, a default was raised in between
        return BatchResult(0, next_keys and next_keys.resume)
    keys, resume, again = next_keys
    batch = _Batch(binding, using, request, resume, request.resume or again)
    try:
        try:
            return batch.run(keys)
        except DatabaseError as error:
            removal = Removal(binding.model, using, request.hooks)
            if not (is_restricted(error) and removal.is_plain and removal.is_referred):
                raise
        # Expired rows may refer to these, by foreign keys with DO_NOTHING.
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

    Returns:
        None if something depends on the rows, if more than a batch of them have the same place in
        the order, or if one of them can't be deleted: then the batch has to be purged by keys.
    """
    connection, removal = connections[using], Removal(binding.model, using, request.hooks)
    waits = connection.vendor == "mysql" and not is_mariadb(connection)
    # Counting by scope takes DELETE ... RETURNING, which databases have if INSERT has it.
    counts = binding.source.scoping is None or connection.features.can_return_columns_from_insert
    is_plain = removal.is_plain and not removal.has_dependents
    if request.part is Part.ALL or waits or not counts or not is_plain:
        return None
    with phase("find"):
        next_range: Any = expired.next_range(request.resume, request.size)
    if next_range is None:
        return BatchResult(0)
    if next_range.is_crowded:
        return None
    batch = _Batch(binding, using, request, next_range.resume)
    try:
        # A purge that a crash undoes is simply repeated: nothing has been notified of it.
        with batch.limited(lazily=True), at_once(using):
            deleted = removal.by_statement(expired.within(next_range))
    except DatabaseError as error:
        if not (is_refused(error) or is_locked(error)):
            raise
        return None
    result = BatchResult(deleted, next_range.resume, facts=_facts(binding, removal))
    if connection.vendor == "mysql" or deleted == request.size:
        return result
    return _with_undeleted(result, binding, using, request, (expired, next_range))


def _with_undeleted(
    result: BatchResult,
    binding: Binding,
    using: str,
    request: BatchRequest,
    rows: tuple[ExpiredRows | Walk, Any],
) -> BatchResult:
    """Add the rest of a range: triggers of PostgreSQL and SQLite can keep rows without an error.

    A purge by keys distinguishes these from rows that have expired since.
    """
    expired, key_range = rows
    try:
        if not expired.within(key_range).exists():
            return result
        size = request.size - result.deleted
        rest = _purge_keys(binding, using, replace(request, size=size), expired)
    except (DatabaseError, StoreError):  # the deleted rows are committed, and have to be counted
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
    """A batch of rows by their keys, which are removed if they are still expired.

    Attributes:
        binding: Their policy.
        using: The alias of the database.
        request: The sweeper's request.
        resume: Where the next batch begins.
        again: Where this batch begins.
    """

    binding: Binding
    using: str
    request: BatchRequest
    resume: object
    again: object = None

    def run(self, keys: Sequence[object], *, as_objects: bool = False) -> BatchResult:
        """Remove the free rows, report them, and commit."""
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
                with phase("find"):  # before their dependents are removed
                    objs = list(locked(self._rows(keys), self.using, skip=True))
                before = self._remove_dependents(removal, [obj.pk for obj in objs])
                objs = objs if before.is_done else []
                purged = [*removal.by_objects(objs), *removal.purged]
                deleted = len(objs)
        rest = self._still_expired(keys) if deleted < len(keys) and before.is_done else 0
        own = removal.referring.pop(self.request.target, 0)
        skipped = {Skip.LOCKED: max(0, rest - undeleted), Skip.REFUSED: undeleted}
        return BatchResult(
            deleted + own,
            self.resume if before.is_done else self.again,
            archived=removal.archived,
            skipped={reason: rows for reason, rows in skipped.items() if rows},
            purged=[*before.purged, *purged],
            referring=removal.referring,
            loaded=removal.loaded,
            facts=_facts(self.binding, removal),
        )

    def _free(self, removal: Removal, keys: Sequence[object]) -> Sequence[object]:
        """Lock the free rows, if the database can skip the others."""
        can_skip = connections[self.using].features.has_select_for_update_skip_locked
        if not can_skip and not removal.has_dependents:
            return keys
        with phase("find"):
            by_key = self._rows(keys).values_list("pk", flat=True)
            return list(locked(by_key, self.using, skip=True))

    def _remove_dependents(self, removal: Removal, keys: Sequence[object]) -> Removed:
        """Remove dependents of locked rows; if some are left, the locked rows must stay."""
        if not removal.has_dependents:
            return Removed()
        removed = remove_dependents(removal, keys, self.request.size)
        removal.referring += removed.rows
        return removed

    def undone(
        self, keys: Sequence[object], reason: Skip, failure: HookError | RefusedError
    ) -> BatchResult:
        """Report a batch that was rolled back."""
        return BatchResult(
            0,
            self.resume,
            skipped={reason: self._still_expired(keys)},
            failure=failure,
            left=[key if isinstance(key, tuple) else (key,) for key in keys],
        )

    def _still_expired(self, keys: Sequence[object]) -> int:
        """Return the number of the rows that still exist and are expired."""
        return int(self._rows(keys).count())

    def _rows(self, keys: Sequence[object]) -> AnyQuerySet:
        return expired_rows(self.binding.model, self.using).filter(pk__in=list(keys))

    @contextmanager
    def limited(self, *, lazily: bool = False) -> Iterator[None]:
        """Open the batch's transaction; `lazily` commits it on PostgreSQL before it is on disk."""
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
                    # Deferred constraints would otherwise fail only at the commit.
                    connection.check_constraints()
            ending.enter_context(phase("commit"))

    def _lock_defaults(self) -> None:
        """Lock the defaults of these rows, and of rows that refer to them at any depth."""
        models: dict[Model, None] = {self.binding.model: None}
        for model in (queue := [self.binding.model]):
            others = [relation.related_model for relation in referring(model)]
            queue += [other for other in others if other not in models]
            models |= dict.fromkeys(others)
        policies = (table_policy(model._meta.db_table) for model in models)
        try:
            lock_defaults([policy.binding for policy in policies if policy], self.using)
        except DatabaseError as error:
            if not is_forbidden(error.__cause__):
                raise
            raise StoreError(str(error)) from error

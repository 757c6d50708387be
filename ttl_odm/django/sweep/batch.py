"""Purging one batch of what has expired.

A batch looks for its rows by the index first, without locks. Then, in one short transaction, it
locks those that nobody holds (``SKIP LOCKED``: the sweeper doesn't stand in a queue behind a
writer), deletes them with the predicate in the DELETE, calls the hooks, and commits. Rows that
can't go because others refer to them are tried one by one, left, and counted.

On PostgreSQL, where nothing hangs on the rows, one statement locks and deletes what lies between
two places of the index, and the keys stay in the database.

Each batch begins where the one before it ended, so that none walks again over what others left.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from django.db import IntegrityError, connections, transaction

from ttl_odm.django.purge.removal import Removal, locked, rows_of
from ttl_odm.django.sweep.due import ExpiredRows
from ttl_odm.sweeper import BatchResult, HookError, Skip
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.django.policy.binding import AnyQuerySet, Binding
    from ttl_odm.django.sweep.due import Place
    from ttl_odm.sweeper import BatchRequest, Purged

_LOCK_SECONDS: Final = 1
"""How long a batch waits for a lock that can't be skipped, such as that of a referring row."""


def purge(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Purge one batch; see `ttl_odm.sweeper.Store.purge`."""
    expired = ExpiredRows(binding, using, request.part)
    # One statement locks and deletes: only PostgreSQL skips locked rows in a subquery, and deletes
    # from a table that the subquery reads in order and up to a limit.
    has_one_key = len(binding.model._meta.pk_fields) == 1
    by_range = connections[using].vendor == "postgresql" and has_one_key
    if by_range and Removal(binding.model, using, request.hooks).is_plain:
        # Where others refer to one of the rows, the batch goes on by keys.
        with suppress(IntegrityError):
            return _purge_range(binding, using, request, expired)
    with phase("find"):
        places: list[Place] = list(expired.after(request.resume)[: request.size])
    if not places:
        return BatchResult(0)
    resume = places[-1] if len(places) == request.size else None
    batch, keys = _Batch(binding, using, request, resume), [pk for _, pk in places]
    try:
        return batch.run(keys)
    except HookError as error:
        return BatchResult(0, resume, skipped={Skip.HOOK: batch.left(keys)}, failure=error)
    except IntegrityError:
        return batch.one_by_one(keys)


def _purge_range(
    binding: Binding, using: str, request: BatchRequest, expired: ExpiredRows
) -> BatchResult:
    """Purge from where the batch before ended to the last row of this one.

    It raises IntegrityError where others refer to one of the rows; so does `_Batch.run`.
    """
    model, size = binding.model, request.size
    with phase("find"):
        places = expired.after(request.resume)
        resume: Place | None = next(iter(places[size - 1 : size]), None)
        last = resume or next(iter(places.reverse()[:1]), None)
    if last is None:
        return BatchResult(0)
    batch = _Batch(binding, using, request, resume)
    with batch.limited():
        free = locked(expired.after(request.resume, last), using, skip=True)
        rows = rows_of(model, using).filter(pk__in=free.values("pk")[:size])
        deleted = Removal(model, using, request.hooks).by_statement(rows, by_key=True)
    left = 0 if deleted == size else expired.after(request.resume, last).count()
    return BatchResult(deleted, resume, skipped=_some({Skip.LOCKED: left}))


@dataclass
class _Batch:
    """Rows that were found, to be removed if they are still expired."""

    binding: Binding
    using: str
    request: BatchRequest
    resume: Place | None

    def run(self, keys: Sequence[Any]) -> BatchResult:
        """Remove what nobody holds, report it, and commit."""
        removal = Removal(self.binding.model, self.using, self.request.hooks)
        purged: Sequence[Purged] = ()
        with self.limited():
            chosen = self._rows(keys)
            if removal.is_plain:
                free = keys
                if connections[self.using].features.has_select_for_update_skip_locked:
                    with phase("find"):
                        by_key = chosen.values_list("pk", flat=True)
                        free = list(locked(by_key, self.using, skip=True))
                deleted = removal.by_statement(self._rows(free), by_key=True) if free else 0
            else:
                with phase("find"):
                    objs = list(locked(chosen, self.using, skip=True))
                purged = removal.by_objects(objs)
                deleted = len(objs)
        left = self.left(keys) if deleted < len(keys) else 0
        return BatchResult(
            deleted,
            self.resume,
            archived=removal.archived,
            skipped=_some({Skip.LOCKED: left}),
            purged=purged,
        )

    def one_by_one(self, keys: Sequence[Any]) -> BatchResult:
        """Remove each row by itself; those that others refer to stay."""
        deleted = archived = restricted = held = 0
        purged: list[Purged] = []
        for key in keys:
            try:
                result = self.run([key])
            except IntegrityError:
                restricted += 1
                continue
            except HookError as error:
                skipped = {Skip.HOOK: 1, Skip.RESTRICTED: restricted}
                return BatchResult(
                    deleted, self.resume, archived, _some(skipped), purged, failure=error
                )
            deleted += result.deleted
            archived += result.archived
            held += result.skipped.get(Skip.LOCKED, 0)
            purged += result.purged
        skipped = {Skip.RESTRICTED: restricted, Skip.LOCKED: held}
        return BatchResult(deleted, self.resume, archived, _some(skipped), purged)

    def left(self, keys: Sequence[Any]) -> int:
        """How many of the rows are there, and still expired."""
        return int(self._rows(keys).count())

    def _rows(self, keys: Sequence[Any]) -> AnyQuerySet:
        return rows_of(self.binding.model, self.using).filter(pk__in=list(keys))

    @contextmanager
    def limited(self) -> Iterator[None]:
        """The batch's transaction, whose statements wait, and run, for so long only."""
        connection = connections[self.using]
        with (
            _limited(self.using, self.request.timeout),
            ExitStack() as ending,
            transaction.atomic(using=self.using, durable=True),
        ):
            if connection.vendor == "sqlite":
                # The right to write, before rows are read that are then deleted.
                table = connection.ops.quote_name(self.binding.model._meta.db_table)
                with connection.cursor() as cursor:
                    cursor.execute(f"DELETE FROM {table} WHERE 1 = 0")  # noqa: S608
            yield
            if connection.vendor == "postgresql":
                connection.check_constraints()  # they are deferred: better now than at the commit
            ending.enter_context(phase("commit"))


def _some(skipped: dict[Skip, int]) -> dict[Skip, int]:
    return {reason: rows for reason, rows in skipped.items() if rows}


@contextmanager
def _limited(using: str, timeout: float | None) -> Iterator[None]:
    """Let statements wait for locks, and run, for so long only."""
    connection = connections[using]
    settings: dict[str, str] = {}
    if connection.vendor == "postgresql":
        settings["lock_timeout"] = f"'{_LOCK_SECONDS}s'"
        if timeout is not None:
            settings["statement_timeout"] = f"'{max(1, round(timeout * 1000))}ms'"
    elif connection.vendor == "mysql":
        settings["innodb_lock_wait_timeout"] = str(_LOCK_SECONDS)
        if timeout is not None and getattr(connection, "mysql_is_mariadb", False):
            settings["max_statement_time"] = repr(timeout)
    before: dict[str, Any] = {}
    with connection.cursor() as cursor:
        for name, value in settings.items():
            cursor.execute(
                f"SHOW {name}" if connection.vendor == "postgresql" else f"SELECT @@{name}"
            )
            before[name] = cursor.fetchone()[0]
            cursor.execute(f"SET SESSION {name} = {value}")
    try:
        yield
    finally:
        if connection.connection is not None and connection.is_usable():
            with connection.cursor() as cursor:
                for name, value in before.items():
                    cursor.execute(f"SET SESSION {name} = %s", [value])

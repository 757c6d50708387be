"""What has expired and was not purged yet, and purging one batch of it.

A batch looks for its rows by the index first, without locks. Then, in one short transaction, it
locks those that nobody holds (``SKIP LOCKED``: the sweeper doesn't stand in a queue behind a
writer), deletes them with the predicate in the DELETE, tells the hooks, and commits. Rows that
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
from ttl_odm.django.sweep.due import _Stretch
from ttl_odm.sweeper import BatchResult, HookError, Skip
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from ttl_odm.django.policy.binding import Binding
    from ttl_odm.sweeper import BatchRequest

_LOCK_SECONDS: Final = 1
"""How long a batch waits for a lock that can't be skipped, such as that of a referring row."""


def purge(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Purge one batch; see `ttl_odm.sweeper.Store.purge`."""
    stretch = _Stretch(binding, using, request.part)
    if _goes_by_windows(binding, using, request):
        # Where others refer to one of the rows, the batch goes on by keys.
        with suppress(IntegrityError):
            return _purge_window(binding, using, request, stretch)
    with phase("find"):
        found = list(stretch.after(request.resume)[: request.size])
    resume = found[-1] if len(found) == request.size else None
    keys = [pk for _, pk in found]
    if not keys:
        return BatchResult(0)
    batch = _Batch(binding, using, request, resume)
    try:
        return batch.run(keys)
    except HookError as error:
        return BatchResult(0, resume, skipped={Skip.HOOK: batch.left(keys)}, failure=error)
    except IntegrityError:
        return batch.one_by_one(keys)


def _goes_by_windows(binding: Binding, using: str, request: BatchRequest) -> bool:
    """Whether a batch's keys may stay in the database.

    One statement then locks and deletes. Only PostgreSQL has all that this needs: it skips locked
    rows in a subquery, and deletes from a table that the subquery reads in order and up to a limit.
    """
    if connections[using].vendor != "postgresql" or len(binding.model._meta.pk_fields) > 1:
        return False
    return Removal(binding.model, using, request.hooks).is_plain


def _purge_window(
    binding: Binding, using: str, request: BatchRequest, stretch: _Stretch
) -> BatchResult:
    """Purge from where the batch before ended to the last row of this one.

    Raises:
        IntegrityError: Others refer to one of the rows.
    """
    model, size = binding.model, request.size
    with phase("find"):
        found = stretch.after(request.resume)
        resume = next(iter(found[size - 1 : size]), None)
        last = resume or next(iter(found.reverse()[:1]), None)
    if last is None:
        return BatchResult(0)
    batch = _Batch(binding, using, request, resume)
    with batch.limited():
        window = locked(stretch.after(request.resume, last), using, skip=True)
        rows = rows_of(model, using).filter(pk__in=window.values("pk")[:size])
        deleted = Removal(model, using, request.hooks).by_statement(rows, by_key=True)
    left = 0 if deleted == size else stretch.after(request.resume, last).count()
    return BatchResult(deleted, resume, skipped=_some({Skip.LOCKED: left}))


@dataclass
class _Batch:
    """Rows that were found, to be removed if they are still expired."""

    binding: Binding
    using: str
    request: BatchRequest
    resume: Any

    def run(self, keys: Sequence[Any]) -> BatchResult:
        """Remove what nobody holds, tell, and commit.

        Raises:
            HookError: A hook or the sink failed.
            IntegrityError: Others refer to one of the rows.
        """
        removal = Removal(self.binding.model, self.using, self.request.hooks)
        purged: Sequence[Any] = ()
        with self.limited():
            chosen = self._rows(keys)
            if removal.is_plain:
                with phase("find"):
                    free = self._free(chosen.values_list("pk", flat=True))
                deleted = 0
                if free is None or free:
                    rows = self._rows(keys if free is None else free)
                    deleted = removal.by_statement(rows, by_key=True)
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
            skipped={Skip.LOCKED: left} if left else {},
            purged=purged,
        )

    def one_by_one(self, keys: Sequence[Any]) -> BatchResult:
        """Remove each row by itself; those that others refer to stay."""
        deleted = archived = restricted = held = 0
        purged: list[Any] = []
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

    def _rows(self, keys: Sequence[Any]) -> Any:
        return rows_of(self.binding.model, self.using).filter(pk__in=list(keys))

    def _free(self, keys: Any) -> list[Any] | None:
        """Lock the rows that nobody holds; None where the database has no such locks."""
        features = connections[self.using].features
        if not features.has_select_for_update_skip_locked:
            return None
        return list(locked(keys, self.using, skip=True))

    @contextmanager
    def limited(self) -> Iterator[None]:
        """The batch's transaction, whose statements wait, and run, for so long only."""
        with _limited(self.using, self.request.timeout), self._transaction():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with ExitStack() as ending, transaction.atomic(using=self.using, durable=True):
            connection = connections[self.using]
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
        if timeout is not None and connection.mysql_is_mariadb:
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

"""Purging one batch of expired rows, and dividing what is left among several workers.

A batch is a short transaction. It reads the next range of rows (`due` with an index, `table_walk`
without) and removes them by one statement, which holds the predicate. Where that meets a row that
somebody holds, or that a foreign key protects, the batch begins anew and is careful: it locks the
rows that are free with ``SKIP LOCKED``, leaves those that others refer to, and deletes the rest.
On MySQL, which can't be told not to wait, the one statement does that already.
The sweeper doesn't stand in a queue behind a writer, with its own locks in the way of others, and a
row that can't go doesn't keep others from going.

Everything goes through a `Connection`; asynchronous engines run it by ``run_sync``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sqlalchemy import StaticPool
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.binding import key_columns
from ttl_odm.sqlalchemy.policy.foreign_keys import Change
from ttl_odm.sqlalchemy.policy.rules import dependents, root_of
from ttl_odm.sqlalchemy.purge.errors import in_short, is_locked, is_refused, is_restricted
from ttl_odm.sqlalchemy.purge.removal import Removal
from ttl_odm.sqlalchemy.purge.statements import SweepSelect
from ttl_odm.sqlalchemy.sweep import table_walk
from ttl_odm.sqlalchemy.sweep.batch_rows import Batch, Beside, CarefulBatch, beside
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.sweep.replication import unlogged
from ttl_odm.sqlalchemy.sweep.transactions import (
    has_no_wait,
    prepared,
    reading,
    writing,
    zone_settings,
)
from ttl_odm.sqlalchemy.sweep.walks import walk_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult, HookError, Part, RefusedError, Skip
from ttl_odm.sweeper.phases import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
    from ttl_odm.sqlalchemy.sweep.walks import Walk
    from ttl_odm.sqlalchemy.sweep.whereabouts import Bounds, KeyRange, Whereabouts
    from ttl_odm.sweeper import BatchRequest


def purge(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    keys: ReferringKeys,
    where: Whereabouts,
) -> BatchResult:
    """Purge one batch by a connection fresh from the pool; see `ttl_odm.sweeper.Store.purge`."""
    if request.part.whole:
        return where.purge(connection, request)
    owner = next((one for one in dependents if one.part is request.part), None)
    if owner is not None:
        keys.hooks = request.hooks
        if request.resume is None:
            keys.forget()
        return owner.purge(connection, binding, request, partial(keys.keeps, connection, binding))
    return _purge_rows(connection, binding, request, keys, where)


def _purge_rows(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    keys: ReferringKeys,
    where: Whereabouts,
) -> BatchResult:
    table, timeout = binding.table, request.timeout
    walk = walk_of(connection, binding) if request.part is Part.INHERITING else None
    batch: Batch | None = None
    replicate = request.replicate
    with (
        prepared(connection, timeout, settings=zone_settings(connection, binding)),
        unlogged(connection, replicate=replicate),
    ):
        keys.hooks = request.hooks
        if request.resume is None:
            keys.forget()
            if not request.force:
                with reading(connection):
                    keys.check(connection, binding)
        try:
            endangers = keys.endangers(connection, binding)
            try:
                # A purge that a crash undoes is only done again, if nobody heard of it.
                removal = Removal(connection, binding, request.hooks)
                lazily = removal.leaves_no_trace and not endangers
                with writing(
                    connection,
                    table,
                    timeout,
                    judged=(binding,),
                    lazily=lazily,
                    replicate=replicate,
                ):
                    with phase("find"):
                        source, rows = _next_range(connection, binding, request, where, walk)
                    if rows is None or not rows.rows:
                        return BatchResult(0, rows and rows.resume)
                    if endangers:
                        batch = CarefulBatch(connection, binding, request, rows, source, keys=keys)
                    else:
                        batch = Batch(connection, binding, request, rows, source)
                    return batch.run()
            except (DBAPIError, StaleDataError) as error:
                # Without a range it is the table itself that somebody holds.
                if batch is None or not batch.is_worth_care(error):
                    raise
            return _carefully(batch, keys)
        except (HookError, RefusedError) as error:
            assert batch is not None  # noqa: S101 (there was a batch to report)
            reason = Skip.HOOK if isinstance(error, HookError) else Skip.RESTRICTED
            return _left_behind(batch, reason, error)
        except (DBAPIError, StaleDataError) as error:
            if batch is None or not is_refused(error):
                raise
            # A foreign key to a row of this range was written a moment ago, or a trigger objects.
            reason = Skip.RESTRICTED if is_restricted(error) else Skip.REFUSED
            return _left_behind(batch, reason, RefusedError.by(error, in_short(error)))


def _carefully(batch: Batch, keys: ReferringKeys) -> BatchResult:
    """Begin a batch anew, and remove the rows that can go."""
    connection, request, binding = batch.connection, batch.request, batch.binding
    again = (connection, binding, request, batch.range, batch.source)
    transaction = partial(
        writing,
        connection,
        binding.table,
        request.timeout,
        judged=(binding, *_referring(Change(binding.table), set())),
        replicate=request.replicate,
    )
    try:
        with transaction():
            return CarefulBatch(*again, keys=keys).run()
    except DBAPIError as error:
        if not (has_no_wait(connection) and is_locked(error)):
            raise
    # No row of these is held, but one that goes along with them, or that a trigger changes.
    with transaction():
        return CarefulBatch(*again, keys=keys, waits=True).run()


def _referring(change: Change, seen: set[Change]) -> Iterator[Binding]:
    """The policies of the tables whose expired rows may keep the rows of a table."""
    seen.add(change)
    for consequence in change.consequences():
        child = consequence.child
        below = child if isinstance(child, Change) else Change(child.table)
        if below in seen or not consequence.is_certain:
            continue
        root = None if isinstance(child, Change) else root_of(child.table)
        if root is not None:
            yield root
        yield from _referring(below, seen)


def _next_range(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    where: Whereabouts,
    walk: Walk | None,
) -> tuple[Table, KeyRange | None]:
    """Find the next rows, and the table that they are in."""
    resume = request.resume
    if isinstance(resume, Beside):
        at = replace(request, resume=resume.at)
        source, rows = _next_range(connection, binding, at, where, walk)
        return source, rows and resume.narrowed(rows, binding)

    def find(
        source: Table, stretch: tuple[Any, Any], beside: Bounds | None = None
    ) -> KeyRange | None:
        if request.part is Part.ALL:
            rows = table_walk.next_range(connection, binding, source, request.size, stretch)
            return rows and rows.with_bounds(beside)
        if walk is not None:
            ranges = walk.ranges(source, beside)
            return ranges.next_range(connection, request.size, stretch[0])
        index = PartIndex(binding, request.part, clock_of(connection.dialect), source, beside)
        return index.next_range(connection, request.size, *stretch)

    return where.next_range(connection, request, find)


def _left_behind(batch: Batch, reason: Skip, failure: HookError | RefusedError) -> BatchResult:
    """Report a batch that was undone, and which rows it had."""
    rows, size = batch.range, batch.request.size
    chosen = SweepSelect(*key_columns(batch.source)).where(*rows.criteria(batch.source))
    chosen = chosen.limit(size)
    if clock_of(batch.connection.dialect).locks_rows:
        chosen = chosen.with_for_update(skip_locked=True)
    with reading(batch.connection, batch.request.timeout):
        keys = tuple(tuple(key) for key in batch.connection.execute(chosen))
        resume, left = rows.resume, len(keys)
        if batch.is_crowded:
            at = beside(rows, keys)
            if at is not None:
                resume = at
            else:
                left = batch.count()
    skipped = {reason: left}
    return BatchResult(
        0, resume, skipped=skipped, failure=failure, left=keys[:size], oldest=rows.oldest
    )


def divide(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    shares: int,
    where: Whereabouts,
) -> Sequence[object]:
    """Find the marks between the stretches of several workers; see `ttl_odm.sweeper.Dividing`.

    By an index into ranges of what it is ordered by, which is what batches go by: so no worker
    comes to a row that another has locked. A table that is walked, into ranges of its pages, on
    PostgreSQL. SQLite has one writer at a time, and a walk by the primary key reads more than it
    deletes: there one worker does it all. So it does where scopes are gone through one by one.
    """
    dialect = connection.dialect.name
    has_marks = dialect == "postgresql" or (
        dialect in MYSQL_FAMILY and request.part is not Part.ALL
    )
    is_single = isinstance(connection.engine.pool, StaticPool)  # has one connection for everybody
    if not has_marks or is_single or isinstance(request.resume, Beside):
        return ()
    if request.part is Part.INHERITING and walk_of(connection, binding) is not None:
        return ()

    def marks(source: Table, stretch: tuple[Any, Any]) -> list[Any]:
        if request.part is Part.ALL:
            resume, until = stretch
            return [] if resume is None else table_walk.marks(resume, until, shares)
        index = PartIndex(binding, request.part, clock_of(connection.dialect), source)
        return index.marks(connection, request.size, stretch, shares)

    with (
        prepared(connection, request.timeout, settings=zone_settings(connection, binding)),
        reading(connection, request.timeout),
    ):
        return where.divide(connection, request, shares, marks)

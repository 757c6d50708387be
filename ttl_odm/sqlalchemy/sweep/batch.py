"""The purge of one batch of expired rows.

A batch is a short transaction. It reads the next range of rows (`due` with an index, `table_walk`
without) and deletes them by one statement, which contains the predicate. If that meets a locked
row, or one that a foreign key protects, the batch is repeated carefully: it locks the free rows
with ``SKIP LOCKED``, skips those that others refer to, and deletes the rest. On MySQL, where no
setting avoids waiting, the first statement locks the free rows already. A batch is careful from the
start if a cascade would delete rows that have to be archived or reported. So the sweeper doesn't
queue behind a writer while its own locks block others, and a row that has to stay doesn't keep
others from being deleted.

Everything runs on a `Connection`; asynchronous engines run it by ``run_sync``.
"""

from __future__ import annotations

from collections import Counter
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import any_, func, not_, select, tuple_
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.mysql import LOCKS_FIRST
from ttl_odm.sqlalchemy.keys.displace import referred_rows, referring
from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import expired_in, include_expired
from ttl_odm.sqlalchemy.policy.references import (
    Change,
    dependents,
    is_recorded,
    remove_dependents,
    root_of,
)
from ttl_odm.sqlalchemy.purge.errors import (
    in_short,
    is_locked,
    is_passing,
    is_refused,
    is_restricted,
)
from ttl_odm.sqlalchemy.purge.removal import Removal, count_rows, is_mysql
from ttl_odm.sqlalchemy.purge.statements import (
    CHUNK,
    PurgeDelete,
    SweepSelect,
    hinted,
    is_one_of,
)
from ttl_odm.sqlalchemy.sweep import table_walk
from ttl_odm.sqlalchemy.sweep.due import PartIndex, walk_of
from ttl_odm.sqlalchemy.sweep.rings import Rings, may_have_rings
from ttl_odm.sqlalchemy.sweep.transactions import (
    at_once,
    has_children,
    has_no_wait,
    prepared,
    reading,
    unlogged,
    writing,
    zone_settings,
)
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import BatchResult, HookError, Part, RefusedError, Skip
from ttl_odm.sweeper.hooks import phase

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from sqlalchemy import ColumnElement, Connection, FromClause, Select, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.purge.removal import Bounds, KeyRange
    from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
    from ttl_odm.sqlalchemy.sweep.whereabouts import Stretch, Walk, Whereabouts
    from ttl_odm.sweeper import BatchRequest, Fact


_UNDELETED: Final = (
    "some rows weren't deleted by session.delete(): an ORM event or a do_orm_execute criterion "
    "of the application, such as a soft delete, keeps them"
)

_MOST_WITHOUT: Final = 500
"""How many rows of a crowded range a statement excludes by their keys."""


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
                # A purge that a crash undoes is just repeated, if nothing was archived or reported.
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
                # Without a range it is the table itself that is locked.
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
            # A foreign key to a row of this range was written a moment ago, or a trigger raised.
            reason = Skip.RESTRICTED if is_restricted(error) else Skip.REFUSED
            return _left_behind(batch, reason, RefusedError.by(error, in_short(error)))


def _carefully(batch: Batch, keys: ReferringKeys) -> BatchResult:
    """Repeat a batch, and remove the rows that can be deleted."""
    connection, request, binding = batch.connection, batch.request, batch.binding
    again = (connection, binding, request, batch.range, batch.source)
    transaction = partial(
        writing,
        connection,
        binding.table,
        request.timeout,
        judged=(binding, *_policies_below(Change(binding.table), set())),
        replicate=request.replicate,
    )
    try:
        with transaction():
            return CarefulBatch(*again, keys=keys).run()
    except DBAPIError as error:
        if not (has_no_wait(connection) and is_locked(error)):
            raise
    # None of these rows is locked, but one that is deleted with them, or that a trigger changes.
    with transaction():
        return CarefulBatch(*again, keys=keys, waits=True).run()


def _policies_below(change: Change, seen: set[Change]) -> Iterator[Binding]:
    """Yield the policies of the tables whose expired rows may keep the rows of a table."""
    seen.add(change)
    for consequence in change.consequences():
        child = consequence.child
        below = child if isinstance(child, Change) else Change(child.table)
        if below in seen or not consequence.is_certain:
            continue
        root = None if isinstance(child, Change) else root_of(child.table)
        if root is not None:
            yield root
        yield from _policies_below(below, seen)


def _next_range(
    connection: Connection,
    binding: Binding,
    request: BatchRequest,
    where: Whereabouts,
    walk: Walk | None,
) -> tuple[Table, KeyRange | None]:
    """Find the next rows, and the table that has them."""
    resume = request.resume
    if isinstance(resume, Without):
        at = replace(request, resume=resume.at)
        source, rows = _next_range(connection, binding, at, where, walk)
        return source, rows and resume.narrowed(rows, binding)

    def find(source: Table, stretch: Stretch, bounds: Bounds | None = None) -> KeyRange | None:
        if request.part is Part.ALL:
            rows = table_walk.next_range(connection, binding, source, request.size, stretch)
            return rows and rows.with_bounds(bounds)
        if walk is not None:
            ranges = walk.ranges(source, bounds)
            return ranges.next_range(connection, request.size, stretch[0])
        index = PartIndex(binding, request.part, clock_of(connection.dialect), source, bounds)
        return index.next_range(connection, request.size, *stretch)

    return where.next_range(connection, request, find)


def _left_behind(batch: Batch, reason: Skip, failure: HookError | RefusedError) -> BatchResult:
    """Report a batch that was rolled back, with the keys of its rows."""
    rows, size = batch.range, batch.request.size
    chosen = SweepSelect(*key_columns(batch.source)).where(*rows.criteria(batch.source))
    chosen = chosen.limit(size)
    if clock_of(batch.connection.dialect).locks_rows:
        chosen = chosen.with_for_update(skip_locked=True)
    with reading(batch.connection, batch.request.timeout):
        keys = tuple(tuple(key) for key in batch.connection.execute(chosen))
        resume, number = rows.resume, len(keys)
        if batch.is_crowded:
            at = without(rows, keys)
            if at is not None:
                resume = at
            else:
                number = batch.count()
    skipped = {reason: number}
    return BatchResult(
        0, resume, skipped=skipped, failure=failure, left=keys[:size], oldest=rows.oldest
    )


@dataclass(frozen=True, slots=True)
class Without:
    """A bookmark among rows that no bound divides, without the keys of those that have to stay."""

    at: object
    keys: tuple[tuple[object, ...], ...]

    def narrowed(self, rows: KeyRange, binding: Binding) -> KeyRange:
        """Return a range without these keys."""

        def bounds(source: FromClause) -> list[ColumnElement[bool]]:
            own = [source.c[key.key] for key in key_columns(binding.table)]
            return [*rows.bounds(source), not_(is_one_of(own, self.keys))]

        return replace(rows, bounds=bounds, again=Without(rows.again, self.keys))


def without(rows: KeyRange, keys: Sequence[tuple[object, ...]]) -> Without | None:
    """Return the bookmark to repeat a range without some of its rows; None if they are too many."""
    at = rows.again if isinstance(rows.again, Without) else Without(rows.again, ())
    if len(at.keys) + len(keys) > _MOST_WITHOUT:
        return None
    return replace(at, keys=(*at.keys, *keys))


@dataclass(slots=True)
class Batch:
    """The rows of a range, removed by one statement if possible."""

    connection: Connection
    binding: Binding
    request: BatchRequest
    range: KeyRange
    source: Table
    waits: bool = field(default=False, kw_only=True)
    removals: list[Removal] = field(init=False)
    referring: Counter[str] = field(init=False, default_factory=Counter)
    notes: list[str] = field(init=False, default_factory=list)
    _has_more: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        removal = Removal(self.connection, self.binding, self.request.hooks, source=self.source)
        self.removals = [removal]

    @property
    def _dialect(self) -> str:
        return self.connection.dialect.name

    @property
    def is_crowded(self) -> bool:
        """Whether the range may have more rows than the batch."""
        return self.range.rows > self.request.size

    def is_worth_care(self, error: Exception) -> bool:
        """Return whether some rows may be deleted although all together caused this error."""
        if is_refused(error) or is_locked(error):
            return True
        # The archive may have rejected a row, which only the archive's own statement shows.
        return self.removals[0].mode.copy is not None and not is_passing(error)

    def run(self) -> BatchResult:
        """Remove the rows, and report them; DBAPIError if one is locked, or referred to."""
        deleted = self._remove()
        if self._may_keep(deleted):
            deleted += self._remove_by_key(CHUNK, *self._unblocked())
        # Referring rows come before those that they referred to.
        purged = [item for removal in reversed(self.removals) for item in removal.report()]
        undeleted = self.removals[0].undeleted
        # Though not full, a batch may leave free rows: a cascade has deleted others of the chosen.
        again = (self.is_crowded and bool(deleted or undeleted)) or self._has_more
        for removal in self.removals:
            self.referring += removal.dependents
        skips = self._skips() if deleted < self.range.rows and not again else {}
        resume = self.range.again if again else self.range.resume
        if undeleted:
            if self.removals[0].mode.orm is not None:
                self.notes.append(_UNDELETED)
            if again:
                resume = without(self.range, undeleted) or self.range.resume
            if Skip.LOCKED in skips:
                skips[Skip.LOCKED] -= len(undeleted)
            skips[Skip.REFUSED] = max(skips.get(Skip.REFUSED, 0), len(undeleted))
        own = self.referring.pop(self.binding.table.fullname, 0)
        return BatchResult(
            deleted + own,
            resume,
            archived=self.removals[0].archived,
            skipped={reason: rows for reason, rows in skips.items() if rows},
            referring=self.referring,
            purged=tuple(purged),
            oldest=self.range.oldest,
            loaded=sum(removal.loaded for removal in self.removals),
            notes=self.notes,
            facts=self._facts(),
        )

    def _may_keep(self, deleted: int) -> bool:
        """Whether a trigger may have kept rows without an error; by their keys it is known which.

        MariaDB and MySQL have no such triggers. (What is archived or reported is never kept so.)
        """
        removal = self.removals[0]
        return (
            self._dialect not in MYSQL_FAMILY
            and removal.takes_statements
            and removal.leaves_no_trace
            and self.binding.source.scoping is None
            and not removal.undeleted
            and not (deleted if self.is_crowded else deleted >= self.range.rows)
        )

    def _unblocked(self) -> list[ColumnElement[bool]]:
        """Return the condition for rows that no others keep, if some do."""
        return []

    def _facts(self) -> Mapping[str, Fact]:
        scoping = self.binding.source.scoping
        if scoping is None:
            return {}
        own = (removal.by_scope for removal in self.removals if removal.binding is self.binding)
        return scoping.deleted(sum(own, Counter()))

    def _remove(self) -> int:
        removal = self.removals[0]
        if not removal.takes_statements:
            return self._remove_by_key(CHUNK)
        if is_mysql(self.connection):
            # Its shortest wait is a second, with rows locked that others may want.
            return self._remove_free()
        statement = PurgeDelete(self.source).where(*self.range.criteria(self.source))
        if self.is_crowded:
            if self._dialect not in MYSQL_FAMILY:
                return self._remove_free()
            limit = {"mysql_limit": self.request.size, "mariadb_limit": self.request.size}
            statement = statement.with_dialect_options(**limit)
        with self._at_once(removal):
            return removal.by_statement(statement)

    def _remove_free(self) -> int:
        """Remove the rows that aren't locked."""
        removal, source, dialect = self.removals[0], self.source, self._dialect
        if removal.takes_statements and dialect == "sqlite":  # select and delete in one statement
            alias, columns = source.alias(), key_columns(source)
            free = self._free(alias, *(alias.c[column.key] for column in columns))
            key = columns[0] if len(columns) == 1 else tuple_(*columns)
            return removal.by_statement(PurgeDelete(source).where(key.in_(free)))
        if removal.takes_statements and is_mysql(self.connection):
            return removal.by_statement(self._of_free_rows())
        if (
            removal.takes_statements
            and dialect == "postgresql"
            and not has_children(self.connection, source)
        ):
            # Lock and delete in one: PostgreSQL finds a row again by its physical place.
            free = self._free(source.alias(), table_walk.ctid)
            chosen = table_walk.ctid == any_(func.array(free.scalar_subquery()))
            expired = self.range.expired(source)
            return removal.by_statement(PurgeDelete(source).where(chosen, expired))
        # On small tables MariaDB reads all rows rather than look a few keys up, and waits for the
        # locked ones.
        return self._remove_by_key(1 if dialect in MYSQL_FAMILY else CHUNK)

    def _of_free_rows(self) -> PurgeDelete:
        """Return a DELETE for MySQL that first locks the rows that are free."""
        source, columns = self.source, key_columns(self.source)
        alias = source.alias()
        free = self._free(alias, *(alias.c[column.key] for column in columns)).subquery("ttl_free")
        same = (column == own for column, own in zip(columns, free.c, strict=True))
        statement = PurgeDelete(source).where(*same, self.range.expired(source))
        return hinted(statement, self.connection, LOCKS_FIRST, rows=free.name)

    def _remove_by_key(self, chunk: int, *others: ColumnElement[bool]) -> int:
        criteria = [*self.range.criteria(self.source), *others]
        return self._remove_chosen(self.removals[0], criteria, chunk)

    def _remove_chosen(
        self, removal: Removal, criteria: Sequence[ColumnElement[bool]], chunk: int
    ) -> int:
        rows = removal.choose(criteria, limit=self.request.size)
        with self._at_once(removal):
            # The dependents of one row may be more than a batch: then the row is deleted later.
            keys = removal.keys(rows)
            removed = remove_dependents(self.connection, removal.binding, keys, self.request.size)
            self.referring += removed.rows
            if not removed.is_done:
                self._has_more = True
                return 0
            return removal.by_key(rows, chunk=chunk)

    def _at_once(self, removal: Removal) -> AbstractContextManager[None]:
        # Statements of the application's ORM events wait as they do elsewhere.
        waits = self.waits or removal.mode.orm is not None
        return nullcontext() if waits else at_once(self.connection)

    def _free(self, source: FromClause, *columns: ColumnElement[Any]) -> Select[Any]:
        """Return the SELECT that locks the free rows, and reads columns; SQLite locks no rows."""
        free = select(*columns).select_from(source).where(*self.range.criteria(source))
        free = free.limit(self.request.size).with_for_update(skip_locked=True)
        return free.options(include_expired())

    def count(self, *others: ColumnElement[bool]) -> int:
        """Count the expired rows that are in the range now."""
        return count_rows(self.connection, self.source, *self.range.criteria(self.source), *others)

    def _skips(self) -> dict[Skip, int]:
        return {self._reason: self.count()}

    @property
    def _reason(self) -> Skip:
        """Why rows are left that nothing refers to; SQLite locks none."""
        return Skip.LOCKED if clock_of(self.connection.dialect).locks_rows else Skip.REFUSED


@dataclass(slots=True)
class CarefulBatch(Batch):
    """The rows of a range, some of which may have to stay."""

    keys: ReferringKeys = field(kw_only=True)
    _blocked: ColumnElement[bool] | None = None

    def _remove(self) -> int:
        table = self.binding.table
        change = Change(table)
        if self.removals[0].mode.orm is not None:
            # The ORM's cascades may delete the rows that refer to these, so only a try tells;
            # except for rows that events and cascades would delete without a record.
            self._remove_referring(change, self.range.criteria(table), (change,), recorded=True)
            self._blocked = self._blocks(self.binding, self.source, recorded_only=True)
            self._remove_rings(self._blocks(self.binding, self.source))
            return self._remove_by_key(1, *self._unblocked())
        self._remove_referring(change, self.range.criteria(table), (change,))
        self._blocked = self._blocks(self.binding, self.source)
        if self._blocked is None and self.removals[0].mode.copy is None and not self.is_crowded:
            return self._remove_free()
        # By its key, a row is copied and deleted by a statement each, one of which will show the
        # error; and of a crowded range it is known which rows were tried.
        chunk = 1 if self._dialect in MYSQL_FAMILY else CHUNK
        deleted = self._remove_by_key(chunk, *self._unblocked())
        self._remove_rings(self._blocked)
        return deleted

    def _unblocked(self) -> list[ColumnElement[bool]]:
        return [] if self._blocked is None else [not_(self._blocked)]

    def _remove_rings(self, blocked: ColumnElement[bool] | None) -> None:
        """Remove the rows that only expired ones keep, together with these."""
        if blocked is None or not may_have_rings(self.binding, self.request.hooks):
            return
        kept = SweepSelect(*key_columns(self.source)).where(*self.range.criteria(self.source))
        keys = self.connection.execute(kept.where(blocked).limit(self.request.size)).all()
        if not keys:
            return
        rings = Rings(self.connection, self.keys, self.request.hooks)
        for removal, rows in rings.remove(self.binding, map(tuple, keys)):
            self.referring += Counter({removal.binding.table.fullname: rows})
            self.removals.append(removal)

    def _remove_referring(
        self,
        change: Change,
        doomed: Sequence[ColumnElement[bool]],
        above: tuple[Change, ...],
        *,
        recorded: bool = False,
    ) -> None:
        """Remove expired rows that refer to these, whatever their tables' place in the sweep.

        Their tables are swept first. But rows that are written together expire together, perhaps
        between the sweeps of the two tables. With `recorded`, only remove rows whose model archives
        or reports them.
        """
        hooks = self.request.hooks
        for consequence in change.consequences(hooks):
            child = consequence.binding
            below = consequence.change if child is None else Change(child.table)
            if below is None or below in above[1:] or not consequence.is_certain:
                continue
            is_known = child is None or consequence.is_silent or is_recorded(child, hooks.named)
            if recorded and not is_known:
                continue
            referred = referred_rows(consequence, change.table, *doomed)
            criteria = [referring(consequence, referred.options(include_expired()))]
            if child is None:
                self._remove_referring(below, criteria, (*above, below), recorded=recorded)
                continue
            removal = Removal(self.connection, child, hooks)
            if removal.mode.orm is not None:
                continue
            criteria.append(expired_in(self.connection, child))
            if below != change:
                self._remove_referring(below, criteria, (*above, below))
            blocked = self._blocks(child)
            free = [] if blocked is None else [not_(blocked)]
            deleted = self._remove_chosen(removal, [*criteria, *free], CHUNK)
            if deleted == self.request.size:
                self._has_more = True
            self.referring += Counter({child.table.fullname: deleted})
            self.removals.append(removal)

    def _blocks(
        self,
        binding: Binding,
        source: FromClause | None = None,
        *,
        recorded_only: bool = False,
    ) -> ColumnElement[bool] | None:
        """Return the condition for rows that others keep, except others that are removed first."""
        return self.keys.blocks(
            self.connection,
            binding,
            source,
            self.keys.linking(self.connection, binding),
            recorded_only=recorded_only,
        )

    def _skips(self) -> dict[Skip, int]:
        rows = self.count()
        restricted = self.count(self._blocked) if self._blocked is not None and rows else 0
        if restricted:
            self.keys.log(self.connection, self.binding)
            recorded = self._blocks(self.binding, self.source, recorded_only=True)
            if recorded is not None and self.count(recorded):
                self.notes += [
                    f"rows that {key} refers to are kept until the referring rows are gone: ON "
                    "DELETE CASCADE would delete those without their archive, hooks or ORM events"
                    for key in self.keys.recorded(self.connection, self.binding)
                ]
        return {Skip.RESTRICTED: restricted, self._reason: rows - restricted}

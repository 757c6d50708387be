"""Whether a table has expired rows, and where the next ones are, by the sweeper's indexes.

One statement reads the first entry of each index (`find_due`); if it finds nothing, the sweep of
the table ends. A table without the indexes that it needs (`needs_of`) isn't read there, since that
would be a walk by itself: see `table_walk`. The query for indexes in the catalogue, and the check
that one leads to expired rows, are in `ttl_odm.dialects.indexes`.

A batch deletes the rows of a `KeyRange`: a stretch with no more rows than the batch may have, found
by reading before anything is locked (`PartIndex.next_range`). The rows may change meanwhile, so its
criteria contain the predicate: the statement that deletes decides again. Each range begins where
the one before it ended. Otherwise every batch would walk over the remains of the batches before:
index entries of deleted rows that no vacuum has removed yet, locked rows, rows of single-table
subclasses that live longer than the others.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from sqlalchemy import (
    ColumnElement,
    Table,
    case,
    func,
    inspect,
    literal,
    literal_column,
    select,
    text,
    true,
    type_coerce,
)
from sqlalchemy.types import BigInteger, Integer

from ttl_odm.dialects.indexes import IndexNeed, StoredIndex, stored_index
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.sqlalchemy.policy.predicate import Predicate, include_expired
from ttl_odm.sqlalchemy.policy.references import dependents, rules_below
from ttl_odm.sqlalchemy.policy.schema import can_lead
from ttl_odm.sqlalchemy.purge.removal import KeyRange, count_rows, mode_of
from ttl_odm.sqlalchemy.sweep.transactions import name_of, prepared, reading
from ttl_odm.sqlalchemy.sweep.whereabouts import SweptSource
from ttl_odm.sqlalchemy.time.clock import PartEnd, clock_of
from ttl_odm.sweeper import Due, Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sqlalchemy import Connection, FromClause, Select
    from sqlalchemy.engine import Dialect

    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.bindings import Binding, MaxLifetime
    from ttl_odm.sqlalchemy.policy.sources import Seconds
    from ttl_odm.sqlalchemy.purge.removal import Bounds
    from ttl_odm.sqlalchemy.sweep.whereabouts import Stretch, Walk, Whereabouts
    from ttl_odm.sqlalchemy.time.clock import Clock, ColumnFormat


class Life(NamedTuple):
    """The part of a table's rows, the seconds that they live, and their conditions."""

    part: Part
    seconds: Seconds
    rows: list[ColumnElement[bool]]


_Seen = dict["IndexNeed", StoredIndex]
_Places = dict[tuple[str | None, str], _Seen]

_seen: WeakKeyDictionary[Table, WeakKeyDictionary[Dialect, _Places]] = WeakKeyDictionary()
"""By table, dialect, and schema and name on a connection, the needs for which an index was seen.

They are not looked up again.
"""


def find_due(connection: Connection, binding: Binding, where: Whereabouts) -> Due | None:
    """Find the parts of a table with work; see `ttl_odm.sweeper.Store.due`."""
    is_on = is_ttl_on(connection, binding)
    further = where.due(connection, is_on=is_on)
    if is_on:
        due = _rows_due(connection, binding, further.overdue)
        due = replace(due, parts=(*further.parts, *due.parts), facts=further.facts)
    elif further.parts:
        due = Due(further.parts, 0.0, facts=further.facts)
    else:
        return None
    if dependents and rules_below(binding.table):
        more = (one.part for one in dependents if one.is_due(connection, binding))
        due = replace(due, parts=(*due.parts, *more))
    if not due.parts:
        return due
    mode = mode_of(binding)
    return replace(due, loads_rows=mode.sink is not None or mode.orm is not None)


def is_ttl_on(connection: Connection, binding: Binding) -> bool:
    """Return whether any row of a table can expire at this moment."""
    source = binding.source
    if source.is_known:
        return any(default is not None for default in source.defaults(connection))
    with prepared(connection), reading(connection):
        return any(default is not None for default in source.defaults(connection))


def _rows_due(
    connection: Connection, binding: Binding, overdue: Sequence[ColumnElement[bool]]
) -> Due:
    """Find the parts with expired rows.

    `overdue` is the condition for rows that aren't kept until a whole partition is dropped.
    """
    if is_walked(connection, binding):
        with prepared(connection), reading(connection):
            count_rows(connection, binding.table, limit=0)  # raises if there is no such table
        has_ends = binding.override is not None or binding.max_lifetime is not None
        can_expire = has_ends or binding.source.shortest_age() is not None
        return Due((Part.ALL,), None) if can_expire else Due((), 0.0)
    clock = clock_of(connection.dialect)
    walk = walk_of(connection, binding)
    # One look-up for each life: how long the first row of it has been expired.
    lives = lives_of(binding, binding.source.ages() if walk is None else [walk.life_beside()])
    if not lives:
        return Due((), 0.0)
    # Rows kept until a whole partition is dropped aren't overdue, so each life has two look-ups:
    # with these rows for the parts, and without them for the age.
    not_kept = [() if part is Part.OWN else overdue for part, *_ in lives]
    lookups = [
        PartIndex(binding, part, clock).first_overdue(seconds, [*rows, *more]).scalar_subquery()
        for (part, seconds, rows), without_kept in zip(lives, not_kept, strict=True)
        for more in ([], without_kept)[: 2 if without_kept else 1]
    ]
    with prepared(connection), reading(connection):
        row = iter(connection.execute(select(*lookups).options(include_expired())).one())
        index = PartIndex(binding, Part.INHERITING, clock)
        walked = None if walk is None else walk.overdue(connection, index)
    answers = [
        (first := next(row), next(row) if without_kept else first) for without_kept in not_kept
    ]
    parts = dict.fromkeys(
        part for (part, *_), (first, _) in zip(lives, answers, strict=True) if first is not None
    )
    ages = [age for _, age in answers if age is not None]
    if walked is not None:
        parts = {Part.INHERITING: None, **parts}
        ages.append(walked)
    has_own = binding.override is not None
    if Part.INHERITING in parts and has_own and rules_below(binding.table):
        parts[Part.OWN] = None  # the first part leaves rows to it
    return Due(tuple(parts), max(ages, default=0.0))


def walk_of(connection: Connection, binding: Binding) -> Walk | None:
    """Return the walk through the defaults of a table; None if there is none."""
    source = binding.source
    return source.walk(connection) if isinstance(source, SweptSource) else None


def lives_of(
    binding: Binding, inherited: Iterable[tuple[Seconds, list[ColumnElement[bool]]]]
) -> list[Life]:
    """Return every life that rows may have, given those of the rows that inherit."""
    lives: list[Life] = [Life(Part.INHERITING, seconds, rows) for seconds, rows in inherited]
    if binding.override is not None:
        lives.append(Life(Part.OWN, 0, []))
    if binding.max_lifetime is not None:
        lives.append(Life(Part.CAPPED, binding.max_lifetime.seconds, []))
    return lives


def needs_of(binding: Binding, family: Family) -> list[IndexNeed]:
    """Return the indexes that lead to all expired rows of a table; none if indexes can't.

    No index is ordered by the end of rows whose own ttl is in a column of the application's, nor of
    expired rows with NULL.
    """
    stamp, own, limit = binding.last_modified, binding.override, binding.max_lifetime
    if binding.nulls_expire or (own is not None and not binding.instants.native):
        return []
    if own is None:
        needs = [IndexNeed(Part.INHERITING, stamp.name)]
    elif not family.indexes_parts:
        return []
    elif isinstance(family, MySQL):  # has no partial indexes, but virtual columns
        needs = [IndexNeed(Part.INHERITING, INHERITED_END), IndexNeed(Part.OWN, OWN_END)]
    else:
        needs = [IndexNeed(part, stamp.name, own.name) for part in (Part.INHERITING, Part.OWN)]
    scope = None if binding.source.scoping is None else binding.discriminator
    if own is not None and scope is not None and can_lead(scope, family):
        needs[0] = needs[0]._replace(scope=scope.name)
    return needs if limit is None else [*needs, IndexNeed(Part.CAPPED, limit.created.name)]


def is_walked(connection: Connection, binding: Binding) -> bool:
    """Return whether a sweep has to walk a table: it was declared so, or lacks an index.

    The connection is fresh from the pool. The database is asked until it has all needed indexes.
    """
    needs = needs_of(binding, clock_of(connection.dialect))
    if binding.sweep == "scan" or not needs:
        return True
    seen = seen_indexes(connection, binding, needs)
    return not all(need in seen or need.least in seen for need in needs)


def seen_indexes(connection: Connection, binding: Binding, needs: Sequence[IndexNeed]) -> _Seen:
    """Return the needs for which the database has an index, or has had one.

    The connection is fresh from the pool.
    """
    places = _seen.setdefault(binding.table, WeakKeyDictionary())
    place = name_of(connection, binding.table)
    seen = places.setdefault(connection.dialect, {}).setdefault(place, {})
    if any(need not in seen for need in needs):
        with prepared(connection), reading(connection):
            stored = stored_indexes(connection, binding.table)
        every = {*needs, *(need.least for need in needs)}
        seen |= {need: index for need in every for index in stored if index.leads_to(need)}
    return seen


def stored_indexes(connection: Connection, table: Table) -> list[StoredIndex]:
    """Return the indexes of a table in the database's catalogue.

    SQLAlchemy's inspector is used only on databases without a query of ours: it warns of indexes
    over expressions on SQLite, and reports neither validity nor order.
    """
    schema, name = name_of(connection, table)
    family = clock_of(connection.dialect)
    query = family.indexes_query(schema, name)
    if query is not None:
        rows = connection.execute(text(query.replace(":", "\\:"))).mappings()
        return [stored_index({key.lower(): value for key, value in row.items()}) for row in rows]
    if not family.is_inspected:
        return []
    return [
        StoredIndex(str(index["name"]), index["column_names"][0], "", True, True, "")  # noqa: FBT003
        for index in inspect(connection).get_indexes(name, schema)
    ]


class PartIndex:
    """The index over one part of a table's rows (any but `Part.ALL`), by the end of their lives.

    `source` is the table that has the rows, if not the binding's. `bounds` are further conditions.
    """

    def __init__(
        self,
        binding: Binding,
        part: Part,
        clock: Clock,
        source: Table | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        self._bounds = bounds
        self._seconds: Seconds | None = None
        self._binding = binding
        self._source = binding.table if source is None else source
        self._part = part
        self._clock = clock

    def among(self, bounds: Bounds, seconds: Seconds) -> PartIndex:
        """Return the index over some of these rows, which live for a number of seconds."""
        index = copy(self)
        index._bounds, index._seconds = bounds, seconds  # noqa: SLF001 (its own)
        return index

    def holds(self, source: FromClause) -> ColumnElement[bool]:
        """Return the condition of the partial index, word for word.

        A row with an invalid ttl (0, -2: written by raw SQL, without a CHECK) is in neither index.
        It expires like an inheriting row; only walking the table finds and deletes it.
        """
        override = self._binding.columns_of(source).override
        if override is None or self._part is Part.CAPPED:
            return true()
        own = type_coerce(override, Integer())
        if self._part is Part.INHERITING:
            return own.is_(None)
        return own > literal_column("0", Integer())

    def end(self, source: FromClause) -> ColumnElement[object]:
        """Return the key of the index, word for word: for inheriting rows, their beginning."""
        columns = self._binding.columns_of(source)
        if self._is_by_column:
            return self._format.plain(self._start(source))
        if self._part is Part.INHERITING:
            return type_coerce(PartEnd(columns.last_modified), self._clock.storage)
        return type_coerce(PartEnd(columns.last_modified, columns.override), self._clock.storage)

    def criteria(self, seconds: Seconds) -> tuple[ColumnElement[bool], ...]:
        """Return three conditions: of the index, for its range, and that a row has expired."""
        past = self._ends_until(self._cutoff(seconds))
        return self._held, past, self.expired(self._source, writing=False)

    def ending(
        self, seconds: Seconds, after: ColumnElement[object] | None, until: ColumnElement[object]
    ) -> tuple[ColumnElement[bool], ...]:
        """Return bounds of the rows that end after one moment, and not after another.

        Rows that end at other moments may be within these bounds too. Only the contract's own
        columns have a bound for the first moment; others aren't ordered exactly.
        """
        bounds = self._held, self._ends_until(self._cutoff(seconds, now=until))
        if after is None:
            return bounds
        return *bounds, self.end(self._source) > self._cutoff(seconds, now=after)

    @property
    def place(self) -> ColumnElement[object]:
        """A row's place in the index, as a bookmark."""
        return self._clock.as_bookmark(self.end(self._source))

    def first_overdue(self, seconds: Seconds, rows: list[ColumnElement[bool]]) -> Select[Any]:
        """Return the SELECT of how many seconds the first row has been expired."""
        overdue = select(self._overdue(seconds)).where(*self.criteria(seconds), *rows)
        return overdue.order_by(self.end(self._source)).limit(1)

    def _overdue(self, seconds: Seconds) -> ColumnElement[object]:
        source = self._source
        ended = self.end(source)
        if self._is_by_column:
            ended = self._format.instant(self._start(source))
        # PostgreSQL can't subtract from minus infinity.
        first = self._clock.literal(self._clock.earliest)
        ended = case((ended < first, first), else_=ended)
        return self._clock.length(ended, self._cutoff(seconds))

    @property
    def shortest(self) -> Seconds | None:
        """Seconds after which the first of these rows may expire; None if none ever does.

        An expression that looks them up if Python doesn't know the default.
        """
        if self._seconds is not None:
            return self._seconds
        if self._part is Part.OWN:
            return 0
        if self._part is Part.CAPPED:
            return self._max_lifetime.seconds
        return self._binding.source.shortest_age()

    @property
    def binding(self) -> Binding:
        """The policy of the rows."""
        return self._binding

    @property
    def source(self) -> Table:
        """The table that has the rows."""
        return self._source

    @property
    def _is_by_column(self) -> bool:
        """Whether the index is on the column itself, with any value of the column's type."""
        return self._part is Part.CAPPED or self._binding.override is None

    @property
    def _max_lifetime(self) -> MaxLifetime:
        limit = self._binding.max_lifetime
        assert limit is not None  # noqa: S101 (else there is no such part)
        return limit

    @property
    def _format(self) -> ColumnFormat:
        instants = (
            self._max_lifetime.instants if self._part is Part.CAPPED else self._binding.instants
        )
        return instants.on(self._clock)

    def _start(self, source: FromClause) -> Any:
        columns = self._binding.columns_of(source)
        return columns.created if self._part is Part.CAPPED else columns.last_modified

    def _place_of(self, entries: Select[Any]) -> ColumnElement[object]:
        """Return the first of some entries, as the bookmark for the next batch."""
        return self._clock.as_bookmark(entries.limit(1).scalar_subquery())

    @property
    def _held(self) -> ColumnElement[bool]:
        """The condition of a lookup that makes it use the index.

        MySQL's index is on a virtual column, which is NULL in the rows of other parts. The
        condition `holds` isn't in it: with it, a lookup there would take three times as long, since
        the optimizer considers reading the rows themselves.
        """
        is_virtual = isinstance(self._clock, MySQL) and not self._is_by_column
        return true() if is_virtual else self.holds(self._source)

    def _ends_until(self, cutoff: ColumnElement[object]) -> ColumnElement[bool]:
        if self._is_by_column:
            return self._format.within(self._start(self._source), cutoff)
        return self.end(self._source) <= cutoff

    def _cutoff(
        self, seconds: Seconds, overdue: int = 0, now: ColumnElement[object] | None = None
    ) -> ColumnElement[object]:
        """Return the latest `end` of rows that live for `seconds` and have expired.

        Or of rows that expired `overdue` seconds ago; or by another moment than now.

        It is a difference even of 0 seconds, since SQLite searches no index for a bare CAST. And it
        uses the statement's now: the clock's is volatile, for which PostgreSQL searches no index.
        """
        now = self._clock.literal(self._clock.now) if now is None else now
        span = self._clock.span
        if isinstance(seconds, ColumnElement):
            since = now - span(seconds) - span(literal(overdue, BigInteger()))
            return select(since).scalar_subquery()
        age = literal((0 if self._part is Part.OWN else seconds) + overdue, BigInteger())
        return now - span(age)

    def expired(self, source: FromClause, *, writing: bool) -> ColumnElement[bool]:
        """Return the predicate for rows of this part."""
        predicate = Predicate(self._clock, writing=writing)
        passed = {
            Part.INHERITING: predicate.inherited_end_passed,
            Part.OWN: predicate.own_end_passed,
            Part.CAPPED: predicate.max_lifetime_passed,
        }[self._part]
        return passed(self._binding, self._binding.columns_of(source))

    def entries(self, resume: object, until: object) -> Select[Any] | None:
        """Return the SELECT of a stretch's ends in the index; None if no row ever expires."""
        # The shortest of the defaults bounds the stretch; the predicate decides which rows live
        # longer.
        seconds = self.shortest
        if seconds is None:
            return None
        end = self.end(self._source)
        holds, past, expired = self.criteria(seconds)
        entries = select(end).where(holds, past)
        if self._is_by_column:
            # Rows near their end, or without a date, may be within these bounds too.
            entries = entries.where(expired)
        if self._bounds is not None:
            entries = entries.where(*self._bounds(self._source))
        if resume is not None:
            bound = self.bound(resume)
            entries = entries.where(
                end > bound.value if isinstance(bound, _After) else end >= bound
            )
        return entries if until is None else entries.where(end < self.bound(until))

    def next_range(
        self, connection: Connection, size: int, resume: object, until: object = None
    ) -> KeyRange | None:
        """Find the range of the next batch, by reading only; None when nothing is left."""
        entries, end = self.entries(resume, until), self.end(self._source)
        if entries is None:
            return None
        # Three look-ups, since an aggregate takes twice as long.
        upward, downward = entries.order_by(end), entries.order_by(end.desc())
        last_of_all = downward.limit(1)
        if getattr(connection.dialect, "is_mariadb", False) and not self._is_by_column:
            # On partitioned tables MariaDB reads an index on a virtual column downwards unordered.
            some = upward.limit(size + 1).options(include_expired()).subquery()
            last_of_all = select(func.max(some.c[0]))
        lookups = (upward, upward.offset(size), last_of_all)
        places = map(self._place_of, lookups)
        row: Any = connection.execute(select(*places).options(include_expired())).one()
        first, beyond, last = row
        if first is None:
            return None
        if beyond is None:
            return self._range(size, first, _After(last), None)
        if first != beyond:
            return self._range(size, first, beyond, beyond)
        # Written at one instant, as by a migration's backfill: no bound divides them.
        return self._range(size + 1, first, _After(first), _After(first))

    def marks(
        self, connection: Connection, size: int, stretch: Stretch, shares: int
    ) -> list[object]:
        """Divide a stretch into spans of equal time, if it has two batches; see `Dividing`.

        This reads no more than two batches' entries, however many there are. If rows are not spread
        evenly, some spans end early, and the rest of another one is then divided.
        """
        entries, end, seconds = self.entries(*stretch), self.end(self._source), self.shortest
        if entries is None or seconds is None:
            return []
        upward, downward = entries.order_by(end), entries.order_by(end.desc())
        overdue = self._overdue(seconds)
        lookups = [
            upward.with_only_columns(overdue).limit(1).scalar_subquery(),
            downward.with_only_columns(overdue).limit(1).scalar_subquery(),
            upward.offset(2 * size - 1).limit(1).scalar_subquery().is_not(None),
            self._place_of(upward),
        ]
        row: Any = connection.execute(select(*lookups).options(include_expired())).one()
        oldest, youngest, is_worth_it, first = row
        if not is_worth_it:
            return []
        step = (oldest - youngest) / shares
        ages = dict.fromkeys(int(oldest - step * number) for number in range(1, shares))
        start = self._start(self._source)
        lookups = []
        for cutoff in (self._cutoff(seconds, age) for age in ages):
            is_ahead = self._format.ahead(start, cutoff) if self._is_by_column else end > cutoff
            lookups.append(self._place_of(upward.where(is_ahead)))
        marks = connection.execute(select(*lookups).options(include_expired())).one()
        # Rows written at one instant are all on one side of a mark.
        return [mark for mark in dict.fromkeys(marks) if mark not in (first, None)]

    def _range(self, rows: int, first: object, end: object, resume: object) -> KeyRange:
        def bounds(source: FromClause) -> list[ColumnElement[bool]]:
            ordered, bound = self.end(source), self.bound(end)
            return [
                self.holds(source),
                ordered >= self.bound(first),
                ordered <= bound.value if isinstance(bound, _After) else ordered < bound,
            ]

        expired = partial(self.expired, writing=True)
        key_range = KeyRange(rows, bounds, expired, again=first, resume=resume)
        return key_range.with_bounds(self._bounds)

    def bound(self, value: object) -> Any:
        """Return a bookmark as a value to compare an end with."""
        if isinstance(value, _After):
            return _After(self.bound(value.value))
        raw = self._format.raw if self._is_by_column else self._clock.storage
        return self._clock.from_bookmark(value, raw)


class _After(NamedTuple):
    """The bookmark of the place after all entries with a value."""

    value: object

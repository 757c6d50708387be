"""Where the next expired rows are, by the sweeper's indexes: one window after the other.

A window is a stretch that holds no more rows than a batch may have, found by reading before
anything is locked. What it says of its rows is outdated the moment it is known, so its criteria
end in the predicate: the statement that deletes decides again.

Each window begins where the one before it ended. Otherwise every batch would walk over what the
batches before it left behind: index entries of deleted rows that no vacuum has removed yet, rows
that somebody holds, rows of single-table subclasses that live longer than the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import literal, literal_column, select, true, type_coerce
from sqlalchemy.types import BigInteger, Integer

from ttl_odm.core.values import NEVER
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.predicate import Predicate
from ttl_odm.sqlalchemy.policy.schema import InheritedEnd, OwnEnd
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import ColumnElement, Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding, MaxLifetime
    from ttl_odm.sqlalchemy.time.clock import Clock
    from ttl_odm.sqlalchemy.time.column_types import ColumnFormat


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A stretch of a table with rows to delete.

    Attributes:
        rows: How many there are, at most. More than a batch may have when the stretch can't be
            cut smaller; then they are to be deleted by count.
        bounds: The conditions for a row of the table, or of an alias of it, to be in this window.
        expired: The predicate for the table or an alias of it, in a DELETE.
        again: Where this window begins.
        resume: Where the next one begins; None when this is the last.
    """

    rows: int
    bounds: Callable[[FromClause], list[ColumnElement[bool]]]
    expired: Callable[[FromClause], ColumnElement[bool]]
    again: object
    resume: object

    def criteria(self, source: FromClause) -> list[ColumnElement[bool]]:
        """What makes a row one to delete: both of these."""
        return [*self.bounds(source), self.expired(source)]


def finite_defaults(binding: Binding) -> list[int]:
    """The defaults of a table, in seconds, that let inheriting rows expire at all."""
    defaults = (default() for default in binding.defaults())
    return [seconds for seconds in defaults if seconds is not None and seconds != NEVER]


class PartIndex:
    """The index over one part of a table's rows, by the end of their lives.

    Args:
        binding: The policy of the rows.
        part: `Part.INHERITING`, `Part.OWN` or `Part.CAPPED`.
        clock: The database's clock.
        source: Where they are, if not in the binding's table: one of its partitions.
    """

    def __init__(
        self, binding: Binding, part: Part, clock: Clock, source: Table | None = None
    ) -> None:
        self._binding = binding
        self._source = binding.table if source is None else source
        self._part = part
        self._clock = clock

    @property
    def table(self) -> Table:
        """The table of the index."""
        return self._source

    def holds(self, source: FromClause) -> ColumnElement[bool]:
        """The condition of the partial index, word for word.

        A row with an invalid ttl (0, -2: raw SQL, where no CHECK kept it out) is in neither
        index. It expires like an inheriting row; only walking the table finds and deletes it.
        """
        override = self._binding.columns_of(source).override
        if override is None or self._part is Part.CAPPED:
            return true()
        own = type_coerce(override, Integer())
        if self._part is Part.INHERITING:
            return own.is_(None)
        return own > literal_column("0", Integer())

    def end(self, source: FromClause) -> ColumnElement[Any]:
        """What the index is ordered by, word for word: for inheriting rows, where they began."""
        columns = self._binding.columns_of(source)
        if self._is_by_column:
            return self._format.plain(self._start(source))
        if self._part is Part.INHERITING:
            return type_coerce(InheritedEnd(columns.last_modified), self._clock.storage)
        return type_coerce(OwnEnd(columns.last_modified, columns.override), self._clock.storage)

    def past(self, source: FromClause, seconds: int) -> ColumnElement[bool]:
        """What bounds the index: all rows whose lives have ended, where they last for so long."""
        if self._is_by_column:
            return self._format.within(self._start(source), self._cutoff(seconds))
        return self.end(source) <= self._cutoff(seconds)

    def overdue(self, source: FromClause, seconds: int) -> ColumnElement[Any]:
        """For how long a row has been expired, in the clock's unit, with lives of so long."""
        if self._is_by_column:
            return self._cutoff(seconds) - self._format.instant(self._start(source))
        return self._cutoff(seconds) - self.end(source)

    @property
    def shortest(self) -> int | None:
        """Seconds after which the first of these rows may expire; None if none ever does."""
        if self._part is Part.OWN:
            return 0
        if self._part is Part.CAPPED:
            return self._max_lifetime.seconds
        return min(finite_defaults(self._binding), default=None)

    @property
    def _is_by_column(self) -> bool:
        """Whether the index is on the column itself, which holds what its type allows."""
        return self._part is Part.CAPPED or self._binding.sweeps_by_column

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

    def _cutoff(self, seconds: int) -> ColumnElement[Any]:
        """The latest `end` that is an end of life, where rows live for so long.

        A difference also where nothing is taken away: SQLite searches no index for a bare CAST.
        And by the statement's now: PostgreSQL searches none for the clock's, which is volatile.
        """
        age = literal(0 if self._part is Part.OWN else seconds, BigInteger())
        return self._clock.literal(self._clock.now) - self._clock.span(age)

    def expired(self, source: FromClause, *, writing: bool) -> ColumnElement[bool]:
        """The predicate for rows of this part."""
        predicate = Predicate(self._clock, writing=writing)
        passed = {
            Part.INHERITING: predicate.inherited_end_passed,
            Part.OWN: predicate.own_end_passed,
            Part.CAPPED: predicate.cap_passed,
        }[self._part]
        return passed(self._binding, self._binding.columns_of(source))

    def next_range(self, connection: Connection, size: int, resume: Any) -> KeyRange | None:
        """Find the window of the next batch.

        Args:
            connection: Is only read from.
            size: Rows.
            resume: What the window before it says; None for the first one.

        Returns:
            None when nothing is left.
        """
        # The shortest of the defaults bounds the stretch; whose rows live longer is left to the
        # predicate.
        seconds = self.shortest
        if seconds is None:
            return None
        end = self.end(self.table)
        entries = select(end).where(self.holds(self.table), self.past(self.table, seconds))
        if self._is_by_column:
            # Rows that are near their end, or hold no date, may be within these bounds too.
            entries = entries.where(self.expired(self.table, writing=False))
        if resume is not None:
            entries = entries.where(_from(end, self._bound(resume)))
        # Three look-ups rather than an aggregate, which takes twice as long.
        upward, downward = entries.order_by(end), entries.order_by(end.desc())
        found = (upward.limit(1), upward.offset(size).limit(1), downward.limit(1))
        row: Any = connection.execute(
            select(*(each.scalar_subquery() for each in found)).options(include_expired())
        ).one()
        first, beyond, last = row
        if first is None:
            return None
        if beyond is None:
            return self._window(size, first, _After(last), None)
        if first < beyond:
            return self._window(size, first, beyond, beyond)
        # Written at one instant, as by a migration's backfill: no bound lies between them.
        return self._window(size + 1, first, _After(first), _After(first))

    def _window(self, rows: int, first: Any, end: Any, resume: Any) -> KeyRange:
        def bounds(source: FromClause) -> list[ColumnElement[bool]]:
            ordered = self.end(source)
            return [
                self.holds(source),
                ordered >= self._bound(first),
                _until(ordered, self._bound(end)),
            ]

        return KeyRange(
            rows, bounds, partial(self.expired, writing=True), again=first, resume=resume
        )

    def _bound(self, value: Any) -> Any:
        if isinstance(value, _After):
            return _After(self._bound(value.value))
        return literal(value, self._format.raw if self._is_by_column else self._clock.storage)


class _After(NamedTuple):
    """All that comes after a value."""

    value: Any


def _from(end: Any, bound: Any) -> Any:
    return end > bound.value if isinstance(bound, _After) else end >= bound


def _until(end: Any, bound: Any) -> Any:
    return end <= bound.value if isinstance(bound, _After) else end < bound

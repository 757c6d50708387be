"""The partitions of a table that is cut by time, as the database has them at this moment.

One query of the catalogue reads their bounds and the database's clock (`read_leaves`). From these
and the lifetimes of rows it follows that a partition is

- *over* if its youngest row would have expired by the default, and
- *dead* if no row in it can be live, whatever its own ttl, and even if it was renewed.

Expired rows of a partition that isn't over yet wait for it. Deleting them row by row shortly before
the partition is dropped would waste the work that partitioning saves. Rows with their own ttl don't
wait, since it may be much shorter.

Here are also the reasons why partitions can't go whole (`reason_against`, `archive_cut`).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from operator import ge, lt
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import and_, literal_column, not_, or_, text, true

from ttl_odm.combinations import combination
from ttl_odm.dialects import EPOCH
from ttl_odm.partitions import TimeRange
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.facts import PartitionsCounted
from ttl_odm.partitions.sqlalchemy.layout import cut_of, new_partition, partitioning_on
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import all_subtables
from ttl_odm.sqlalchemy.policy.references import reason_of_dependents
from ttl_odm.sqlalchemy.policy.sources import finite_defaults
from ttl_odm.sqlalchemy.purge.removal import mode_of
from ttl_odm.sqlalchemy.sweep.transactions import name_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sqlalchemy import ColumnElement, Connection, FromClause

    from ttl_odm.partitions.dialects import PartitionDDL
    from ttl_odm.partitions.dialects.ddl import Cut, Edges, NewPartition
    from ttl_odm.partitions.sqlalchemy.layout import Partitioning
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.purge.archive import Copy
    from ttl_odm.sweeper import Hooks

_SECOND: Final = 1_000_000

Name = tuple[str, str]
"""The schema of a partition, and its name."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A partition.

    Attributes:
        name: Its schema and name.
        lower: Its lower bound in microseconds since 1970; None if it is open.
        upper: Its upper bound, likewise.
        hindrance: Why it can't go as a whole, a key of `HINDRANCES`; None if it can.
        rows: How many rows it has, by the database's statistics; None if unknown.
    """

    name: Name
    lower: int | None
    upper: int | None
    hindrance: str | None
    rows: int | None

    @property
    def begins(self) -> int:
        """Its lower bound; if that is open, a number below all others."""
        return -_FAR if self.lower is None else self.lower


@dataclass(frozen=True, slots=True)
class Lives:
    """Seconds after its upper bound at which a partition is over, and dead; None for never."""

    over: int | None
    dead: int | None

    @classmethod
    def of(cls, connection: Connection, binding: Binding) -> Lives:
        """Return the lifetimes by the defaults at this moment."""
        defaults, limit = list(binding.source.defaults(connection)), binding.max_lifetime
        finite = finite_defaults(defaults)
        is_on = None not in defaults  # rows whose TTL is off have no limit either
        if limit is None:
            longest = max(finite) if is_on and len(finite) == len(defaults) else None
            return cls(longest, longest)
        dead = limit.seconds if is_on else None
        ends = [max(finite)] if finite else []
        return cls(min([*ends, *([] if dead is None else [dead])], default=None), dead)


@dataclass(frozen=True, slots=True)
class Leaves:
    """The partitions of a table.

    Attributes:
        now: The database's clock, in microseconds since 1970.
        every: All but `rest` and `past`, the oldest first.
        rest: The partition for rows that belong in no other; None without one.
        past: The lowest partition, if it also has NULLs or rows older than all other partitions:
            batches sweep it, like `rest`.
        has_insert_trigger: Whether rows that are inserted into the table fire a trigger.
        columns: The columns that are not generated.
    """

    partitioning: Partitioning
    ddl: PartitionDDL
    cut: Cut
    lives: Lives
    now: int
    every: tuple[Leaf, ...]
    rest: Leaf | None
    has_insert_trigger: bool
    columns: tuple[str, ...]
    past: Leaf | None = None

    def is_over(self, leaf: Leaf) -> bool:
        """Return whether its rows have expired by the default."""
        return self._has_passed(leaf, self.lives.over)

    def is_dead(self, leaf: Leaf) -> bool:
        """Return whether no row in it can be live."""
        return self._has_passed(leaf, self.lives.dead)

    def overdue(self, leaf: Leaf) -> float:
        """For how many seconds a partition has been over."""
        assert leaf.upper is not None  # noqa: S101 (an open one never is)
        assert self.lives.over is not None  # noqa: S101 (without a lifetime none is)
        return (self.now - leaf.upper) / _SECOND - self.lives.over

    @property
    def counted(self) -> PartitionsCounted:
        """How many partitions there are, and what has to be done with them."""
        over, dead = (
            sum(map(has_passed, self.every)) for has_passed in (self.is_over, self.is_dead)
        )
        return PartitionsCounted(len(self.every), over, sum(1 for _ in self.missing()), dead)

    def edges(self, leaf: Leaf) -> Edges:
        """Its bounds as datetimes."""
        return _instant(leaf.lower), _instant(leaf.upper)

    def holds(self, source: FromClause, leaf: Leaf) -> ColumnElement[bool]:
        """Return the condition for rows of a table that are in a partition, by its bounds."""
        lower, upper = self.edges(leaf)
        return self._between(source, lower, upper)

    def outside(self, names: Collection[Name], source: FromClause) -> list[ColumnElement[bool]]:
        """Return the conditions for rows of a table that aren't in these partitions."""
        time_ranges: list[tuple[datetime | None, datetime | None]] = []
        for leaf in self.every:
            if leaf.name not in names:
                continue
            lower, upper = self.edges(leaf)
            if time_ranges and time_ranges[-1][1] == lower:
                lower = time_ranges.pop()[0]
            time_ranges.append((lower, upper))
        parts = [not_(self._between(source, *time_range)) for time_range in time_ranges]
        column = source.c[self.partitioning.column.key]
        if parts and column.nullable:
            return [or_(column.is_(None), and_(*parts))]
        return parts

    def _between(
        self, source: FromClause, lower: datetime | None, upper: datetime | None
    ) -> ColumnElement[bool]:
        column = source.c[self.partitioning.column.key]
        bounds = ((ge, lower), (lt, upper))
        return and_(
            true(),
            *(
                compare(column, literal_column(self.ddl.bound(self.cut, edge)))
                for compare, edge in bounds
                if edge is not None
            ),
        )

    def current(self, leaf: Leaf) -> Leaf | None:
        """Return a partition that was read earlier as it is now; None if it is gone."""
        return next((other for other in self.every if other.name == leaf.name), None)

    def missing(self) -> Iterator[NewPartition]:
        """Yield the declared partitions that don't exist, in order; none if others make partitions.

        If partitions of another span exist, only the time ranges between them.
        """
        declared = self.partitioning.declared
        if declared.made_by == "others":
            return
        below = () if self.past is None else (self.past,)
        bounds = [self.edges(leaf) for leaf in (*below, *self.every)]
        for time_range in declared.wanted(EPOCH + timedelta(microseconds=self.now)):
            start, end = time_range.start, time_range.end
            for lower, upper in bounds:
                if start < end and (upper is None or start < upper):
                    if lower is not None and start < lower:
                        yield new_partition(self.cut, TimeRange(start, min(lower, end)))
                    start = end if upper is None else upper
            if start < end:
                yield new_partition(self.cut, TimeRange(start, end))

    def waiting_from(self) -> datetime | None:
        """Return the instant from which on expired rows wait for partitions; None if none wait."""
        if self.lives.over is None:
            return None
        bounds = [
            leaf.begins
            for leaf in self.every
            if leaf.hindrance is None and leaf.upper is not None and not self.is_over(leaf)
        ]
        return _instant(min(bounds, default=None))

    def skipped_by(self, part: Part, *, has_own: bool) -> Iterator[Name]:
        """Yield the partitions that the batches of a sweep's part skip, since they go as a whole.

        Args:
            part: The part of the sweep.
            has_own: Whether rows of the table may have a ttl of their own.
        """
        waits = part in (Part.INHERITING, Part.CAPPED) or (part is Part.ALL and not has_own)
        if self.lives.over is None:
            return
        for leaf in self.every:
            if leaf.hindrance is None and leaf.upper is not None:
                is_waiting = waits and not self.is_over(leaf)
                if is_waiting or self.is_dead(leaf):
                    yield leaf.name

    def _has_passed(self, leaf: Leaf, seconds: int | None) -> bool:
        if leaf.upper is None or seconds is None:
            return False
        return leaf.upper + seconds * _SECOND <= self.now


_FAR: Final = 10**18
_FIRST, _LAST = (
    (datetime(year, 1, 1, tzinfo=EPOCH.tzinfo) - EPOCH) // timedelta(microseconds=1)
    for year in (1, 9999)
)


def _instant(microseconds: int | None) -> datetime | None:
    """Return microseconds since 1970 as the nearest possible datetime; None for an open bound."""
    if microseconds is None:
        return None
    return EPOCH + timedelta(microseconds=max(_FIRST, min(microseconds, _LAST)))


def read_leaves(connection: Connection, binding: Binding) -> Leaves | None:
    """Read the partitions of a table and the database's clock, inside a transaction.

    None if the table isn't declared with partitions, or is cut by something else in the database.
    """
    partitioning, dialect = partitioning_on(binding), connection.dialect
    ddl = None if partitioning is None else partition_ddl(dialect.name)
    if partitioning is None or ddl is None:
        return None
    rows = read_catalogue(connection, partitioning, ddl, name_of(connection, binding.table))
    if not rows:
        return None
    every = [
        Leaf((row.schema, row.name), row.lower, row.upper, row.hindrance, row.estimate)
        for row in rows
        if row.name is not None
    ]
    rests = {(row.schema, row.name) for row in rows if row.is_rest}
    has_past = ddl.has_past and partitioning.declared.made_by == "sweeper"
    pasts = {
        (row.schema, row.name)
        for row in rows
        if row.lower is None and not row.is_rest and (row.takes_nulls or has_past)
    }
    others = [leaf for leaf in every if leaf.name not in rests | pasts]
    return Leaves(
        partitioning,
        ddl,
        cut_of(partitioning, rows[0].home, ddl),
        Lives.of(connection, binding),
        rows[0].now,
        tuple(sorted(others, key=lambda leaf: (leaf.begins, leaf.name))),
        next((leaf for leaf in every if leaf.name in rests), None),
        any(row.is_heard for row in rows),
        tuple(rows[0].columns),
        next((leaf for leaf in every if leaf.name in pasts), None),
    )


def read_catalogue(
    connection: Connection,
    partitioning: Partitioning,
    ddl: PartitionDDL,
    name: tuple[str | None, str],
) -> list[Any]:
    """Return the rows of `PartitionDDL.leaves` for a table, each with the clock's `now`."""
    clock = clock_of(connection.dialect)
    now = clock.epoch(clock.at_write, _SECOND)
    schema, table = name
    unit = cut_of(partitioning, schema, ddl).unit
    query = f"SELECT l.*, {now} AS now FROM ({ddl.leaves(unit)}) l"  # noqa: S608 (texts of ours)
    values = {"schema": schema, "name": table, "column": partitioning.column.name}
    return list(connection.execute(text(query), values))


def reason_against(binding: Binding, hooks: Hooks) -> str | None:
    """Return why rows of a table must go one by one; None if its partitions may go whole."""
    mode = mode_of(binding)
    if mode.orm is not None:
        return _reason("orm")
    if mode.sink is not None:
        return _reason("archive")
    if hooks.watches(binding.table.fullname):
        return _reason("hooks")
    if all_subtables(binding):
        return "parts of the rows are in the tables of subclasses"
    return reason_of_dependents(binding)


def _reason(capability: str) -> str:
    return combination("sqlalchemy", "partitions", capability).reason


def archive_cut(connection: Connection, leaves: Leaves, copy: Copy) -> Cut | str:
    """Return the archive that takes over whole partitions; or why it can't."""
    archive, cut = copy.archive, leaves.cut
    if not leaves.ddl.hands_over:
        return "this database archives rows by copying them"
    if copy.extra:
        return "the archive records when each row was archived"
    name = compat.place_of(connection.get_execution_options(), archive)
    theirs = read_catalogue(connection, leaves.partitioning, leaves.ddl, name)
    if not theirs:
        return f"the archive {archive.name} isn't partitioned by {cut.column}"
    if set(theirs[0].columns) != set(leaves.columns):
        return f"the archive {archive.name} has different columns"
    return replace(cut, schema=theirs[0].home, name=archive.name)

"""Warnings: events of rows that are about to expire, and whether such an event still holds.

Rows are looked for by the indexes of the sweeper; see `ttl_odm.events.intervals`. If no index tells
which rows have come into a window, only whole windows are read.

The rows that a look finds are recorded page by page. A call records some pages, and the next call
goes on, because the worker has rows to sweep meanwhile.

This module must not know workers.
"""

from __future__ import annotations

from base64 import b64decode
from collections import deque
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from operator import gt
from typing import TYPE_CHECKING, Any, Concatenate, Final, ParamSpec, TypeVar
from uuid import UUID

from sqlalchemy import Engine, TypeDecorator, literal, literal_column, select
from sqlalchemy.exc import DBAPIError, IntegrityError, StatementError

from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.intervals import Looks
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.sqlalchemy.recorder import (
    RowEvents,
    consumers_of,
    insert_events,
    policy_of_target,
    recorded_ids,
)
from ttl_odm.sqlalchemy.gate.functions import expires_at
from ttl_odm.sqlalchemy.policy.bindings import bind_info, key_columns
from ttl_odm.sqlalchemy.purge.errors import in_short, is_away
from ttl_odm.sqlalchemy.purge.statements import CHUNK
from ttl_odm.sqlalchemy.sweep.due import Life, PartIndex, is_walked, lives_of
from ttl_odm.sqlalchemy.sweep.store import now as now_of
from ttl_odm.sqlalchemy.sweep.table_walk import compared
from ttl_odm.sqlalchemy.sweep.transactions import (
    asked,
    prepared,
    reading,
    store_errors,
    writing,
    zone_settings,
)
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sweeper import TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Row, Select, Table
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.events.expiry import Expiry
    from ttl_odm.sqlalchemy.policy.bindings import Binding

R = TypeVar("R")
P = ParamSpec("P")

PAGES: Final = 10
"""The most pages of rows that a call records, of each table and `before`."""

TRIES: Final = 3
"""The most attempts to record a page while another worker is recording some of its rows."""

_INFO: Final = "ttl_odm.events.warned"


class Warned(RowEvents):
    """The warnings of one table.

    Attributes:
        befores: How long before the end of a row each warning is given.
    """

    def __init__(self, binding: Binding) -> None:
        super().__init__(binding)
        self.befores: dict[timedelta, None] = {}

    @property
    def is_followed(self) -> bool:
        """Whether an index can tell which rows have come into a window.

        It can't if each row may have another default, or if a column has a format of its own, such
        as a wall time in a zone.
        """
        limit = self.binding.max_lifetime
        is_native = limit is None or limit.instants.native
        return self.binding.instants.native and is_native and not self.has_scopes

    @property
    def has_scopes(self) -> bool:
        """Whether each row may have another default."""
        return self.binding.source.scoping is not None

    def columns(self) -> list[Column[Any]]:
        """Return the columns whose values the events have."""
        return [column for column in self.table.columns if str(column.name) in self.included]

    def warning(self, values: Sequence[object], end: datetime, before: timedelta) -> Expiry | None:
        """Return the warning of a row; None if it never expires.

        Args:
            values: The values of its `columns`.
            end: Its end as the database computes it. It counts if Python doesn't know the default;
                otherwise Python's may be more precise than the database's clock.
            before: How long before its end the warning is given.
        """
        names = (str(column.name) for column in self.columns())
        row = dict(zip(names, values, strict=True))
        key = [row[str(column.name)] for column in key_columns(self.table)]
        policy = self.policy_of(row)
        known_end = end if policy is None else self.end_of(policy, row)
        return None if known_end is None else self.event(key, row, known_end, before)


def warn(target: object, before: timedelta, include: Sequence[str]) -> str:
    """Record warnings of the rows of a model; see `ttl_odm.events.record_expiring`."""
    binding = policy_of_target(target)
    warned = warned_of(binding.table) or Warned(binding)
    warned.include(include)
    warned.befores[before] = None
    bind_info(binding.table, _INFO, warned)
    return str(binding.table.fullname)


def warned_of(table: Table) -> Warned | None:
    """Return the warnings of a table; None if it has none."""
    warned: Warned | None = table.info.get(_INFO)
    # A copy of a table has the `info` of the original.
    return warned if warned is not None and warned.table is table else None


@dataclass(slots=True)
class _Stretch:
    """Some rows of a window, which are read page by page.

    Attributes:
        life: How long they live, by which an index leads to them; None if the table is walked.
        after: The instant after which they end; None if the index can't tell.
        until: The latest instant at which they end.
        place: Where in the index to go on; a bookmark.
        key: The key of the row after which to go on, among the rows at that place.
    """

    life: Life | None
    after: datetime | None
    until: datetime
    place: object = None
    key: tuple[object, ...] | None = None


@dataclass(slots=True, eq=False)
class _Window:
    """The rows of a table that end in a window, and the progress of reading them.

    Attributes:
        warned: The warnings of the table.
        looks: The looks at the window.
        stretches: The rows that the last look has found and that aren't read yet.
    """

    warned: Warned
    looks: Looks
    stretches: deque[_Stretch] = field(default_factory=deque)

    def look(self, connection: Connection, now: datetime, *, is_walked: bool) -> None:
        """Find out whether the window has rows, or rows have come into it."""
        if self.stretches:
            return
        source, looks = self.warned.binding.source, self.looks
        is_followed = self.warned.is_followed and not is_walked
        default = tuple(source.defaults(connection)) if source.is_known else looks.default
        after, until = looks.after(now, default), now + looks.before
        stretches: list[_Stretch] = []
        if after is not None:
            if not is_followed:
                return
            stretches, default = self._read(connection, after, until)
        is_whole = after is None or default != looks.default
        if is_whole and is_walked:
            stretches = [_Stretch(None, None, until)]
        elif is_whole:
            stretches, default = self._read(connection, now if is_followed else None, until)
        self.stretches.extend(stretches)
        looks.note(now, default, is_whole=is_whole)

    def _read(
        self, connection: Connection, after: datetime | None, until: datetime
    ) -> tuple[list[_Stretch], object]:
        """Read which stretches hold rows, and the defaults, by one statement."""
        binding = self.warned.binding
        source = binding.source
        stretches = [_Stretch(life, after, until) for life in lives_of(binding, source.ages())]
        lookups: list[Any] = [self._first(connection, stretch) for stretch in stretches]
        if not source.is_known:
            lookups.append(source.shortest_age())
        row: Any = connection.execute(select(*lookups)).one() if lookups else ()
        default = tuple(source.defaults(connection)) if source.is_known else row[-1]
        with_rows = [stretch for stretch, has_rows in zip(stretches, row, strict=False) if has_rows]
        return with_rows, default

    def _first(self, connection: Connection, stretch: _Stretch) -> ColumnElement[Any]:
        rows, index = self._rows(connection, stretch, literal_column("1"))
        assert index is not None  # noqa: S101 (a table that is walked isn't asked)
        return rows.order_by(index.end(self.warned.table)).limit(1).scalar_subquery()

    def _rows(
        self, connection: Connection, stretch: _Stretch, *columns: ColumnElement[Any]
    ) -> tuple[Select[Any], PartIndex | None]:
        """Select the rows of a stretch; return the index that leads to them, too.

        The gate leaves out expired rows.
        """
        binding, clock = self.warned.binding, clock_of(connection.dialect)
        ends = expires_at(binding.table) <= literal(stretch.until, LastModified())
        rows = select(*columns).select_from(binding.table).where(ends)
        if stretch.life is None:
            return rows, None

        def moment(instant: datetime) -> ColumnElement[Any]:
            return literal(clock.to_storage(instant), clock.storage)

        part, seconds, conditions = stretch.life
        index = PartIndex(binding, part, clock)
        after = None if stretch.after is None else moment(stretch.after)
        bounds = index.ending(seconds, after, moment(stretch.until))
        return rows.where(*bounds, *conditions), index

    def record(self, connection: Connection) -> int:
        """Record the rows of the last look, as many pages as one call may."""
        number, read = 0, False
        for _ in range(PAGES):
            if not self.stretches:
                break
            read = True
            number += self._record_page(connection)
        if read and not self.stretches and self.looks.is_whole:
            with reading(connection):
                self.looks.end(now_of(connection))
        return number

    def _record_page(self, connection: Connection) -> int:
        """Record the next page; if that fails, it stays the next one."""
        with reading(connection):
            rows, rest = self._page(connection, self.stretches[0])
            events = self._events(rows)
            for known in recorded_ids(connection, self.warned.tables, events) if events else ():
                del events[known]
        number = self._insert(connection, [*events.values()]) if events else 0
        self.stretches.popleft()
        if rest is not None:
            self.stretches.appendleft(rest)
        return number

    def _events(self, rows: Sequence[Row[tuple[object, ...]]]) -> dict[str, Expiry]:
        width = len(self.warned.columns())
        before = self.looks.before
        events = (self.warned.warning(row[:width], row.ends_at, before) for row in rows)
        return {event.id: event for event in events if event is not None}

    def _page(
        self, connection: Connection, stretch: _Stretch
    ) -> tuple[Sequence[Row[tuple[object, ...]]], _Stretch | None]:
        """Read the next rows of a stretch, and return the rest of it.

        Rows that were written at one instant, as by a migration, may be more than a page: their key
        tells which of them come next.
        """
        table, clock = self.warned.table, clock_of(connection.dialect)
        keys = key_columns(table)
        columns = [*self.warned.columns(), expires_at(table).label("ends_at")]
        rows, index = self._rows(connection, stretch, *columns)
        if index is not None:
            rows = rows.add_columns(index.place.label("ends_place"))
            end = index.end(table)
            if stretch.key is not None:
                rows = rows.where(end == index.bound(stretch.place))
            elif stretch.place is not None:
                rows = rows.where(end > index.bound(stretch.place)).order_by(end)
            else:
                rows = rows.order_by(end)
        if stretch.key is not None:
            rows = rows.where(compared(keys, gt, gt, stretch.key, clock))
        page = connection.execute(rows.order_by(*keys).limit(CHUNK)).all()
        is_full = len(page) == CHUNK
        if not is_full and (index is None or stretch.key is None):
            return page, None
        key, place = None, stretch.place
        if is_full:
            values = dict(zip(self.warned.columns(), page[-1], strict=False))
            key = tuple(values[column] for column in keys)
            place = None if index is None else page[-1].ends_place
        return page, _Stretch(stretch.life, stretch.after, stretch.until, place, key)

    def _insert(self, connection: Connection, events: Sequence[Expiry]) -> int:
        tables = self.warned.tables
        recorded = Subscription(str(self.warned.table.fullname), EXPIRING, self.looks.before)
        tries = 0
        while True:
            tries += 1
            try:
                with writing(connection, tables.events):
                    consumers = consumers_of(connection, tables, recorded)
                    return insert_events(connection, tables, events, consumers, now_of(connection))
            except IntegrityError as error:  # another worker has just recorded some of them
                if tries == TRIES:
                    raise TransientStoreError(in_short(error)) from error


class Statements:
    """The statements of a worker or reader, for a connection without a transaction."""

    def __init__(self, warned: Sequence[Warned]) -> None:
        self._warned = {str(known.table.fullname): known for known in warned}
        self._windows: dict[tuple[str, timedelta], _Window] = {}

    def record(self, connection: Connection) -> int:
        """See `ttl_odm.events.outbox.Warnings.record`."""
        failures: list[Exception] = []
        walked: dict[_Window, bool] = {}
        settings: dict[str, float | str] = {}
        for name, warned in self._warned.items():
            with _collected(failures):
                is_table_walked = warned.has_scopes or is_walked(connection, warned.binding)
                settings |= zone_settings(connection, warned.binding)
                for before in warned.befores:
                    new = _Window(warned, Looks(before))
                    window = self._windows.setdefault((name, before), new)
                    walked[window] = is_table_walked
        number, waiting = 0, deque(walked)
        with prepared(connection, settings=settings):
            while waiting:  # all in one transaction, unless one fails
                with _collected(failures), reading(connection):
                    now = now_of(connection)
                    while waiting:
                        window = waiting.popleft()
                        window.look(connection, now, is_walked=walked[window])
            for window in walked:
                with _collected(failures):
                    number += window.record(connection)
        if failures:
            raise failures[0]
        return number

    def knows(self, event: Expiry) -> bool:
        """Return whether an event is a warning of a known table, so that its row must be read."""
        return event.kind == EXPIRING and event.before is not None and event.table in self._warned

    def hold(self, connection: Connection, event: Expiry) -> bool:
        """Return whether the row of a warning is alive, and has the same end.

        The id of an event stands for both. An event whose key can't be converted back from JSON is
        assumed to hold.
        """
        warned = self._warned[event.table]
        keys = key_columns(warned.table)
        columns = [*warned.columns(), expires_at(warned.table)]
        same = (key == from_json(key, value) for key, value in zip(keys, event.key, strict=True))
        row_of_event = select(*columns).where(*same)
        try:
            with (
                prepared(connection, settings=zone_settings(connection, warned.binding)),
                reading(connection),
            ):
                row = connection.execute(row_of_event).one_or_none()
        except StatementError as error:
            if isinstance(error, DBAPIError):
                raise
            return True
        if row is None:
            return False
        *values, end = row
        assert event.before is not None  # noqa: S101 (or it isn't known)
        warning = warned.warning(values, end, event.before)
        return warning is not None and warning.id == event.id


@contextmanager
def _collected(failures: list[Exception]) -> Iterator[None]:
    """Collect an error so that other tables have their turn; raise that of a lost connection."""
    try:
        yield
    except (DBAPIError, TransientStoreError) as error:
        if isinstance(error, DBAPIError) and is_away(error):
            raise
        failures.append(error)


_READERS: Final[dict[type, Callable[[Any], Any]]] = {
    bytes: b64decode,
    UUID: UUID,
    Decimal: Decimal,
    datetime: datetime.fromisoformat,
    date: date.fromisoformat,
    time: time.fromisoformat,
    timedelta: lambda seconds: timedelta(seconds=seconds),
}


def from_json(column: Column[Any], value: Any) -> Any:
    """Return a value of a key's column, given in the form of `ttl_odm.events.Expiry`."""
    type_: Any = column.type
    while isinstance(type_, TypeDecorator):
        type_ = type_.impl
    try:
        kind = type_.python_type
    except NotImplementedError:
        return value
    if issubclass(kind, Enum):
        return kind(value)
    return _READERS[kind](value) if kind in _READERS else value


class TableWarnings:
    """The `ttl_odm.events.outbox.Warnings` of an `Engine`."""

    def __init__(self, engine: Engine, warned: Sequence[Warned]) -> None:
        self._engine = engine
        self._statements = Statements(warned)

    def record(self) -> int:
        """See `Warnings` in `ttl_odm.events.outbox`."""
        return self._run(Statements.record)

    def hold(self, event: Expiry) -> bool:
        """See `Warnings` in `ttl_odm.events.outbox`."""
        return not self._statements.knows(event) or self._run(Statements.hold, event)

    def _run(
        self,
        work: Callable[Concatenate[Statements, Connection, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        with store_errors(), self._engine.connect() as connection:
            return work(self._statements, connection, *args, **kwargs)


class AsyncTableWarnings:
    """The `ttl_odm.events.outbox.AsyncWarnings` of an `AsyncEngine`."""

    def __init__(self, engine: AsyncEngine, warned: Sequence[Warned]) -> None:
        self._engine = engine
        self._statements = Statements(warned)

    async def record(self) -> int:
        """See `Warnings` in `ttl_odm.events.outbox`."""
        return await self._run(Statements.record)

    async def hold(self, event: Expiry) -> bool:
        """See `Warnings` in `ttl_odm.events.outbox`."""
        return not self._statements.knows(event) or await self._run(Statements.hold, event)

    async def _run(
        self,
        work: Callable[Concatenate[Statements, Connection, P], R],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> R:
        def inside(connection: Connection) -> R:
            return work(self._statements, connection, *args, **kwargs)

        with store_errors():
            return await asked(self._engine, inside)


def open_warnings(
    engine: Engine | AsyncEngine, warned: Sequence[Warned]
) -> TableWarnings | AsyncTableWarnings:
    """Open the warnings of an engine that `open_outbox` accepts."""
    if isinstance(engine, Engine):
        return TableWarnings(engine, warned)
    return AsyncTableWarnings(engine, warned)

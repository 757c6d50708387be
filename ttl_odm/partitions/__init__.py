"""`Partitions`: tables that are cut by time, so that expired rows go a partition at a time.

- `facts`: what reports say of a table's partitions, and the part of a sweep that handles them.
- `dialects`: how each family of databases makes, drops and lists partitions.
- `sqlalchemy`: everything that partitioned tables need on SQLAlchemy.
- `alembic`: how migrations cut existing tables.

This module only calculates: which time range contains an instant, which ranges are needed ahead of
now, and their names. All of it is in UTC, whatever a column or a session shows.

It must not know a database, nor what a partition is in one.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, Literal

from ttl_odm.core.extension import Layout
from ttl_odm.core.values import integral, short_repr
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

Survivors = Literal["sweep", "move"]
Maker = Literal["sweeper", "others"]

_SPANS: Final = re.compile(r"(\d{1,2}) (hour|day|week|month)s?")
_HOURS: Final = (1, 2, 3, 4, 6, 8, 12)
"""Hours that divide a day, so that each day begins with a new time range."""

_FIX: Final = "write '1 hour' (or 2, 3, 4, 6, 8, 12 hours), '1 day', '1 week' or '1 month'"
_MOST_AHEAD: Final = 10_000
_MONTHS: Final = 12


@dataclass(frozen=True, slots=True)
class TimeRange:
    """The time range of one partition: from `start` on, before `end`; both aware, in UTC."""

    start: datetime
    end: datetime

    @property
    def suffix(self) -> str:
        """The end of its partition's name, from its start: ``p20261125``, ``p20261125_06``.

        A start that is not a full hour is written to the second.
        """
        start = self.start
        if start.minute or start.second:
            return f"{start:p%Y%m%d_%H%M%S}"
        return f"{start:p%Y%m%d_%H}" if start.hour else f"{start:p%Y%m%d}"


@dataclass(frozen=True, slots=True)
class Partitions(Layout):
    """How a table is partitioned by the column that lifetimes are counted from.

    ``__ttl_partition__ = Partitions("1 day")`` gives the table a partition for each day (in UTC).
    A partition is dropped as a whole once none of its rows is live.

    Attributes:
        span: How much time one partition holds: "1 hour" (or 2, 3, 4, 6, 8, 12 hours), "1 day",
            "1 week" (from Monday on) or "1 month".
        ahead: How many partitions to keep ready after the current one. If the column holds the
            instant of expiry, allow for the longest lifetimes.
        survivors: What happens to a partition that is past the default ttl but has rows that live
            longer. "sweep" deletes its expired rows in batches until it is empty. "move" moves the
            live rows, if there are few, to the partition for all other rows, and drops it.
        made_by: Who creates partitions: the "sweeper", or "others" (pg_partman, a migration). With
            "others" the sweeper creates none, but still drops them.
    """

    span: str
    ahead: int = 7
    survivors: Survivors = "sweep"
    made_by: Maker = "sweeper"

    def __post_init__(self) -> None:
        """Reject values with which no table can be cut.

        Raises:
            TTLConfigurationError: Names the field, the value and what to write instead.
        """
        number, unit = self._read()
        object.__setattr__(self, "span", f"{number} {unit}{'s' if number > 1 else ''}")
        ahead = integral(self.ahead)
        if ahead is None or not 1 <= ahead <= _MOST_AHEAD:
            raise _misdeclared("ahead", self.ahead, f"write a number from 1 to {_MOST_AHEAD}")
        object.__setattr__(self, "ahead", ahead)
        if self.survivors not in ("sweep", "move"):
            raise _misdeclared("survivors", self.survivors, "write 'sweep' or 'move'")
        if self.made_by not in ("sweeper", "others"):
            raise _misdeclared("made_by", self.made_by, "write 'sweeper' or 'others'")

    @property
    def is_of_days(self) -> bool:
        """Whether each partition begins at midnight, which a column of dates requires."""
        return self._read()[1] != "hour"

    def at(self, instant: datetime) -> TimeRange:
        """Return the time range that contains an aware instant."""
        number, unit = self._read()
        moment = instant.astimezone(timezone.utc)
        start = moment.replace(minute=0, second=0, microsecond=0)
        if unit == "hour":
            start = start.replace(hour=start.hour // number * number)
            return TimeRange(start, start + timedelta(hours=number))
        start = start.replace(hour=0)
        if unit == "day":
            return TimeRange(start, start + timedelta(days=1))
        if unit == "week":
            start -= timedelta(days=start.weekday())
            return TimeRange(start, start + timedelta(days=7))
        start = start.replace(day=1)
        years, month = divmod(start.month, _MONTHS)
        return TimeRange(start, start.replace(year=start.year + years, month=month + 1))

    def wanted(self, now: datetime) -> Iterator[TimeRange]:
        """List the time range of an aware instant and the next `ahead` ranges, in order."""
        time_range = self.at(now)
        yield time_range
        for _ in range(self.ahead):
            time_range = self.at(time_range.end)
            yield time_range

    def covering(self, oldest: datetime, now: datetime, most: int) -> list[TimeRange]:
        """List the time ranges from an aware instant up to the last one that `wanted` lists.

        At most `most` are listed, unless `wanted` needs more. Everything older is then in the
        first range, regardless of its length.
        """
        time_ranges = deque(self.wanted(now))
        while oldest < time_ranges[0].start and len(time_ranges) < most - 1:
            time_ranges.appendleft(self.at(time_ranges[0].start - timedelta(microseconds=1)))
        first = time_ranges[0].start
        if oldest < first:
            time_ranges.appendleft(TimeRange(self.at(oldest).start, first))
        return list(time_ranges)

    def _read(self) -> tuple[int, str]:
        """Return the number and the unit of the span."""
        span: object = self.span
        match = _SPANS.fullmatch(span) if isinstance(span, str) else None
        if match is None:
            raise _misdeclared("span", self.span, _FIX)
        number, unit = int(match[1]), match[2]
        if number not in (_HOURS if unit == "hour" else (1,)):
            raise _misdeclared("span", self.span, _FIX)
        return number, unit


def _misdeclared(field: str, value: object, fix: str) -> TTLConfigurationError:
    return TTLConfigurationError(f"Partitions.{field} = {short_repr(value)}: {fix}.")

"""`Partitions`: how a table is cut by time, so that what has expired goes a partition at a time.

Arithmetic only: in which stretch an instant is, which stretches are wanted ahead of now, what each
is called. All of it is in UTC, whatever a column or a session shows.

This module must not know a database, nor what a partition is in one.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, Literal

from ttl_odm.core.values import integral, short_repr
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator

Survivors = Literal["sweep", "move"]
Maker = Literal["sweeper", "others"]

_SPANS: Final = re.compile(r"(\d{1,2}) (hour|day|week|month)s?")
_HOURS: Final = (1, 2, 3, 4, 6, 8, 12)
"""Those that divide a day, so that a day begins with a stretch."""

_FIX: Final = "write '1 hour' (or 2, 3, 4, 6, 8, 12 hours), '1 day', '1 week' or '1 month'"
_MOST_AHEAD: Final = 10_000
_MONTHS: Final = 12


@dataclass(frozen=True, slots=True)
class Stretch:
    """The instants of one partition: from `start` on, before `end`; both aware, in UTC."""

    start: datetime
    end: datetime

    @property
    def suffix(self) -> str:
        """What the name of its partition ends in, by its start: ``p20261125``, ``p20261125_06``.

        A start that is not a full hour is named to the second.
        """
        start = self.start
        if start.minute or start.second:
            return f"{start:p%Y%m%d_%H%M%S}"
        return f"{start:p%Y%m%d_%H}" if start.hour else f"{start:p%Y%m%d}"


@dataclass(frozen=True, slots=True)
class Partitions:
    """How a table is cut by the column that its lives are counted from.

    ``__ttl_partition__ = Partitions("1 day")`` makes a table with a partition for each day (in
    UTC). A partition is dropped as a whole when nothing in it is live.

    Attributes:
        span: How much time one partition holds: "1 hour" (or 2, 3, 4, 6, 8, 12 hours), "1 day",
            "1 week" (from Monday on) or "1 month".
        ahead: How many partitions there are to be after the one that now is in. Where the column
            holds the instant of expiry, enough for the longest lives.
        survivors: What becomes of a partition whose default life is over, but which has rows that
            live longer: "sweep" deletes its expired rows by batches until it is empty; "move" puts
            the live ones, if they are few, into the partition for all other rows, and drops it.
        made_by: Who makes partitions: the "sweeper", or "others" (pg_partman, a migration). Then
            none is made, and they are dropped as always.
    """

    span: str
    ahead: int = 7
    survivors: Survivors = "sweep"
    made_by: Maker = "sweeper"

    def __post_init__(self) -> None:
        """Refuse what would cut no table.

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
        """Whether each partition begins at midnight, so that a column of dates can be cut."""
        return self._read()[1] != "hour"

    def at(self, instant: datetime) -> Stretch:
        """Return the stretch that an aware instant is in."""
        number, unit = self._read()
        moment = instant.astimezone(timezone.utc)
        start = moment.replace(minute=0, second=0, microsecond=0)
        if unit == "hour":
            start = start.replace(hour=start.hour // number * number)
            return Stretch(start, start + timedelta(hours=number))
        start = start.replace(hour=0)
        if unit == "day":
            return Stretch(start, start + timedelta(days=1))
        if unit == "week":
            start -= timedelta(days=start.weekday())
            return Stretch(start, start + timedelta(days=7))
        start = start.replace(day=1)
        years, month = divmod(start.month, _MONTHS)
        return Stretch(start, start.replace(year=start.year + years, month=month + 1))

    def wanted(self, now: datetime) -> Iterator[Stretch]:
        """List the stretch of an aware instant, and those `ahead` of it, in order."""
        stretch = self.at(now)
        yield stretch
        for _ in range(self.ahead):
            stretch = self.at(stretch.end)
            yield stretch

    def covering(self, oldest: datetime, now: datetime, most: int) -> list[Stretch]:
        """List the stretches from an aware instant on, up to the last one that `wanted` lists.

        There are `most` at most, unless more are wanted: what is older than these is in one stretch
        then, the first, however long that is.
        """
        stretches = deque(self.wanted(now))
        while oldest < stretches[0].start and len(stretches) < most - 1:
            stretches.appendleft(self.at(stretches[0].start - timedelta(microseconds=1)))
        first = stretches[0].start
        if oldest < first:
            stretches.appendleft(Stretch(self.at(oldest).start, first))
        return list(stretches)

    def _read(self) -> tuple[int, str]:
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

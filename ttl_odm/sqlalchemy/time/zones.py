"""The offsets of a time zone from UTC, from this host's tables of zones.

SQLite has no zones, and MariaDB's tables of zones are empty until an administrator loads them. So a
column of wall times in a named zone is compared by offsets that are written into the SQL, on every
database alike. They come from `zoneinfo`, or for ``"local"`` from the C library, like the answers
of `ttl_odm.core.expiry`.

Ten years before and after the present are covered. Outside them a wall time is read as the latest
instant that it can mean, so that nothing expires early there either.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import cache
from typing import Final
from zoneinfo import ZoneInfo

_YEARS: Final = 10
"""How far the offsets reach into the past, and into the future."""

_DAY: Final = 86_400


@dataclass(frozen=True, slots=True)
class Offsets:
    """A zone's offsets from UTC, in seconds (an hour to the east is 3600).

    Attributes:
        changes: The Unix time of each change, with the offset from then on, the latest first; the
            earliest one is the beginning of the years that are covered.
        least: The smallest offset: with it, a wall time means the latest instant.
        most: The largest offset.
        end: The Unix time until which the offsets are known.
    """

    changes: tuple[tuple[int, int], ...]
    least: int
    most: int
    end: int

    @property
    def is_fixed(self) -> bool:
        """Whether the zone has a single offset."""
        return self.least == self.most

    def by_wall_time(self) -> list[tuple[int, int]]:
        """Return each offset with the wall time from which it counts, the latest first.

        A wall time is the Unix time at which a clock in UTC shows it. A wall time that a change
        repeats counts from its second occurrence; one that a change skips is read with the offset
        before the change.
        """
        after = (self.end + self.most, self.least)
        return [after, *((instant + offset, offset) for instant, offset in self.changes)]


@cache
def offsets_of(zone: str) -> Offsets:
    """Return the offsets of a zone: "UTC", "local" or an IANA name."""
    if zone == "UTC":
        return Offsets((), 0, 0, 0)
    year = datetime.now(timezone.utc).year
    begin, end = (
        int(datetime(bound, 1, 1, tzinfo=timezone.utc).timestamp())
        for bound in (year - _YEARS, year + _YEARS + 1)
    )
    info = None if zone == "local" else ZoneInfo(zone)

    def offset_at(instant: int) -> int:
        if info is None:
            return time.localtime(instant).tm_gmtoff
        offset = datetime.fromtimestamp(instant, info).utcoffset()
        return 0 if offset is None else round(offset.total_seconds())

    changes = [(begin, offset_at(begin))]
    for day in range(begin, end, _DAY):
        before, after = changes[-1][1], offset_at(day + _DAY)
        if after != before:
            # The first second of the offset that counts at the end of the day.
            seconds = range(day + 1, day + _DAY + 1)
            first = bisect_left(seconds, x=True, key=lambda second: offset_at(second) == after)
            changes.append((seconds[first], after))
    offsets = [offset for _, offset in changes]
    return Offsets(tuple(reversed(changes)), min(offsets), max(offsets), end)

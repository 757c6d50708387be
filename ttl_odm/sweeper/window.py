"""The hours in which a sweeper may work: ``window="01:00-05:00", timezone="Europe/Berlin"``.

A window is a stretch of the wall clock in a time zone, so it opens at one o'clock in summer and
in winter. An hour that the clocks skip is simply not there, one that they repeat counts twice.

This module must not know a clock: it is asked about an instant, which is the database's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import time
from typing import TYPE_CHECKING

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from datetime import datetime, tzinfo


@dataclass(frozen=True, slots=True)
class DailyWindow:
    """Hours of the day, by a zone's wall clock; over midnight if they end before they start."""

    start: time
    end: time
    zone: tzinfo

    @classmethod
    def of(cls, text: str, timezone: str) -> DailyWindow:
        """Read ``"01:00-05:00"`` and the IANA name of a time zone."""
        hours = re.fullmatch(r"\s*(\d\d:\d\d)\s*-\s*(\d\d:\d\d)\s*", str(text))
        try:
            start, end = (
                time() if hour == "24:00" else time.fromisoformat(hour)
                for hour in (hours.groups() if hours else ("", ""))
            )
        except ValueError:
            start = end = time()
        if start == end:
            raise TTLConfigurationError(
                f"window = {text!r}: give hours of the day, such as '01:00-05:00' or '22:00-04:00'."
            )
        return cls(start, end, zone_of(timezone))

    def is_open(self, instant: datetime) -> bool:
        """Whether an aware instant lies in it."""
        wall = instant.astimezone(self.zone).time()
        if self.start < self.end:
            return self.start <= wall < self.end
        return wall >= self.start or wall < self.end


def zone_of(name: str) -> tzinfo:
    """Read the IANA name of a time zone."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # noqa: PLC0415 (few sweepers need it)

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise TTLConfigurationError(
            f"timezone = {name!r}: give an IANA name that this machine knows, such as "
            "'Europe/Berlin' (the package tzdata brings them where the system doesn't)."
        ) from error

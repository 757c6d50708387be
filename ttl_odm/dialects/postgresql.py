"""PostgreSQL.

``now()`` is the start of the *transaction*: a row written late in a long one would be born dead,
and a long reader would see the expired. Reads compare with ``statement_timestamp()``; stamps and
the predicates of writes use ``clock_timestamp()``, so that a write which waited for a lock judges
the row at the moment it writes.
"""

from __future__ import annotations

from datetime import datetime, timezone

from ttl_odm.dialects.family import ErrorCodes, Family
from ttl_odm.sweeper import Pace


class PostgreSQL(Family):
    """PostgreSQL, whose instants are ``timestamptz``."""

    names = ("postgresql",)
    at_read = "statement_timestamp()"
    at_write = "clock_timestamp()"
    instant_type = "timestamp with time zone"
    earliest = "TIMESTAMPTZ '0001-01-01 00:00:00+00'"
    latest = "TIMESTAMPTZ '10000-01-01 00:00:00+00'"
    # Some milliseconds a batch are Python's and the network's, whatever its size.
    pace = Pace(start=1_000, lowest=100, highest=25_000, target=0.1)
    errors = ErrorCodes(
        locked=frozenset({"55P03", "40P01"}),  # lock_not_available, deadlock_detected
        passing=frozenset(
            {
                "40001",  # serialization_failure
                "57014",  # query_canceled, as by a statement timeout
            }
        ),
        away=frozenset(
            {
                "57P01",  # admin_shutdown
                "57P02",  # crash_shutdown
                "57P03",  # cannot_connect_now
                "57P05",  # idle_session_timeout
                "53300",  # too_many_connections
            }
        ),
        missing_table=frozenset({"42P01"}),
    )

    def epoch(self, moment: str, per_second: int) -> str:
        """An integer since 1970."""
        return f"FLOOR(EXTRACT(EPOCH FROM {moment}) * {per_second})::bigint"

    def date(self, moment: str) -> str:
        """The instant itself: a column of dates is compared with it as ``timestamptz``."""
        return moment

    def date_ago(self, moment: str, seconds: str) -> str:
        """Never by a bound interval: a timedelta of a day has 23 or 25 hours twice a year."""
        return f"({moment} - {seconds} * {self.second})"

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Whole seconds, rounded up."""
        return f"GREATEST(1, CEIL(EXTRACT(EPOCH FROM {instant} - {now or self.now})))::integer"

    def least(self, one: str, other: str) -> str:
        """The lower of two values."""
        return f"LEAST({one}, {other})"

    def instant_literal(self, instant: datetime) -> str:
        """The same instant in every session, whatever its time zone."""
        return f"timestamptz '{instant.isoformat()}'"

    def to_storage(self, instant: datetime) -> datetime:
        """The datetime itself."""
        return instant

    def from_storage(self, value: datetime) -> datetime:
        """The same in UTC."""
        # psycopg answers in the session's time zone, asyncpg in UTC.
        return value if value.tzinfo is timezone.utc else value.astimezone(timezone.utc)

    def own_end(self, stamp: str, ttl: str) -> str:
        """In UTC, without a zone.

        timestamptz + interval depends on the session's time zone and may not be indexed.
        """
        return f"((({stamp} AT TIME ZONE 'UTC') + {ttl} * {self.second}) AT TIME ZONE 'UTC')"

"""MariaDB and MySQL.

``UNIX_TIMESTAMP(NOW(6))`` goes through the session's time zone and is an hour off during the hour
that daylight saving repeats in autumn. ``TIMESTAMPDIFF(MICROSECOND, ..., UTC_TIMESTAMP(6))`` never
leaves UTC. Instants are integers, since TIMESTAMP ends in 2038 and depends on that zone too.

Neither has partial indexes, so the sweeper's two indexes are on virtual columns, which no ORM's
table knows.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from ttl_odm.dialects.family import EPOCH, ErrorCodes, Family
from ttl_odm.sweeper import Pace

INHERITED_END: Final = "_ttl_inh"
OWN_END: Final = "_ttl_own"
"""The virtual columns that stand for the ends of the two indexes."""


class MySQL(Family):
    """MariaDB and MySQL, whose instants are microseconds since 1970."""

    names = ("mysql", "mariadb")
    at_read = at_write = "UTC_TIMESTAMP(6)"
    instant_type = "bigint"
    per_second = 1_000_000
    earliest = "-62135596800000000"
    latest = "253402300800000000"
    pace = Pace(start=1_000, lowest=100, highest=5_000, target=0.1)
    errors = ErrorCodes(
        locked=frozenset({1205, 1213}),  # lock wait timeout, deadlock
        passing=frozenset(
            {
                1020,  # the row has changed since it was read (innodb_snapshot_isolation)
                1317,  # the query was interrupted
                1969,  # max_statement_time
                3024,  # max_execution_time
            }
        ),
        away=frozenset(
            {
                1040,  # too many connections
                1053,  # the server is shutting down
                1927,  # the connection was killed
                2002,  # can't connect
                2003,  # can't connect
                2006,  # the server has gone away
                2013,  # the connection was lost
            }
        ),
        missing_table=frozenset({1146, 1142}),  # MariaDB says "denied" first
    )

    def epoch(self, moment: str, per_second: int) -> str:
        """An integer since 1970."""
        microseconds = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {moment})"
        factor = 1_000_000 // per_second
        return microseconds if factor == 1 else f"({microseconds} DIV {factor})"

    def date(self, moment: str) -> str:
        """The instant itself."""
        return moment

    def date_ago(self, moment: str, seconds: str) -> str:
        """Some seconds before."""
        return f"({moment} - INTERVAL ({seconds}) SECOND)"

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Whole seconds, rounded up."""
        return f"GREATEST(1, ({instant} - {now or self.now} + 999999) DIV 1000000)"

    def least(self, one: str, other: str) -> str:
        """The lower of two values."""
        return f"LEAST({one}, {other})"

    def to_storage(self, instant: datetime) -> int:
        """Microseconds since 1970."""
        return (instant - EPOCH) // timedelta(microseconds=1)

    def from_storage(self, value: int) -> datetime:
        """The datetime, in UTC."""
        return EPOCH + timedelta(microseconds=value)

    def inherited_end(self, stamp: str) -> str:
        """The virtual column, in the same table as the stamp."""
        return f"{stamp.rpartition('.')[0]}.{INHERITED_END}".lstrip(".")

    def own_end(self, stamp: str, ttl: str) -> str:  # noqa: ARG002 (the column is made of it)
        """The virtual column, in the same table as the stamp."""
        return f"{stamp.rpartition('.')[0]}.{OWN_END}".lstrip(".")

    def virtual_columns(self, stamp: str, ttl: str) -> dict[str, str]:
        """The clauses that add the virtual columns, by the columns' names.

        Integers only: a TIMESTAMP plus an INTERVAL in a generated column is evaluated in the time
        zone of the session, and the index then disagrees with the table.
        """
        ends = {
            INHERITED_END: f"CASE WHEN {ttl} IS NULL THEN {stamp} END",
            OWN_END: f"CASE WHEN {ttl} > 0 THEN {stamp} + {ttl} * {self.second} END",
        }
        return {
            name: f"ADD COLUMN {name} BIGINT GENERATED ALWAYS AS ({end}) VIRTUAL INVISIBLE"
            for name, end in ends.items()
        }

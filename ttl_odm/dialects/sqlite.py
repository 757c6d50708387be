"""SQLite.

``unixepoch('now', 'subsec')`` is NULL before 3.42; ``julianday`` is right everywhere. Within one
statement ``'now'`` is one instant.
"""

from __future__ import annotations

from typing import Final

from ttl_odm.core.values import MAX_TTL
from ttl_odm.dialects.family import Family, as_value
from ttl_odm.sweeper import Pace

_DATE: Final = "STRFTIME('%Y-%m-%d %H:%M:%f000', {})"
"""A text with six digits of a second, as Python's drivers write it: .123 sorts before .123000."""

FILE_WAIT: Final = 5_000
"""The most milliseconds to wait for the file: as long as Python's driver waits by default."""


class SQLite(Family):
    """SQLite, whose instants are milliseconds since 1970."""

    names = ("sqlite",)
    at_read = at_write = "'now'"
    instant_type = "integer"
    per_second = 1_000
    earliest = "-62135510400000"
    latest = "253402300800000"
    own_end = "({stamp} + {ttl} * 1000)"
    isolation = None
    compares_rows = indexes_parts = tries_inserts = fails_alone = True
    short_float = "(?!)"  # it has none
    # One writer at a time: each batch keeps every other user of the file waiting.
    pace = Pace(start=200, lowest=50, highest=1_000, target=0.025, rest=1.0)

    def epoch(self, moment: str, per_second: int) -> str:
        """Convert an instant to an integer since 1970."""
        milliseconds = f"CAST(ROUND((julianday({moment}) - 2440587.5) * 86400000) AS INTEGER)"
        factor, divisor = per_second // 1_000, 1_000 // per_second
        if factor > 1:
            return f"({milliseconds} * {factor})"
        return milliseconds if factor == 1 else f"({milliseconds} / {divisor})"

    def date(self, moment: str) -> str:
        """Convert an instant to a text, as Python's drivers write it."""
        return _DATE.format(moment)

    def date_ago(self, moment: str, seconds: str) -> str:
        """Return the text of the instant some seconds before."""
        return _DATE.format(f"{moment}, (-({seconds})) || ' seconds'")

    def as_date(self, instant: str) -> str:
        """Convert an instant to a text, as SQLite's own functions write it."""
        return f"strftime('%Y-%m-%d %H:%M:%f', ({instant}) / 1000.0, 'unixepoch')"

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Return the whole seconds until an instant, rounded up."""
        return f"MIN({MAX_TTL}, MAX(1, ({instant} - {now or self.now} + 999) / 1000))"

    def instant_of_column(self, column: str, *, zoned: bool) -> str:  # noqa: ARG002 (none is)
        """Return the instant in a column; NULL for a number, which would mean a Julian day."""
        return f"(CASE WHEN typeof({column}) = 'text' THEN {self.instant(column)} END)"

    def bookmark(self, place: str) -> str:
        """Hide the column's type, by which drivers convert a text to a datetime."""
        return f"(+{place})"

    def is_date(self, column: str) -> str:
        """Require a text in ISO 8601 and UTC."""
        return self.is_iso(column)

    def is_iso(self, column: str) -> str:
        """Check the text's form, and that strftime() leaves it as it is."""
        second = f"substr({column}, 1, 19)"
        fraction = f"substr({self.without_zone(column)}, 20)"
        return (
            f"({column} GLOB '[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9][T ]"
            "[0-2][0-9]:[0-5][0-9]:[0-5][0-9]*' "
            # strftime() accepts the 31st of any month; adding days makes it one of the next month.
            f"AND strftime('%Y-%m-%d %H:%M:%S', {second}, '+0 days') "
            f"IS replace({second}, 'T', ' ') AND substr({column}, 1, 4) <> '0000' "
            f"AND ({fraction} = '' OR {fraction} GLOB '.[0-9]*' AND length({fraction}) <= 10 "
            f"AND rtrim(substr({fraction}, 2), '0123456789') = ''))"
        )

    def takes_tried_inserts(self, schema: str | None, table: str) -> str:
        """Require that no constraint of the table resolves conflicts by itself.

        A clause such as ``PRIMARY KEY ON CONFLICT REPLACE`` is in the table's statement only.
        """
        catalogue = "sqlite_master" if schema is None else f'"{schema}".sqlite_master'
        return (
            f"SELECT COUNT(*) = 0 FROM {catalogue} "
            f"WHERE name = {as_value(table)} AND (type = 'view' OR sql LIKE '%ON%CONFLICT%')"
        )

    def indexes_query(self, schema: str | None, table: str) -> str:
        """Query pragmas; the condition of a partial index is in its statement only."""
        place = as_value(schema or "main")
        catalogue = '"{}".sqlite_master'.format((schema or "main").replace('"', '""'))
        return (
            "SELECT l.name, x.name AS first, l.partial AS is_partial, '' AS rows_held, "
            "1 AS is_valid, x.coll = 'BINARY' AS is_ordered, COALESCE(m.sql, '') AS definition, "
            f"(SELECT y.name FROM pragma_index_xinfo(l.name, {place}) AS y "
            "WHERE y.seqno = 1 AND y.key) AS second "
            f"FROM pragma_index_list({as_value(table)}, {place}) AS l, "
            f"pragma_index_xinfo(l.name, {place}) AS x "
            f"LEFT JOIN {catalogue} AS m ON m.type = 'index' AND m.name = l.name "
            "WHERE x.seqno = 0"
        )

    def without_zone(self, column: str) -> str:
        """Return a text that `is_date` accepts without its Z or +00:00."""
        return (
            f"CASE WHEN substr({column}, -1) = 'Z' THEN substr({column}, 1, length({column}) - 1) "
            f"WHEN substr({column}, -6) = '+00:00' THEN substr({column}, 1, length({column}) - 6) "
            f"ELSE {column} END"
        )

    def ttl_check(self, column: str) -> str:
        """Require whole numbers: a column takes any type, and text and blobs exceed all numbers."""
        number = f"{column} = -1 OR {column} BETWEEN 1 AND {MAX_TTL}"
        return f"{column} IS NULL OR (typeof({column}) = 'integer' AND ({number}))"

    def counting_ttl(self, own: str, *, is_checked: bool) -> str:  # noqa: ARG002
        """Require a whole number within the limit, even under a CHECK, which may be an older one.

        The bits of texts, blobs, fractions and larger numbers give another number. No other check
        is cheaper, and the condition of the index is beside it.
        """
        return f"({own} & {MAX_TTL}) = {own}"

    def least(self, one: str, other: str) -> str:
        """Return the lower of two values."""
        return f"MIN({one}, {other})"

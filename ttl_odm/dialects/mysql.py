"""MariaDB and MySQL.

``UNIX_TIMESTAMP(NOW(6))`` goes through the session's time zone and is an hour off during the hour
that daylight saving repeats in autumn. ``TIMESTAMPDIFF(MICROSECOND, ..., UTC_TIMESTAMP(6))`` never
leaves UTC. Instants are integers, since TIMESTAMP ends in 2038 and depends on that zone too.

Neither has partial indexes, so the sweeper's two indexes are on virtual columns, which no ORM's
table knows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from ttl_odm.core.values import MAX_TTL
from ttl_odm.dialects.family import ISO_PATTERN, ErrorCodes, Family, as_value
from ttl_odm.sweeper import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence

_LONGEST_LEAD: Final = 255
"""The most characters of a text at the beginning of an index, which leave room for an instant."""

LONGEST_NAME: Final = 64
"""The most characters of an identifier."""

INHERITED_END: Final = "_ttl_inh"
OWN_END: Final = "_ttl_own"
"""The virtual columns of the two indexes, which hold the ends of rows."""

SHORT_WAITS: Final = {"lock_wait_timeout": 1, "innodb_lock_wait_timeout": 1}
"""Settings of a session: the seconds to wait for a locked table (without it a day, or a year) and
for a locked row. One second is the shortest wait that both databases accept."""

ANY_ROWS: Final = {"sql_safe_updates": 0}
"""Lets a session delete rows by conditions without a key, as a walk through a table does."""

NO_WAIT: Final = {"innodb_lock_wait_timeout": 0}
"""Makes a statement fail at once at a locked row; MariaDB only.

Not for one with SKIP LOCKED: at a row that it skips, MariaDB 10.11 then fails with "Got error 1
during COMMIT"."""

BY_KEY: Final = "/*+ INDEX({table} PRIMARY) */"
"""Makes a DELETE look up rows that were chosen and locked. Without it MySQL reads a small table
whole, and waits for rows that others hold. `table` is quoted."""

LOCKS_FIRST: Final = "/*+ JOIN_PREFIX({rows}) INDEX({table} PRIMARY) */"
"""`BY_KEY` for a DELETE whose derived table, `rows`, chooses and locks the rows."""

OUT_OF_TIME: Final = frozenset({1969, 3024})
"""Codes of max_statement_time, by which `MySQL.bounded` limits the wait, and max_execution_time."""


_TYPE: Final = re.compile(r"(\w+)(?:\((.*)\))?", re.DOTALL)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")

_FORMS: Final = {
    # A text is read as a double; a decimal's half is rounded away from zero.
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), "ROUND({0})"),
    "decimal": "CAST({0} AS DECIMAL(@))",
    "float": "CAST({0} AS FLOAT)",
    "double": "CAST({0} AS DOUBLE)",
    # By way of whole seconds: MySQL rounds the last half second of a day up.
    "date": "CAST(CAST({0} AS DATETIME) AS DATE)",
    "datetime": "CAST({0} AS DATETIME(@))",
    "timestamp": "CAST({0} AS DATETIME(@))",
    "time": "CAST({0} AS TIME(@))",
    "char": "RTRIM(LEFT({0}, @))",
    "varchar": "LEFT({0}, @)",
    "binary": "CAST({0} AS BINARY(@))",
    "bit": "CAST(CONV(HEX({0}), 16, 10) AS UNSIGNED)",  # of a number, or of bytes
    "enum": "RTRIM({0})",
}
"""What MariaDB and MySQL store for a value, `{0}`, by the names of types; `@` stands for the type's
arguments.

An INSERT rounds, pads and cuts; a comparison does none of that. ``CAST`` comes close, but has no
FLOAT(7, 4), BIT, ENUM or SET, and turns the text '1.6' into 1 where a column gets 2.
"""


class MySQL(Family):
    """MariaDB and MySQL, whose instants are microseconds since 1970."""

    names = ("mysql", "mariadb")
    at_read = at_write = "UTC_TIMESTAMP(6)"
    instant_type = "bigint"
    per_second = 1_000_000
    earliest = "-62135510400000000"
    latest = "253402300800000000"
    locks_rows = indexes_parts = tries_inserts = fails_alone = hides_writes = True
    on_conflict = (
        # "Out of range" for each conflicting row, whatever the session's mode. InnoDB locks that
        # row as for an update; INSERTs that failed by their key alone would share the row's lock,
        # and none of them could then delete the row.
        "ON DUPLICATE KEY UPDATE {column} = IF(~0 + 1 + CHAR_LENGTH({column}), {column}, {column})"
    )
    # MariaDB 12 has words for read_only.
    server = (
        "SELECT CONCAT(@@hostname, ':', @@port), CAST(@@read_only AS CHAR) IN ('0', 'OFF', 'FALSE')"
    )
    short_float = r"FLOAT(\((1?\d|2[0-4])(, ?\d+)?\))?"
    inherited_end = "{table}" + INHERITED_END
    own_end = "{table}" + OWN_END
    # While an index waits for the lock of its last moment, other sessions wait behind it.
    ddl_settings: ClassVar = {name: str(seconds) for name, seconds in SHORT_WAITS.items()}
    pace = Pace(start=1_000, lowest=100, highest=5_000, target=0.1, gentle_rows=20)
    errors = ErrorCodes(
        locked=frozenset({1205, 1213}),  # lock wait timeout, deadlock
        passing=frozenset(
            {
                1020,  # the row has changed since it was read (innodb_snapshot_isolation)
                1180,  # the commit failed: another member of a group has changed a row of it
                1317,  # the query was interrupted
                3101,  # another member of a replication group has committed a conflicting change
            }
        )
        | OUT_OF_TIME,
        away=frozenset(
            {
                1040,  # too many connections
                1047,  # this node of Galera isn't part of a cluster that takes writes
                1053,  # the server is shutting down
                1927,  # the connection was killed
                2002,  # can't connect
                2003,  # can't connect
                2005,  # the host has no address
                2006,  # the server has gone away
                2013,  # the connection was lost
                2055,  # the connection was lost
                3032,  # in offline mode, as a member that its replication group has expelled
                *range(3796, 3800),  # a member that leaves its group gives no consistent reads
                4031,  # the connection was idle for too long
            }
        ),
        read_only=frozenset(
            {
                1290,  # the server runs with --read-only or --super-read-only
                1792,  # the session's transactions are read-only
                1836,  # the server runs with --innodb-read-only
            }
        ),
        missing_table=frozenset({1146, 1142}),  # MariaDB reports "denied" first
        restricted=frozenset({1217, 1451}),
        refused=frozenset(
            {
                1644,  # SIGNAL
                *(1048, 1062, 1216, 1452, 3819, 4025),  # a trigger's write breaks a constraint
                *(1172, 1242, 1329),  # a trigger reads several rows instead of one, or none
                *(1264, 1265, 1292, 1365, 1366, 1369, 1406, 1411, 1690),  # a value doesn't fit
            }
        ),
        taken=frozenset(
            {
                *(1022, 1062, 1586),  # a duplicate key
                *(1761, 1762),  # a duplicate key in a table that ON UPDATE CASCADE changes
                1690,  # a duplicate key with `on_conflict`
                1242,  # an upsert met an expired row, which fails by two values in place of one
            }
        ),
        declined=frozenset(
            {
                *(1142, 1143),  # denied on the table, on the column
                1235,  # not supported, for a table with a period WITHOUT OVERLAPS
            }
        ),
        forbidden=frozenset({1227}),  # a setting
    )

    def epoch(self, moment: str, per_second: int) -> str:
        """Convert an instant to an integer since 1970."""
        microseconds = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', {moment})"
        factor = 1_000_000 // per_second
        return microseconds if factor == 1 else f"({microseconds} DIV {factor})"

    def date_ago(self, moment: str, seconds: str) -> str:
        """Return the date and time some seconds before an instant."""
        return f"({moment} - INTERVAL ({seconds}) SECOND)"

    def as_date(self, instant: str) -> str:
        """Convert an instant to a DATETIME(6) in UTC."""
        return f"(TIMESTAMP'1970-01-01 00:00:00' + INTERVAL ({instant}) MICROSECOND)"

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Return the whole seconds until an instant, rounded up."""
        left = f"({instant} - {now or self.now} + 999999) DIV 1000000"
        return f"LEAST({MAX_TTL}, GREATEST(1, {left}))"

    def instant_of_column(self, column: str, *, zoned: bool) -> str:
        """Return the instant in a column; NULL for a zero date."""
        if zoned:
            # Stored in UTC; any other function would read it in the session's time zone.
            return f"CAST(UNIX_TIMESTAMP({column}) * 1000000 AS SIGNED)"
        return self.instant(column)

    def is_null(self, column: str) -> str:
        """Compare by ``<=>``: IS NULL also finds zero dates where a column can't be NULL."""
        return f"{column} <=> NULL"

    def is_date(self, column: str) -> str:
        """Exclude zero dates, and dates whose month or day is zero."""
        day = f"MONTH({column}) > 0 AND DAYOFMONTH({column}) > 0"
        return f"({column} > TIMESTAMP'0001-01-01 00:00:00' AND {day})"

    def is_iso(self, column: str) -> str:
        """Match by a regular expression, with case, whatever the column's collation."""
        # $ alone would match before a line break too.
        pattern = f"(?-i){ISO_PATTERN}(?![[:space:]])$"
        return f"({column} REGEXP '{pattern}' AND LEFT({column}, 4) <> '0000')"

    def takes_tried_inserts(self, schema: str | None, table: str) -> str:
        """Require InnoDB, which undoes a statement that fails.

        Not on a MariaDB that logs statements: it warns of each one that could find its row by
        several keys.
        """
        return (
            "SELECT COALESCE(engine = 'InnoDB', 0) "
            "/*M! AND NOT (@@log_bin AND @@binlog_format = 'STATEMENT') */ "
            f"FROM information_schema.tables WHERE {self._is_of(schema, table)}"
        )

    def indexes_query(self, schema: str | None, table: str) -> str:
        """Select all columns: MariaDB and MySQL name the one for hidden indexes differently.

        Subqueries, because MariaDB opens only the table that a WHERE names by constants; for a join
        it would open every table of the server, for each index.
        """
        where = self._is_of(schema, table)
        return (
            "SELECT s.*, (SELECT n.column_name FROM information_schema.statistics n "
            f"WHERE {where} AND n.index_name = s.index_name AND n.seq_in_index = 2) AS second, "
            "(SELECT c.collation_name FROM information_schema.columns c "
            f"WHERE {where} AND c.column_name = s.column_name) AS first_collation "
            f"FROM information_schema.statistics s WHERE {where} AND s.seq_in_index = 1"
        )

    def column_types_query(self, schema: str | None, table: str) -> str:
        """Query the catalogue, which has no temporary tables."""
        return (
            "SELECT column_name, column_type FROM information_schema.columns "
            f"WHERE {self._is_of(schema, table)}"
        )

    def _is_of(self, schema: str | None, table: str) -> str:
        """Return the condition for a table's rows in the catalogue."""
        where = "DATABASE()" if schema is None else self.literal_text(schema)
        return f"table_schema = {where} AND table_name = {self.literal_text(table)}"

    def stored_form(self, column_type: str) -> str | None:
        """Return a form of `_FORMS`, for a type as ``information_schema`` has it.

        Such as ``decimal(10,2) unsigned``.
        """
        match = _TYPE.match(column_type)
        name, arguments = (match[1].lower(), match[2] or "0") if match else ("", "0")
        if name == "set":
            return _set_form(arguments)
        form = _FORMS.get(name)
        _, _, digits = arguments.partition(",")
        if form and digits and name in {"float", "double"}:
            form = form.replace("{0}", f"ROUND({{0}} + 0e0, {digits})")
        return form and form.replace("@", arguments)

    def literal_text(self, value: str) -> str:
        """Write a text with a backslash in hexadecimal: the SQL mode decides what that means."""
        return f"_utf8mb4 X'{value.encode().hex()}'" if "\\" in value else as_value(value)

    def can_lead(self, length: int | None) -> bool:
        """Exclude long texts, and texts of any length."""
        return length is not None and length <= _LONGEST_LEAD

    def virtual_columns(self, stamp: str, ttl: str) -> dict[str, str]:
        """Return the clauses that add the virtual columns, by the columns' names.

        For integers only: a TIMESTAMP plus an INTERVAL in a generated column is evaluated in the
        time zone of the session, and the index then disagrees with the table.
        """
        ends = {
            INHERITED_END: f"CASE WHEN {ttl} IS NULL THEN {stamp} END",
            OWN_END: f"CASE WHEN {ttl} > 0 THEN {stamp} + {ttl} * {self.second} END",
        }
        return {
            name: f"ADD COLUMN {name} BIGINT GENERATED ALWAYS AS ({end}) VIRTUAL INVISIBLE"
            for name, end in ends.items()
        }

    def check_name(self, table: str, quoted: str, *, is_mariadb: bool) -> str:
        """Return the name before a column's CHECK, where the one that MySQL derives is too long.

        MySQL derives it from the table's name. MariaDB allows no name there, and reads a comment.
        """
        is_named = len(table) + len("_chk_1") > LONGEST_NAME and not is_mariadb
        return f"/*!80016 CONSTRAINT {quoted} */ " if is_named else ""

    # --- DDL on tables that are in use ---------------------------------------------------------
    #
    # Statements always name their ALGORITHM: they then fail where the server would have to copy the
    # table, instead of copying it. An INSTANT change is made in the catalogue only, but waits for
    # every transaction on the table, so it waits briefly and is tried again.

    INSTANT: ClassVar = "ALGORITHM=INSTANT"

    NOT_ENFORCED: ClassVar = "/*!80016 NOT ENFORCED */"
    """Lets MySQL add a CHECK at once; for an enforced one it would copy the table. A comment on
    MariaDB, which enforces the CHECK of a new column at once."""

    COPY: ClassVar = "/*!80016 , ALGORITHM=COPY, LOCK=SHARED */"
    """Makes MySQL copy the table; meanwhile rows can be read, not written. A comment on MariaDB,
    because scripts for both are the same."""

    def without_copy(self, *, is_mariadb: bool) -> str:
        """Return the clause that builds or drops an index while others write."""
        # MySQL calls it INPLACE, which on MariaDB may rebuild the table.
        return f"ALGORITHM={'NOCOPY' if is_mariadb else 'INPLACE'}, LOCK=NONE"

    def bounded(self, statements: Sequence[str], seconds: float, *, is_mariadb: bool) -> list[str]:
        """Limit each statement by itself; MySQL has a limit for the session only."""
        if not is_mariadb:
            return list(statements)
        return [f"SET STATEMENT max_statement_time = {seconds} FOR {sql}" for sql in statements]


def _set_form(arguments: str) -> str | None:
    """Return the stored form of a SET: its members in the order of the type."""
    if "\\" in arguments:  # whether it escapes anything is up to the session
        return None
    members = _MEMBER.findall(arguments.replace("{", "{{").replace("}", "}}"))
    bits = " + ".join(
        f"(FIND_IN_SET('{member}', {{0}}) > 0) * {1 << number}"
        for number, member in enumerate(members)
    )
    named = ", ".join(f"'{member}'" for member in members)
    return f"MAKE_SET(COALESCE(NULLIF({bits}, 0), {{0}} + 0), {named})"


# --- CHECKs in SHOW CREATE TABLE -------------------------------------------------------------
#
# MariaDB shows a column's CHECK in the column's line, which SQLAlchemy doesn't reflect. MySQL shows
# every CHECK in a line of the table, under a name that it generates; only MySQL has CHECKs that are
# not enforced.

_OF_A_TABLE: Final = re.compile(
    r"^\s*CONSTRAINT `(?P<name>(?:[^`]|``)+)` CHECK \((?P<condition>.*)\)"
    r"(?P<off> /\*!80016 NOT ENFORCED \*/)?,?$",
    re.MULTILINE,
)
_DECORATION: Final = re.compile(r"[`()\s]")


@dataclass(frozen=True)
class Check:
    """A CHECK.

    Attributes:
        name: Its name, unquoted; empty for a column's own CHECK on MariaDB, which has none.
        is_enforced: Whether it rejects anything.
    """

    name: str = ""
    is_enforced: bool = True


def column_line(definition: str, column: str) -> str:
    """Return the line that defines a column; empty if there is none."""
    lines = (line.strip() for line in definition.splitlines())
    return next((line for line in lines if line.startswith(f"`{column}` ")), "")


def check_on(definition: str, column: str, condition: str) -> Check | None:
    """Return a column's own CHECK, whatever its condition, or the table's with this condition.

    If there are several, an enforced one.
    """
    if " CHECK (" in column_line(definition, column):
        return Check()
    plain = _plain(condition)
    checks = [
        Check(match["name"].replace("``", "`"), not match["off"])
        for match in _OF_A_TABLE.finditer(definition)
        if _plain(match["condition"]) == plain
    ]
    return max(checks, key=lambda check: check.is_enforced, default=None)


def _plain(condition: str) -> str:
    return _DECORATION.sub("", condition).lower()

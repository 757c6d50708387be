"""PostgreSQL.

``now()`` is the start of the *transaction*: a row written late in a long one could be expired at
once, and a long reader would see expired rows. Reads compare with ``statement_timestamp()``; stamps
and the predicates of writes use ``clock_timestamp()``, so that a write which waited for a lock
judges the row at the moment it writes.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, ClassVar

from ttl_odm.core.values import MAX_TTL
from ttl_odm.dialects.family import ISO_PATTERN, ErrorCodes, Family, as_value
from ttl_odm.sweeper import Pace

if TYPE_CHECKING:
    from collections.abc import Sequence


def relation(schema: str | None, name: str) -> str:
    """Return a table's name as a value for the database's functions.

    An ORM's own quoting won't do: it doubles percent signs, which drivers undo in statements, but
    not in values.
    """
    return ".".join('"' + part.replace('"', '""') + '"' for part in (schema, name) if part)


def dollar_quoted(body: str, tag: str) -> str:
    """Return a text in dollar quotes, with a number in the tag if the text contains the tag."""
    quote, number = f"${tag}$", 0
    while quote in body:
        number += 1
        quote = f"${tag}{number}$"
    return f"{quote}{body}{quote}"


def block(body: str, tag: str = "ttl_odm") -> str:
    """Return a block of PL/pgSQL as one statement of SQL."""
    return f"DO {dollar_quoted(body, tag)}"


def milliseconds(seconds: float) -> str:
    """Return the value of a timeout's setting; never 0, which would mean no limit."""
    return f"{max(1, round(seconds * 1000))}ms"


class PostgreSQL(Family):
    """PostgreSQL, whose instants are ``timestamptz``."""

    names = ("postgresql",)
    at_read = "statement_timestamp()"
    at_write = "clock_timestamp()"
    instant_type = "timestamp with time zone"
    # A day within Python's range, because psycopg reads instants in the session's time zone.
    earliest = "TIMESTAMPTZ '0001-01-02 00:00:00+00'"
    latest = "TIMESTAMPTZ '9999-12-31 00:00:00+00'"
    # timestamptz + interval depends on the session's time zone and may not be indexed.
    own_end = "((({stamp} AT TIME ZONE 'UTC') + {ttl} * interval '1 second') AT TIME ZONE 'UTC')"
    # Python and the network take some milliseconds of each batch, whatever its size.
    pace = Pace(start=4_000, lowest=100, highest=100_000, target=0.1, gentle_rows=100)
    locks_rows = compares_rows = indexes_parts = tries_inserts = hides_writes = True
    on_conflict = "ON CONFLICT DO NOTHING"
    server = (
        "SELECT CASE family(inet_server_addr()) WHEN 6 THEN '[' || host(inet_server_addr()) || ']' "
        "ELSE host(inet_server_addr()) END || ':' || inet_server_port(), "
        "current_setting('transaction_read_only') = 'off'"
    )
    ddl_settings: ClassVar = {"lock_timeout": "0", "statement_timeout": "0"}
    errors = ErrorCodes(
        locked=frozenset({"55P03", "40P01"}),  # lock_not_available, deadlock_detected
        passing=frozenset(
            {
                "40001",  # serialization_failure
                "57014",  # query_canceled, as by a statement timeout
                "55006",  # object_in_use, as the origin of another sweeper
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
        read_only=frozenset({"25006"}),  # read_only_sql_transaction
        missing_table=frozenset({"42P01"}),
        restricted=frozenset({"23001", "23503"}),
        taken=frozenset({"23505", "23P01"}),  # unique_violation, exclusion_violation
        forbidden=frozenset({"42501"}),  # insufficient_privilege
    )

    def epoch(self, moment: str, per_second: int) -> str:
        """Convert an instant to an integer since 1970."""
        return f"FLOOR(EXTRACT(EPOCH FROM {moment}) * {per_second})::bigint"

    def date_ago(self, moment: str, seconds: str) -> str:
        """Return the instant some seconds before, without a bound interval.

        A timedelta of a day has 23 or 25 hours twice a year.
        """
        return f"({moment} - {seconds} * {self.second})"

    def seconds_until(self, instant: str, now: str | None = None) -> str:
        """Return the whole seconds until an instant, rounded up."""
        left = f"CEIL(EXTRACT(EPOCH FROM {instant} - {now or self.now}))"
        return f"LEAST({MAX_TTL}, GREATEST(1, {left}))::integer"

    def instant_of_column(self, column: str, *, zoned: bool) -> str:
        """Return the instant in a column; NULL for infinity."""
        value = column if zoned else f"CAST({column} AS timestamp) AT TIME ZONE 'UTC'"
        return f"(CASE WHEN isfinite({column}) THEN {value} END)"

    def is_iso(self, column: str) -> str:
        """Match by a regular expression: a cast would raise an error."""
        return f"({column} ~ '{ISO_PATTERN}$' AND LEFT({column}, 4) <> '0000')"

    def takes_tried_inserts(self, schema: str | None, table: str) -> str:
        """Require that every row of an INSERT is inserted unless one of its keys is taken.

        Tables with rules or deferrable keys reject ON CONFLICT. A trigger, also of a partition, may
        leave rows out, or put them elsewhere.
        """
        name = as_value(relation(schema, table))
        parts = "SELECT c.oid UNION SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) p"
        return (
            "SELECT c.relkind IN ('r', 'p') AND NOT c.relhasrules "
            f"AND NOT EXISTS (SELECT FROM pg_catalog.pg_trigger t WHERE t.tgrelid IN ({parts}) "
            # For INSERT, and BEFORE or INSTEAD OF.
            "AND NOT t.tgisinternal AND t.tgtype & 4 <> 0 AND t.tgtype & 66 <> 0) "
            f"AND NOT EXISTS (SELECT FROM pg_catalog.pg_index i WHERE i.indrelid IN ({parts}) "
            "AND NOT i.indimmediate) "
            f"FROM pg_catalog.pg_class c WHERE c.oid = to_regclass({name})"
        )

    def indexes_query(self, schema: str | None, table: str) -> str:
        """Query the catalogue, where an ``indoption`` of 0 is ascending with NULLs last.

        3 is the same order backwards.
        """
        return (
            "SELECT c.relname::text AS name, a.attname::text AS first, "
            "COALESCE(pg_get_expr(i.indpred, i.indrelid), '') AS rows_held, "
            "i.indisvalid AS is_valid, "
            "m.amname = 'btree' AND o.opcdefault AND i.indoption[0] IN (0, 3) "
            "AND (a.attnum IS NULL OR i.indcollation[0] = a.attcollation) AS is_ordered, "
            "pg_get_indexdef(i.indexrelid) AS definition, b.attname::text AS second, "
            "CASE WHEN n.collisdeterministic THEN NULL ELSE n.collname::text END "
            "AS first_collation "
            "FROM pg_catalog.pg_index i "
            "JOIN pg_catalog.pg_class c ON c.oid = i.indexrelid "
            "JOIN pg_catalog.pg_am m ON m.oid = c.relam "
            "JOIN pg_catalog.pg_opclass o ON o.oid = i.indclass[0] "
            "LEFT JOIN pg_catalog.pg_attribute a "
            "ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
            "LEFT JOIN pg_catalog.pg_attribute b ON b.attrelid = i.indrelid "
            "AND b.attnum = i.indkey[1] AND i.indnkeyatts > 1 "
            "LEFT JOIN pg_catalog.pg_collation n ON n.oid = i.indcollation[0] "
            f"WHERE i.indrelid = CAST({as_value(relation(schema, table))} AS text)::regclass"
        )

    def column_types_query(self, schema: str | None, table: str) -> str:
        """Query the types as in a cast, with their lengths and precisions."""
        name = as_value(relation(schema, table))
        return (
            "SELECT attname::text, format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute "
            f"WHERE attrelid = to_regclass({name}) AND attnum > 0 AND NOT attisdropped"
        )

    def stored_form(self, column_type: str) -> str:
        """Return a cast: it differs from an assignment only where that raises an error."""
        escaped = column_type.replace("{", "{{").replace("}", "}}")
        return f"CAST({{0}} AS {escaped})"

    def bookmark(self, place: str) -> str:
        """Convert to a text: no driver reads all dates, and JSON's don't depend on DateStyle."""
        return f"(to_json({place}) #>> ARRAY[]::text[])"

    def of_bookmark(self, value: str) -> str:
        """Convert the text back to an instant."""
        return f"CAST({value} AS {self.instant_type})"

    def between(self, earlier: str, later: str) -> str:
        """Return seconds: drivers can't read an interval in every IntervalStyle."""
        return f"CAST(EXTRACT(EPOCH FROM {later} - {earlier}) AS double precision)"

    def instant_literal(self, instant: datetime) -> str:
        """Return a literal with a time zone, since a session's may be any."""
        return f"timestamptz '{instant.isoformat()}'"

    def to_storage(self, instant: datetime) -> datetime:
        """Return the datetime itself."""
        return instant

    def from_storage(self, value: datetime | str) -> datetime:
        """Return the datetime in UTC."""
        if isinstance(value, str):  # pg8000 can't read old local times, whose offsets have seconds
            fraction = ".%f" if "." in value else ""
            value = datetime.strptime(value, f"%Y-%m-%d %H:%M:%S{fraction}%z")
        # psycopg answers in the session's time zone, asyncpg in UTC.
        return value if value.tzinfo is timezone.utc else value.astimezone(timezone.utc)

    # --- DDL on tables that are in use ---------------------------------------------------------
    #
    # Statements that lock all others out are short and tried again; long ones lock no other out.
    #
    # ADD COLUMN, SET DEFAULT, CHECK NOT VALID: ACCESS EXCLUSIVE; no row is read or written.
    # VALIDATE CONSTRAINT: SHARE UPDATE EXCLUSIVE; reads the table.
    # CREATE INDEX CONCURRENTLY, DROP INDEX CONCURRENTLY: SHARE UPDATE EXCLUSIVE; wait for others.
    # CREATE TRIGGER: SHARE ROW EXCLUSIVE; no row is read.
    #
    # A default of clock_timestamp() would rewrite the table, so columns get a constant first.

    def add_check(self, check: str) -> str:
        """Return the clause that adds a CHECK for new rows; see `validate_check` for the others."""
        return f"ADD {check} NOT VALID"

    def validate_check(self, name: str) -> str:
        """Return the clause that makes a CHECK hold for rows from before it."""
        return f"VALIDATE CONSTRAINT {name}"

    def drop_index(self, name: str, *, in_transaction: bool) -> str:
        """Return the statement that drops an index, locking writers out only in a transaction."""
        return f"DROP INDEX {'' if in_transaction else 'CONCURRENTLY '}IF EXISTS {name}"

    def setting(self, name: str) -> str:
        """Return the query for a setting of the session."""
        return f"SHOW {name}"

    def bounded(self, statements: Sequence[str], seconds: float, *, is_mariadb: bool) -> list[str]:  # noqa: ARG002
        """Return one block, which runs all statements or none."""
        limit = f"SET LOCAL lock_timeout = '{milliseconds(seconds)}'"
        return [block(f" BEGIN {'; '.join([limit, *statements])}; END ")]

    def retried(self, statements: Sequence[str], seconds: float, tries: int) -> list[str]:
        """Return one block, which runs all statements or none, and tries again."""
        body = ";\n      ".join(statements)
        return [
            block(f"""
BEGIN
  FOR attempt IN 1..{tries} LOOP
    BEGIN
      SET LOCAL lock_timeout = '{milliseconds(seconds)}';
      {body};
      RETURN;
    EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
      IF attempt = {tries} THEN RAISE; END IF;
    END;
    PERFORM pg_sleep(least(attempt * {seconds}, 2));
  END LOOP;
END """)
        ]

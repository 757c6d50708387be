"""A database of one's own: DuckDB, which ttl_odm doesn't know, by one class.

The entry point in pyproject.toml says where the class is. `pip install examples/own_database`, and
SQLAlchemy's models with a TTL work on `create_engine("duckdb:///file.duckdb")`. It passes the
shipped suites, see tests/examples/test_own_database.py.
"""

from __future__ import annotations

from ttl_odm.dialects import General
from ttl_odm.dialects.family import ISO_PATTERN, ErrorCodes, as_value
from ttl_odm.sweeper import Pace


class DuckDB(General):
    """DuckDB, by duckdb-engine."""

    names = ("duckdb",)
    # now() stands still for a transaction; in a UUID of version 7 is the time at which it was made.
    at_read = at_write = "uuid_extract_timestamp(uuidv7())"
    divide = "//"
    isolation = None  # there is one only, of snapshots
    compares_rows = True
    is_inspected = False  # duckdb-engine asks as PostgreSQL is asked
    short_float = r"REAL|FLOAT(\((1?\d|2[0-4])\))?"
    # One file, one process: what takes long keeps nobody waiting but those who write the same rows.
    pace = Pace(start=1_000, lowest=100, highest=25_000, target=0.1)
    driver = "_duckdb"
    errors = ErrorCodes(
        locked=frozenset({"TransactionException"}),  # somebody else has changed the row meanwhile
        away=frozenset({"IOException"}),  # another process has the file
        missing_table=frozenset({"CatalogException"}),
        restricted=frozenset({"foreign key"}),
        refused=frozenset({"ConstraintException"}),
    )

    def microseconds(self, moment: str) -> str:
        """Of a naive datetime and of a zoned one; NULL for infinity."""
        return f"epoch_us({moment})"

    def clock_face(self, microseconds: str) -> str:
        """A year before 1 has a minus, which sorts before all digits."""
        return f"strftime({self.datetime(microseconds)}, '%Y-%m-%d %H:%M:%S.%f')"

    def datetime(self, microseconds: str) -> str:
        """A naive datetime."""
        return f"make_timestamp({microseconds})"

    def zoned(self, microseconds: str) -> str:
        """A datetime with a time zone."""
        return f"make_timestamptz({microseconds})"

    def is_iso(self, column: str) -> str:
        """By a regular expression: a cast would raise."""
        return f"(regexp_matches({column}, '{ISO_PATTERN}$') AND LEFT({column}, 4) <> '0000')"

    def column_types_query(self, schema: str | None, table: str) -> str:
        """As a cast takes the types."""
        where = "current_schema()" if schema is None else as_value(schema)
        return (
            "SELECT column_name, data_type FROM duckdb_columns() "  # noqa: S608 (quoted)
            f"WHERE schema_name = {where} AND table_name = {as_value(table)}"
        )

    def stored_form(self, column_type: str) -> str:
        """A cast."""
        return f"CAST({{0}} AS {column_type})"

    def code_of(self, error: BaseException) -> str:
        """The name of its class, which is the same for all constraints."""
        if "foreign key" in str(error):
            return "foreign key"
        return type(error).__name__

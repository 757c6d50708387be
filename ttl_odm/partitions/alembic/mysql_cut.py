"""Cutting an existing table on MariaDB and MySQL: by one statement, which copies the table.

There is no other way, and writers wait until the copy is made. So it is done only if the migration
allows it. The same statement adds the column to the primary key, since keys are unique only within
a partition. It is done whole or not at all: after an interrupted run the next one finds the table
cut, or as it was.

Nothing is changed before every check has passed; the checks only read.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import TIMESTAMP, text

from ttl_odm.alembic.mysql import COPY, PARTITIONED
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.dialects import EPOCH
from ttl_odm.partitions.dialects.ddl import PER_SECOND
from ttl_odm.partitions.dialects.mysql import MySQLPartitions
from ttl_odm.partitions.sqlalchemy.catalogue import read_catalogue
from ttl_odm.partitions.sqlalchemy.layout import cut_of, new_partition, partitioning_on

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.alembic.steps import Steps
    from ttl_odm.dialects.mysql import MySQL
    from ttl_odm.sqlalchemy.policy.bindings import Binding

MOST: Final = 1_000
"""The most partitions that a table gets, of the 8,192 that are possible: each is an open file.

All older rows are in the first one, which is dropped when its youngest row has expired.
"""

_OLDEST: Final = "1000-01-01"
"""The first date that these databases support; older values, such as zero dates, are invalid."""


class _Key(NamedTuple):
    """A unique key: its columns and the partitioning column, and whether it contains that one."""

    with_column: str
    has_column: bool


class MySQLCut:
    """Cuts one table."""

    def __init__(self, steps: Steps[MySQL], binding: Binding) -> None:
        """Take the names from the table's stand-in; nothing is read yet."""
        partitioning = partitioning_on(binding)
        assert partitioning is not None  # noqa: S101 (the stand-in has one)
        self._steps = steps
        self._partitioning = partitioning
        self._ddl = MySQLPartitions()
        self._column = partitioning.column
        self._names = {"schema": binding.table.schema, "table": binding.table.name}
        self._cut = cut_of(partitioning, binding.table.schema, self._ddl)

    @property
    def _is_cut(self) -> bool:
        """Whether the table is already cut by the column."""
        schema, table = self._names.values()
        name = (schema, str(table))
        return bool(read_catalogue(self._steps.run.connection, self._partitioning, self._ddl, name))

    # --- checks ----------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Reject a table that can't be cut.

        Raises:
            MigrationRefusedError: With the reason, and the fix.
        """
        if self._steps.run.offline or self._is_cut:
            return
        reason = next(self._reasons(), None)
        if reason is not None:
            raise MigrationRefusedError(f"Table {self._steps.target.label}: {reason}")

    def _reasons(self) -> Iterator[str]:
        """Yield the reasons why the table can't be cut, the most serious first."""
        column, table = self._column.name, self._ddl.table(self._cut)
        for method, expression in self._read(PARTITIONED):
            yield (
                f"it is partitioned by {method} ({expression}), not by ranges of {column!r}. "
                f"Remove its partitioning first, which copies the table (ALTER TABLE {table} "
                "REMOVE PARTITIONING), or leave partition= out: expired rows are then deleted in "
                "batches."
            )
        for feature in self._read(_FEATURES, is_mariadb=self._steps.run.is_mariadb):
            yield (
                f"{feature[0]}, which this server doesn't support on partitioned tables. Leave "
                "partition= out."
            )
        if isinstance(self._column.type, TIMESTAMP):
            yield (
                f"column {column!r} is a TIMESTAMP, which MariaDB and MySQL would partition in the "
                "session's time zone. Make it a DATETIME first, in a session with "
                "time_zone = '+00:00', or leave partition= out."
            )
        if keys := self._read(_FOREIGN_KEYS):
            names = ", ".join(f"{key} of {owner}" for owner, key in keys)
            yield (
                f"it has foreign keys, or other tables refer to it ({names}), which MariaDB and "
                "MySQL don't support for partitioned tables. Drop them first, or leave "
                "partition= out."
            )
        for index, key in self._keys().items():
            if index != "PRIMARY" and not key.has_column:
                quoted = self._ddl.quoted(None, index)
                yield (
                    f"its unique key {index!r} doesn't contain {column!r}, and keys are unique "
                    f"only within a partition. If that is enough: ALTER TABLE {table} DROP INDEX "
                    f"{quoted}, ADD UNIQUE INDEX {quoted} ({key.with_column}). Otherwise leave "
                    "partition= out."
                )
        if self._key and self._ask(_NULLS.format(table=table, column=self._quoted)) is not None:
            yield (
                f"column {column!r} must become part of the primary key, but is NULL in some "
                f"rows. Give these rows a date, or delete them: SELECT * FROM {table} WHERE "
                f"{self._quoted} IS NULL"
            )
        if not self._steps.may_copy:
            # For the tool, a statement that puts all rows of the past into one partition.
            clauses = f"{', '.join(self._key)} {self._clause(0)}".strip()
            example = f"ALTER TABLE {self._ddl.table(self._cut)} {clauses}"
            yield (
                "MariaDB and MySQL partition an existing table by copying it, and writers wait "
                "until it is copied. Write copy_table=True if that is acceptable. Or copy it "
                "without blocking writers with a tool (pt-online-schema-change, gh-ost), and "
                f"then run this again: {example}"
            )

    @property
    def _quoted(self) -> str:
        return self._ddl.quoted(None, self._column.name)

    @property
    def _key(self) -> list[str]:
        """The clauses that add the column to the primary key; none if it is in it, or no key."""
        key = self._keys().get("PRIMARY")
        if key is None or key.has_column:
            return []
        return ["DROP PRIMARY KEY", f"ADD PRIMARY KEY ({key.with_column})"]

    def _keys(self) -> dict[str, _Key]:
        """Return the unique keys by name; none in a script, which has no database to ask."""
        parts: dict[str, list[str]] = {}
        complete: set[str] = set()
        for index, name, length, is_descending in self._read(_UNIQUE):
            part = "(...)" if name is None else self._ddl.quoted(None, name)
            part += f"({length})" * bool(length) + " DESC" * bool(is_descending)
            parts.setdefault(index, []).append(part)
            if name == self._column.name:
                complete.add(index)
        return {
            index: _Key(", ".join([*columns, self._quoted]), index in complete)
            for index, columns in parts.items()
        }

    def _read(self, query: str, **values: object) -> list[Any]:
        """Return the rows of a query about the table; none in a script."""
        if self._steps.run.offline:
            return []
        return list(self._steps.run.connection.execute(text(query), {**self._names, **values}))

    def _ask(self, query: str) -> Any:
        """Return the first value of a query without parameters."""
        return self._steps.run.connection.scalar(text(query.replace(":", r"\:")))

    # --- cutting ---------------------------------------------------------------------------------

    def make(self) -> None:
        """Cut the table, unless it is cut: then the sweeper makes missing partitions."""
        run = self._steps.run
        if not run.offline and self._is_cut:
            return
        how = ", ".join([*self._key, COPY])
        sql = f"ALTER TABLE {self._ddl.table(self._cut)} {how} {self._clause(MOST)}"
        doubled = getattr(self._steps.dialect.identifier_preparer, "_double_percents", False)
        run.at_length(sql.replace("%", "%%") if doubled else sql)

    def _clause(self, most: int) -> str:
        """Return the clause with the partitions: at most so many, unless more are needed ahead."""
        now = self._now()
        time_ranges = self._partitioning.declared.covering(self._oldest() or now, now, most)
        return self._ddl.clause(
            self._cut, [new_partition(self._cut, time_range) for time_range in time_ranges]
        )

    def _now(self) -> datetime:
        if self._steps.run.offline:
            return datetime.now(timezone.utc)
        return _instant(int(self._steps.now()))

    def _oldest(self) -> datetime | None:
        """Return the instant of the oldest row; None if there is none."""
        if self._steps.run.offline:
            return None
        table, unit = self._ddl.table(self._cut), self._cut.unit
        query = f"SELECT MIN({self._quoted}) FROM {table}"
        if unit is None:
            # As a number: drivers differ in how they convert dates.
            first = f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01', MIN({self._quoted}))"
            query = f"SELECT {first} FROM {table} WHERE {self._quoted} >= '{_OLDEST}'"
        number = self._ask(query)
        if number is None:
            return None
        return _instant(int(number) * (1 if unit is None else 1_000_000 // PER_SECOND[unit]))


def _instant(microseconds: int) -> datetime:
    """Return microseconds since 1970 as the nearest datetime that these databases support."""
    first, last = (
        (datetime(year, 1, 1, tzinfo=timezone.utc) - EPOCH) // timedelta(microseconds=1)
        for year in (1000, 9000)
    )
    return EPOCH + timedelta(microseconds=max(first, min(microseconds, last)))


_HERE: Final = "COALESCE(:schema, DATABASE())"

_FOREIGN_KEYS: Final = f"""
SELECT DISTINCT table_name, constraint_name FROM information_schema.key_column_usage
WHERE referenced_table_name IS NOT NULL AND (
  (table_schema = {_HERE} AND table_name = :table)
  OR (referenced_table_schema = {_HERE} AND referenced_table_name = :table))
ORDER BY 1, 2
"""

_UNIQUE: Final = f"""
SELECT index_name, column_name, sub_part, collation = 'D' FROM information_schema.statistics
WHERE table_schema = {_HERE} AND table_name = :table AND non_unique = 0
ORDER BY index_name, seq_in_index
"""
"""A part that is an expression has no column name."""

_FEATURES: Final = f"""
SELECT CONCAT('column ', column_name, ' is a ', data_type) FROM information_schema.columns
WHERE table_schema = {_HERE} AND table_name = :table AND (data_type LIKE 'geom%'
  OR data_type LIKE '%point' OR data_type LIKE '%linestring' OR data_type LIKE '%polygon')
UNION ALL SELECT CONCAT('index ', index_name, ' is FULLTEXT') FROM information_schema.statistics
WHERE table_schema = {_HERE} AND table_name = :table AND index_type = 'FULLTEXT'
AND NOT :is_mariadb
UNION ALL SELECT CONCAT('its engine is ', engine) FROM information_schema.tables
WHERE table_schema = {_HERE} AND table_name = :table AND engine <> 'InnoDB' AND NOT :is_mariadb
LIMIT 1
"""

_NULLS: Final = "SELECT 1 FROM {table} WHERE {column} IS NULL LIMIT 1"

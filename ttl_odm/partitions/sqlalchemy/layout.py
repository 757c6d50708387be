"""Whether a table can be cut by time as its model declares it, and by which column.

Partitions are ranges of a column that no write changes, and that lifetimes are counted from: then
the bounds of a partition say when its last row will have expired. A declaration for which this
doesn't hold is rejected, with the reason, when the policy is put on the table.

``create_all()`` makes such a table with its first partitions; on databases without partitions it is
an ordinary table. `ttl_odm.partitions.dialects` says what partitions are in a database.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    TIMESTAMP,
    Connection,
    Date,
    DateTime,
    Integer,
    PrimaryKeyConstraint,
    Table,
    UniqueConstraint,
    event,
)

from ttl_odm.core.policy import TTL
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.family import derived_name
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.dialects.ddl import Cut, NewPartition
from ttl_odm.partitions.dialects.postgresql import PostgreSQLPartitions
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.references import referred_table
from ttl_odm.sqlalchemy.policy.schema import as_ddl
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sqlalchemy.time.instants import kept_type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sqlalchemy import Column
    from typing_extensions import Self

    from ttl_odm.partitions import Partitions, TimeRange
    from ttl_odm.partitions.dialects import PartitionDDL
    from ttl_odm.sqlalchemy.policy.bindings import Binding


_BY: Final = "postgresql_partition_by"


@dataclass(frozen=True, slots=True)
class Partitioning:
    """How a table is cut by time; see `TableLayout`.

    Attributes:
        column: The column that partitions are ranges of; lifetimes are counted from it.
        declared: The declaration.
        unit: "s", "ms" or "us" where the column holds epoch integers; None where it holds dates.
    """

    column: Column[object]
    declared: Partitions
    unit: str | None = None

    def on(self, columns: Mapping[str, Column[object]]) -> Self:
        """Return the partitioning of another Table object, which has columns with these names."""
        return replace(self, column=columns[self.column.name])

    def prepare(self, where: str) -> None:
        """Make ``create_all()`` create the table with its first partitions.

        Raises:
            TTLConfigurationError: The table is declared with other partitions.
        """
        column, table = self.column, self.column.table
        clause, theirs = self._clause, table.dialect_kwargs.get(_BY)
        if theirs is None:
            table.dialect_kwargs[_BY] = clause
        elif "".join(theirs.split()).replace('"', "").upper() != f"RANGE({column.name.upper()})":
            raise TTLConfigurationError(
                f"{where}: table {table.fullname!r} is declared with {_BY}={theirs!r}, but "
                f"lifetimes are counted from {column.name!r}: write {clause!r}, or leave it out."
            )
        event.listen(table, "before_create", _check_mysql, propagate=True)
        event.listen(table, "after_create", _make_first, propagate=True)  # to copies, too

    def undo(self) -> None:
        """Undo `prepare`."""
        table = self.column.table
        if event.contains(table, "after_create", _make_first):
            event.remove(table, "before_create", _check_mysql)
            event.remove(table, "after_create", _make_first)
            if table.dialect_kwargs.get(_BY) == self._clause:  # which isn't the application's own
                del table.dialect_kwargs[_BY]

    @property
    def _clause(self) -> str:
        return PostgreSQLPartitions().clause(self.column.name)


def partitioning_on(binding: Binding | None) -> Partitioning | None:
    """Return the partitioning that is declared for the table of a policy; None without one."""
    layout = None if binding is None else binding.layout
    return layout if isinstance(layout, Partitioning) else None


def lay_out(binding: Binding, declared: Partitions, where: str) -> Partitioning:
    """Return how a table is cut.

    Args:
        binding: The table's policy.
        declared: What its model declares.
        where: The declaration, for messages: ``Event.__ttl_partition__``.

    Raises:
        TTLConfigurationError: It can't be cut: writes renew its rows, the column can't be divided
            into ranges of time, or a key of the table lacks the column.
    """
    policy = binding.policy
    if not isinstance(policy, TTL):
        column = binding.last_modified
    elif binding.max_lifetime is not None:
        column = binding.max_lifetime.created
    else:
        raise TTLConfigurationError(
            f"{where}: each write renews a row of {binding.name}, so no range of "
            f"{policy.last_modified!r} would ever expire as a whole, and each write would move "
            "the row to another partition. Limit lifetimes with TTL(..., max_lifetime=seconds, "
            "created='column'), or declare ExpireAfter or ExpireAt."
        )
    unit = _unit(column, declared, policy.unit, policy.timezone, where)
    for kind, columns in _keys(binding.table):
        if column not in columns:
            names = ", ".join(repr(key.name) for key in columns)
            raise TTLConfigurationError(
                f"{where}: the {kind} ({names}) of table {binding.table.fullname!r} doesn't "
                f"contain {column.name!r}. Databases enforce unique keys only within a partition: "
                f"add {column.name!r} to each key, as in PRIMARY KEY ({names}, {column.name!r})."
            )
    return Partitioning(column, declared, unit)


def _unit(
    column: Column[object], declared: Partitions, unit: str | None, zone: str, where: str
) -> str | None:
    """Return the unit of a column of integers, None for dates.

    Raises:
        TTLConfigurationError: A table can't be cut by this column.
    """
    if isinstance(column.type, LastModified):
        return None
    affinity = compat.affinity(column.type)
    which = f"{where}: column {column.name!r} is {column.type!r}"
    if issubclass(affinity, Integer):
        return unit
    if not issubclass(affinity, (DateTime, Date)):
        raise TTLConfigurationError(
            f"{which}, which can't be divided into time ranges: name a column of datetimes, dates "
            "or epoch integers."
        )
    if issubclass(affinity, Date) and not declared.is_of_days:
        raise TTLConfigurationError(
            f"{which}, but Partitions({declared.span!r}) are shorter than a day: write '1 day', "
            "'1 week' or '1 month'."
        )
    is_zoned = getattr(kept_type(column.type, "postgresql"), "timezone", False)
    if not is_zoned and zone != "UTC":
        raise TTLConfigurationError(
            f"{which}, read in timezone={zone!r}: the boundaries of partitions are in UTC, and "
            "ranges of local time overlap when clocks change. Store aware datetimes "
            "(DateTime(timezone=True)), or naive ones in UTC."
        )
    return None


def _keys(table: Table) -> Iterator[tuple[str, list[Column[object]]]]:
    """Yield the unique keys of a table: their kind, and their columns."""
    for constraint in table.constraints:
        if isinstance(constraint, PrimaryKeyConstraint):
            if list(constraint.columns):
                yield "primary key", list(constraint.columns)
        elif isinstance(constraint, UniqueConstraint):
            yield "unique constraint", list(constraint.columns)
    for index in table.indexes:
        if index.unique:
            yield "unique index", list(index.columns)


def cut_of(partitioning: Partitioning, schema: str | None, ddl: PartitionDDL) -> Cut:
    """Return the cut table for statements, in a schema of a database."""
    column, unit = partitioning.column, partitioning.unit
    if isinstance(column.type, LastModified):
        unit = ddl.instant_unit
    return Cut(schema, column.table.name, column.name, unit)


def new_partition(cut: Cut, time_range: TimeRange) -> NewPartition:
    """Return the partition to make for a range of time, with its name."""
    return NewPartition(derived_name(cut.name, time_range.suffix), time_range.start, time_range.end)


def _check_mysql(table: Table, connection: Any, **_: object) -> None:
    """Reject tables that MariaDB and MySQL can't cut, before they are created without partitions.

    Raises:
        TTLConfigurationError: Foreign keys of the table, or to it; a column of the type TIMESTAMP.
    """
    partitioning = partitioning_on(binding_of(table))
    if partitioning is None or connection.dialect.name not in MYSQL_FAMILY:
        return
    others = table.metadata.tables.values()
    referring = {
        other.fullname
        for other in others
        for key in other.foreign_key_constraints
        if other is table or referred_table(key) is table
    }
    which = f"{partitioning.column.table.fullname} is partitioned by {partitioning.column.name}"
    if referring:
        raise TTLConfigurationError(
            f"Table {which}, and {', '.join(sorted(referring))} has foreign keys in it or to it. "
            "MariaDB and MySQL don't support foreign keys on partitioned tables: declare "
            "__ttl_partition__ = None, or leave the keys out."
        )
    if isinstance(kept_type(partitioning.column.type, "mysql"), TIMESTAMP):
        raise TTLConfigurationError(
            f"Table {which}, a TIMESTAMP, which MariaDB and MySQL would partition in the "
            "session's time zone: make it a DATETIME, or declare __ttl_partition__ = None."
        )


def _make_first(table: Table, connection: Any, **_: object) -> None:
    """Make the first partitions of a table that was just created, unless others make them."""
    partitioning = partitioning_on(binding_of(table))
    ddl = partition_ddl(connection.dialect.name)
    if partitioning is None or ddl is None or partitioning.declared.made_by == "others":
        return
    schema, now = table.schema, datetime.now(timezone.utc)  # a script is written offline
    if isinstance(connection, Connection):
        clock = clock_of(connection.dialect)
        now = clock.from_storage(connection.exec_driver_sql(f"SELECT {clock.stamp}").scalar_one())
        schema = compat.place_of(connection.get_execution_options(), table)[0]
    cut = cut_of(partitioning, schema, ddl)
    partitions = [
        new_partition(cut, time_range) for time_range in partitioning.declared.wanted(now)
    ]
    for statement in ddl.first(cut, partitions):
        connection.execute(as_ddl(statement))

"""`Partitions` in Alembic's operations: existing tables are cut by time.

- `postgresql_cut`, `postgresql_swap`, `postgresql_table`: how a table in use becomes a partitioned
  one.
- `mysql_cut`: how MariaDB and MySQL copy a table into partitions.

`Partitioned` is everything that migrations ask of this package; see `Aspect`. An operation knows a
table by its name, and by the columns that the database has. So a stand-in for the model's table is
made of these and goes through the rules for declared tables: which tables can be cut, and by which
column, is decided in one place.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Column, DateTime, MetaData, Table

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.alembic.postgresql import PostgreSQLSteps
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.partitions import Partitions
from ttl_odm.partitions.alembic.mysql_cut import MySQLCut
from ttl_odm.partitions.alembic.postgresql_cut import PostgreSQLCut
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.partitions.sqlalchemy.layout import lay_out, partitioning_on
from ttl_odm.sqlalchemy.policy.bindings import Binding, MaxLifetime, binding_of
from ttl_odm.sqlalchemy.policy.sources import DefaultTTL
from ttl_odm.sqlalchemy.time.instants import instants_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection

    from ttl_odm.alembic.aspects import IsTable, Operation
    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.alembic.target_schema import TargetSchema


class Partitioned(Aspect):
    """The partitioning of one table in a migration."""

    @classmethod
    def written(cls, declared: Partitions) -> str:
        """Return the declaration for a revision: the span alone if the rest has its defaults."""
        options = [
            f"{option.name}={getattr(declared, option.name)!r}"
            for option in fields(declared)
            if option.name != "span" and getattr(declared, option.name) != option.default
        ]
        span = repr(declared.span)
        return f"ttl_odm.Partitions({', '.join([span, *options])})" if options else span

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:
        """Return the partitions, which no model declares and autogenerate must not drop."""
        default = connection.dialect.default_schema_name
        partitions = {
            (None if schema == default else schema, name)
            for table in declared
            for schema, name in _partitions_of(connection, binding_of(table))
        }
        return lambda schema, name: (schema, name) in partitions

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:
        """Return the argument for a table that isn't cut yet, if migrations have to cut it."""
        partitioning = partitioning_on(binding)
        if partitioning is None or self.connection is None:
            return None
        if not _is_made(partitioning.declared, self.connection.dialect.name):
            return None
        is_cut = read_leaves(self.connection, binding) is not None
        return None if is_cut else {"partition": partitioning.declared}

    def refuse(self, op: Operation, steps: Steps[Any]) -> None:
        """Reject a table that can't be cut."""
        cut = self._cut(op, steps)
        if cut is not None:
            cut.refuse()

    def after(self, op: Operation, steps: Steps[Any]) -> None:
        """Cut it, with the columns and indexes that it has by now."""
        cut = self._cut(op, steps)
        if cut is not None:
            cut.make()

    def _cut(self, op: Operation, steps: Steps[Any]) -> MySQLCut | PostgreSQLCut | None:
        """Return the way to cut the table; None if others do it, or the database can't."""
        declared = _declared(op.argument("partition"))
        if not _is_made(declared, steps.dialect.name):
            return None
        if steps.run.offline and not op.in_transaction:
            raise MigrationRefusedError(
                f"Table {self.target.label}: partition= reads the table's definition from the "
                "database, which --sql can't do. Run this migration online. (For a table that "
                "the same revision creates in partitions, write in_transaction=True.)"
            )
        where = f"op.{op.verb}_ttl({op.table_name!r}) partition"
        binding = _stand_in(self.target, steps.existing, declared, where)
        if isinstance(steps, PostgreSQLSteps):
            return PostgreSQLCut(steps, binding)
        return MySQLCut(steps, binding)


def _declared(partition: str | Partitions) -> Partitions:
    """Return the declaration of an operation; a string is the span.

    Raises:
        MigrationRefusedError: It is not a valid span.
    """
    if isinstance(partition, Partitions):
        return partition
    try:
        return Partitions(partition)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(f"partition={partition!r}: {error}") from error


def _is_made(declared: Partitions, dialect: str) -> bool:
    """Return whether we make the partitions, and the database supports them."""
    return declared.made_by != "others" and partition_ddl(dialect) is not None


def _partitions_of(connection: Connection, binding: Binding | None) -> Iterator[tuple[str, str]]:
    leaves = None if binding is None else read_leaves(connection, binding)
    if leaves is not None:
        for leaf in (*leaves.every, *filter(None, [leaves.rest])):
            yield leaf.name


def _stand_in(
    target: TargetSchema, existing: ExistingSchema, declared: Partitions, where: str
) -> Binding:
    """Return the policy of a stand-in for a table, with its partitioning.

    It has no keys: the operation makes the column part of the primary key, and unique keys are
    checked in the database.

    Raises:
        MigrationRefusedError: A table with this policy, or by this column, can't be cut.
    """
    policy = target.policy
    columns = dict(existing.columns)
    dates = policy.created if isinstance(policy, TTL) else policy.field
    if not columns and dates is not None:  # a script knows the names only
        columns[dates] = Column(dates, BigInteger() if policy.unit else DateTime(timezone=True))
    if dates is not None and dates not in columns:
        raise MigrationRefusedError(
            f"Table {target.label} has no column {dates!r}; it has {', '.join(columns)}."
        )
    copies: list[Column[object]] = [Column(name, column.type) for name, column in columns.items()]
    table = Table(target.table.name, MetaData(), *copies, schema=target.table.schema)
    owner = type(target.table.name, (), {"__ttl__": policy})
    try:
        limit, stamp = None, target.last_modified
        if dates is not None:
            column = table.c[dates]
            instants = instants_of(column, policy.timezone, policy.unit, where)
            if not isinstance(policy, TTL):
                stamp = column
            elif policy.max_lifetime is not None:
                limit = MaxLifetime(column, instants, policy.max_lifetime)
        binding = Binding(
            table=table,
            last_modified=stamp,
            override=None,
            default=DefaultTTL(owner, policy),
            policy=policy,
            instants=instants_of(stamp, policy.timezone, None if limit else policy.unit, where),
            max_lifetime=limit,
        )
        binding.layout = lay_out(binding, declared, where)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(str(error)) from error
    return binding


ASPECT: Final = Partitioned

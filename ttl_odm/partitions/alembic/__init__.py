"""`Partitions` in Alembic's operations: tables that are there are cut by time.

- `stand_in`: what `partition=` means for a table, before any database is changed.
- `postgresql_cut`, `postgresql_swap`, `postgresql_table`: how a table in use becomes one in
  partitions.
- `mysql_cut`: how MariaDB and MySQL copy one into partitions.

`Partitioned` is what Alembic's part of the base asks; see `Aspect`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.alembic.aspects import Aspect
from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.alembic.postgresql import PostgreSQLSteps
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.partitions import Partitions
from ttl_odm.partitions.alembic.mysql_cut import MySQLCut
from ttl_odm.partitions.alembic.postgresql_cut import PostgreSQLCut
from ttl_odm.partitions.alembic.stand_in import stand_in
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves
from ttl_odm.sqlalchemy.policy.bindings import binding_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import Connection, Table

    from ttl_odm.alembic.aspects import IsTable, Operation
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.sqlalchemy.policy.bindings import Binding


class Partitioned(Aspect):
    """How one table is cut."""

    @classmethod
    def written(cls, declared: Partitions) -> str:
        """The declaration; its span alone, where there is no more to it."""
        options = [
            f"{option.name}={getattr(declared, option.name)!r}"
            for option in fields(declared)
            if option.name != "span" and getattr(declared, option.name) != option.default
        ]
        span = repr(declared.span)
        return f"ttl_odm.Partitions({', '.join([span, *options])})" if options else span

    @classmethod
    def tables(cls, connection: Connection, declared: Sequence[Table]) -> IsTable:
        """The partitions: no model has them, and none is to go."""
        default = connection.dialect.default_schema_name
        partitions = {
            (None if schema == default else schema, name)
            for table in declared
            for schema, name in _partitions_of(connection, binding_of(table))
        }
        return lambda schema, name: (schema, name) in partitions

    def lacking(self, binding: Binding) -> Mapping[str, object] | None:
        """A table that isn't cut, where it is for a migration to cut it."""
        declared = _declared_by(binding)
        if declared is None or self.connection is None:
            return None
        if not _is_made(declared, self.connection.dialect.name):
            return None
        is_cut = read_leaves(self.connection, binding) is not None
        return None if is_cut else {"partition": declared}

    def refuse(self, op: Operation, steps: Steps[Any]) -> None:
        """Refuse a table that can't be cut."""
        cut = self._cut(op, steps)
        if cut is not None:
            cut.refuse()

    def after(self, op: Operation, steps: Steps[Any]) -> None:
        """Cut it, with the columns and indexes that it has by now."""
        cut = self._cut(op, steps)
        if cut is not None:
            cut.make()

    def _cut(self, op: Operation, steps: Steps[Any]) -> MySQLCut | PostgreSQLCut | None:
        """How it is cut; None where others see to that, or the database has no partitions."""
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
        binding = stand_in(self.target, steps.existing, declared, where)
        if isinstance(steps, PostgreSQLSteps):
            return PostgreSQLCut(steps, binding)
        return MySQLCut(steps, binding)


def _declared(partition: str | Partitions) -> Partitions:
    """What an operation declares; a text is the span.

    Raises:
        MigrationRefusedError: It is none.
    """
    if isinstance(partition, Partitions):
        return partition
    try:
        return Partitions(partition)
    except TTLConfigurationError as error:
        raise MigrationRefusedError(f"partition={partition!r}: {error}") from error


def _is_made(declared: Partitions, dialect: str) -> bool:
    """Whether partitions are ours to make, and the database has any."""
    return declared.made_by != "others" and partition_ddl(dialect) is not None


def _declared_by(binding: Binding | None) -> Partitions | None:
    declared = None if binding is None or binding.layout is None else binding.layout.declared
    return declared if isinstance(declared, Partitions) else None


def _partitions_of(connection: Connection, binding: Binding | None) -> Iterator[tuple[str, str]]:
    if binding is None or _declared_by(binding) is None:
        return
    leaves = read_leaves(connection, binding)
    if leaves is not None:
        for leaf in (*leaves.every, *filter(None, [leaves.rest])):
            yield leaf.name


ASPECT: Final = Partitioned

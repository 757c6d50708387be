"""`Partitions` in Alembic's operations: tables that are there are cut by time.

- `stand_in`: what `partition=` means for a table, before any database is changed.
- `postgresql_cut`, `postgresql_swap`, `postgresql_table`: how a table in use becomes one in
  partitions.
- `mysql_cut`: how MariaDB and MySQL copy one into partitions.

The functions are what Alembic's part of the base asks; see `LayoutMigrations`.
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from ttl_odm.alembic.postgresql import PostgreSQLSteps
from ttl_odm.partitions.alembic.mysql_cut import MySQLCut
from ttl_odm.partitions.alembic.postgresql_cut import PostgreSQLCut
from ttl_odm.partitions.alembic.stand_in import stand_in
from ttl_odm.partitions.dialects import partition_ddl
from ttl_odm.partitions.sqlalchemy.catalogue import read_leaves

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ttl_odm.alembic.layouts import Change
    from ttl_odm.alembic.steps import Steps
    from ttl_odm.partitions import Partitions
    from ttl_odm.sqlalchemy.policy.binding import Binding

__all__ = ["change", "has_it", "is_made", "stand_in", "tables", "written"]


def is_made(declared: Partitions, dialect: str) -> bool:
    """Whether partitions are ours to make, and the database has any."""
    return declared.made_by != "others" and partition_ddl(dialect) is not None


def change(steps: Steps[Any], binding: Binding) -> Change:
    """How a table is cut."""
    if isinstance(steps, PostgreSQLSteps):
        return PostgreSQLCut(steps, binding)
    return MySQLCut(steps, binding)


def has_it(connection: Connection, binding: Binding) -> bool:
    """Whether the table is cut as it is declared."""
    return read_leaves(connection, binding) is not None


def tables(connection: Connection, binding: Binding) -> Iterator[tuple[str, str]]:
    """The partitions of a table: no model has them, and none is to go."""
    leaves = read_leaves(connection, binding)
    if leaves is not None:
        for leaf in (*leaves.every, *filter(None, [leaves.rest])):
            yield leaf.name


def written(declared: Partitions) -> str:
    """The declaration; its span alone, where there is no more to it."""
    options = [
        f"{option.name}={getattr(declared, option.name)!r}"
        for option in fields(declared)
        if option.name != "span" and getattr(declared, option.name) != option.default
    ]
    span = repr(declared.span)
    return f"ttl_odm.Partitions({', '.join([span, *options])})" if options else span

"""Autogenerate for tables whose rows follow others: the index on the columns that lead to a parent.

Alembic would block writers while it builds or drops this index, so our operations replace its own.
A plain foreign key to rows that expire needs an index too, but that is the application's task:
a missing one is logged.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from alembic.operations import ops
from sqlalchemy.exc import NoReferenceError

from ttl_odm.alembic.operations import AddFollowsOp, DropFollowsOp
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.references import root_of
from ttl_odm.sqlalchemy.policy.schema import (
    begins_index,
    is_created_on,
    link_index,
    link_index_name,
)
from ttl_odm.sqlalchemy.sweep.foreign_keys import is_indexed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from alembic.autogenerate.api import AutogenContext
    from sqlalchemy import Connection, Table

    Key = tuple[str | None, str]
    """A schema, None for the connection's own, and a table."""

log = logging.getLogger("alembic.ttl_odm")


def compared_links(context: AutogenContext, table: Table) -> Iterator[str]:
    """Yield the name of a link's index, unless Alembic creates it with a new table."""
    link = link_index(table)
    if link is not None and (
        context.inspector.has_table(table.name, schema=table.schema)
        or not is_created_on(link, context.dialect.name)
    ):
        yield str(link.name)


class LinkComparison:
    """One comparison of the models' links with a database."""

    def __init__(self, connection: Connection, upgrade: ops.UpgradeOps) -> None:
        self._connection = connection
        self._upgrade = upgrade

    def run(self, declared: Mapping[Key, Table], is_compared: Callable[[Key, Table], bool]) -> None:
        """Add the operations, and log foreign keys that only the application can index.

        Args:
            declared: The models' tables.
            is_compared: Whether the database has a table, and env.py's filters include it.
        """
        for op in list(self._upgrade.ops):
            if isinstance(op, ops.ModifyTableOps):
                self._compare_removed(op)
        for key, table in declared.items():
            self._compare(key, table, is_compared)
            self._warn_of_unindexed_keys(table)

    def _compare(self, key: Key, table: Table, is_compared: Callable[[Key, Table], bool]) -> None:
        """Add the index of a link, before the parents get their TTL."""
        link = link_index(table)
        if link is None or not is_created_on(link, self._connection.dialect.name):
            return
        if not is_compared(key, table):
            return
        changed = [
            op
            for op in self._upgrade.ops
            if isinstance(op, ops.ModifyTableOps) and (op.schema, op.table_name) == key
        ]
        dropped = [
            str(line.index_name)
            for modified in changed
            for line in modified.ops
            if isinstance(line, ops.DropIndexOp)
        ]
        columns = [str(column.name) for column in link.columns]
        if is_indexed(self._connection, key, columns, but=dropped):
            return
        position = max((self._upgrade.ops.index(op) + 1 for op in changed), default=0)
        adding = AddFollowsOp(table.name, columns, schema=table.schema)
        self._upgrade.ops.insert(position, adding)

    def _compare_removed(self, modified: ops.ModifyTableOps) -> None:
        """Drop the index of a table that no longer follows, or has another index for it."""
        if modified not in self._upgrade.ops or any(
            isinstance(op, ops.DropTableOp)
            and (op.schema, op.table_name) == (modified.schema, modified.table_name)
            for op in self._upgrade.ops
        ):
            return
        for line in list(modified.ops):
            name = link_index_name(modified.table_name)
            if isinstance(line, ops.DropIndexOp) and line.index_name == name:
                columns = [str(column.name) for column in line.to_index().columns]
                op = DropFollowsOp(modified.table_name, columns, schema=modified.schema)
                modified.ops.remove(line)
                self._upgrade.ops.insert(self._upgrade.ops.index(modified) + 1, op)
        if not modified.ops:
            self._upgrade.ops.remove(modified)

    def _warn_of_unindexed_keys(self, table: Table) -> None:
        """Log the foreign keys to expiring rows for which the model declares no index."""
        if self._connection.dialect.name in MYSQL_FAMILY:
            return  # InnoDB makes an index with each key
        for key in table.foreign_key_constraints:
            with suppress(NoReferenceError):
                parent = key.referred_table
                if root_of(parent) is None or begins_index(table, list(key.columns)):
                    continue
                log.warning(
                    "Table %s: its foreign key over %s refers to %s, whose rows expire, and no "
                    "index begins with these columns, so the sweeper will reject that table or "
                    "read all of this one for each deleted row. Write index=True on the column.",
                    table.fullname,
                    ", ".join(str(column.name) for column in key.columns),
                    parent.fullname,
                )

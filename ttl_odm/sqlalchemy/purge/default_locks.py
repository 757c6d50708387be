"""Locking stored defaults for a transaction that deletes by them.

`set_policy` first locks the row of the table's own default (scope ""), whichever scope it
changes. A transaction that deletes takes a shared lock on that row before it judges any row. So a
raise waits for batches that are under way, and a batch that begins later goes by the raised
default. One row stands for all scopes: one without a default of its own has no row to lock.

Several sweepers share the lock. SQLite has no need of it, since one transaction writes at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.dialects.postgresql import MAY_SHARE
from ttl_odm.sqlalchemy.policy.stored import name_of, row_of, tables_of
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection, Select, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding


def lock_defaults(
    connection: Connection,
    bindings: Iterable[Binding],
    execute: Callable[[Any], object] | None = None,
) -> None:
    """Lock the stored defaults of tables, shared, until the transaction ends.

    Args:
        connection: The connection of the transaction.
        bindings: The policies of the tables; those whose defaults aren't stored are ignored.
        execute: Executes a statement on the connection, with options of the caller's.
    """
    tables = {binding.first.table for binding in bindings if binding.stored is not None}
    if not tables or not clock_of(connection.dialect).locks_rows:
        return
    for table in sorted(tables, key=name_of):  # in one order, or two transactions deadlock
        try:
            (execute or connection.execute)(locked_row(table).with_for_update(read=True))
        except DBAPIError as error:
            if is_forbidden(error.orig):
                error.add_detail(MAY_SHARE)
            raise


def locked_row(table: Table) -> Select[Any]:
    """A SELECT of the row that stands for all stored defaults of a table."""
    return select(tables_of(table).policies.c.ttl).where(*row_of(table))

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
from ttl_odm.stored.rows import MAY_SHARE
from ttl_odm.stored.sqlalchemy.tables import row_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Select, Table


def lock_row(table: Table, execute: Callable[[Any], object]) -> None:
    """Lock the row that stands for all stored defaults of a table, shared.

    Raises:
        DBAPIError: The database's, with the fix where its user may not.
    """
    try:
        execute(locked_row(table).with_for_update(read=True))
    except DBAPIError as error:
        if is_forbidden(error.orig):
            error.add_detail(MAY_SHARE)
        raise


def locked_row(table: Table) -> Select[Any]:
    """A SELECT of the row that stands for all stored defaults of a table."""
    return select(tables_of(table).policies.c.ttl).where(*row_of(table))

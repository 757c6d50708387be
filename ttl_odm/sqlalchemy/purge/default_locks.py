"""Locking the defaults by which a transaction deletes, where others may change them meanwhile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from sqlalchemy import Connection, Table

    from ttl_odm.sqlalchemy.policy.binding import Binding


def lock_defaults(
    connection: Connection,
    bindings: Iterable[Binding],
    execute: Callable[[Any], object] | None = None,
) -> None:
    """Let the default ttls of tables stay as they are until the transaction ends.

    Args:
        connection: The connection of the transaction.
        bindings: The policies of the tables; those whose defaults Python knows are ignored.
        execute: Executes a statement on the connection, with options of the caller's.
    """
    sources = {
        binding.first.table: binding.first.source
        for binding in bindings
        if not binding.source.is_known
    }
    if not sources or not clock_of(connection.dialect).locks_rows:
        return
    for table in sorted(sources, key=_name_of):  # in one order, or two transactions deadlock
        sources[table].lock(execute or connection.execute)


def _name_of(table: Table) -> str:
    return str(table.fullname)

"""What `ttl-odm check` reports of rows that follow those of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import inspect

from ttl_odm.follows.sqlalchemy.removal import all_followings
from ttl_odm.follows.sqlalchemy.ties import ties_to
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.sweep.whereabouts import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Table

    from ttl_odm.sqlalchemy.policy.rules import Checked
    from ttl_odm.sqlalchemy.sweep.foreign_keys import Name
    from ttl_odm.sweeper.findings import Finding

_MIGRATE: Final = "alembic revision --autogenerate -m ttl  (with import ttl_odm.alembic in env.py)"


def followers(checked: Checked) -> Iterator[Finding]:
    """See that the rows that follow these can be deleted."""
    inspector = inspect(checked.connection)
    for following in all_followings(checked.binding):
        schema, name = name_of(checked.connection, following.table)
        if not inspector.has_table(name, schema):
            yield checked.error(
                "missing-table", f"table {name}, which follows it, doesn't exist", _MIGRATE
            )
            continue
        yield from _ties(checked, following.table, (schema, name))


def _ties(checked: Checked, table: Table, place: Name) -> Iterator[Finding]:
    """See that nothing else refers to rows that follow these, and would keep all of them."""
    metadata = checked.binding.table.metadata
    ties = {
        (tie.table.name, frozenset(str(column.name) for column in tie.columns)): tie
        for tie in ties_to(table)
    }
    for key in ReferringKeys().of(checked.connection, place):
        tie = ties.get((key.table[1], frozenset(key.columns)))
        if not key.restricts or key.is_link_in(metadata) or (tie and tie.free):
            continue
        is_free = "make it nullable, " if tie else ""
        yield checked.warning(
            "restricting-key",
            f"{key} refers to rows of {place[1]}, which follow it, without ON DELETE: rows "
            "there prevent expired rows from being deleted",
            f"{is_free or 'let its model follow too, '}or write ForeignKey(..., "
            f'ondelete="CASCADE") or "SET NULL" on {key}, in a migration',
        )

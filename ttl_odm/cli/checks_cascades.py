"""Cascades that delete rows of a recorded model behind our back: what `ttl-odm check` says of them.

Statements through SQLAlchemy and sweeps remove such rows before the database gets at them, with
their archive, hooks or ORM events. A DELETE by raw SQL or another program doesn't.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sqlalchemy import inspect

from ttl_odm.sqlalchemy.policy.bindings import all_subtables
from ttl_odm.sqlalchemy.policy.references import is_recorded
from ttl_odm.sqlalchemy.sweep.transactions import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection

    from ttl_odm.sqlalchemy.policy.bindings import Binding


@dataclass(frozen=True, slots=True)
class UntracedCascade:
    """A foreign key with ON DELETE CASCADE whose rows are archived, or reported to hooks.

    Attributes:
        key: The table that refers, and its columns.
        parent: The table that is referred to.
        records: What a row gets that is deleted by us.
    """

    key: str
    parent: str
    records: str

    @classmethod
    def of(cls, connection: Connection, binding: Binding) -> Iterator[UntracedCascade]:
        """Those of a policy's table and of its joined subclasses, as the database has them."""
        if not is_recorded(binding):
            return
        inspector, owner = inspect(connection), binding.default.owner
        records = {
            "archive": getattr(owner, "__ttl_archive__", None) is not None,
            "hooks": bool(getattr(owner, "__ttl_on_purged__", None)),
            "ORM events": getattr(owner, "__ttl_purge__", None) == "orm",
        }
        said = " and ".join(word for word, is_there in records.items() if is_there)
        joins = {sub.table: {own.name for own, _ in sub.keys} for sub in all_subtables(binding)}
        for table in (binding.table, *joins):
            schema, name = name_of(connection, table)
            if not inspector.has_table(name, schema):
                continue
            for key in inspector.get_foreign_keys(name, schema):
                columns = key["constrained_columns"]
                cascades = key.get("options", {}).get("ondelete", "").upper() == "CASCADE"
                if cascades and not joins.get(table, set()).issuperset(columns):
                    there = filter(None, (key["referred_schema"], key["referred_table"]))
                    here = ".".join(filter(None, (schema, name)))
                    yield cls(f"{here}({', '.join(columns)})", ".".join(there), said)

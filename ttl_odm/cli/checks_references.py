"""Live rows that refer to expired ones: what `ttl-odm check` says of them.

They were written under a row that had expired already, or outlive it. Whether a sweep then leaves
the expired row or takes the live ones along is a matter of the foreign key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import column, func, select
from sqlalchemy import table as bare_table

from ttl_odm.sqlalchemy.policy.bindings import bound_tables, root_binding_of, sub_binding_of
from ttl_odm.sqlalchemy.policy.predicate import expired_in
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, in_subquery
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys
from ttl_odm.sqlalchemy.sweep.transactions import name_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, FromClause, Table

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKey


@dataclass(frozen=True, slots=True)
class LiveReferences:
    """The live rows that refer to expired ones of a table by one foreign key.

    Attributes:
        table: What is referred to: the table of the policy, or that of a joined subclass.
        child: What refers, as a model declares it (for its policy), if one does.
    """

    connection: Connection
    binding: Binding
    table: Table
    key: ReferringKey
    child: FromClause

    @classmethod
    def to(cls, connection: Connection, binding: Binding) -> Iterator[LiveReferences]:
        """Those to the rows of a policy which are in the way of a sweep, or it in theirs."""
        # SQLite's keys, too: those who write the rows may have them enforced.
        for table, key in ReferringKeys(enforced=False).of_rows(connection, binding):
            child = declared_as(connection, binding, key)
            # What has no policy and cascades is meant to go with what it hangs on.
            is_meant = key.deletes == "CASCADE" and root_binding_of(child) is None
            if not (is_meant or key.deletes.startswith("SET")):
                yield cls(connection, binding, table, key, child)

    def count(self, limit: int) -> int:
        """Count them, up to a limit."""
        expired = expired_in(self.connection, self.binding)
        sub = sub_binding_of(self.table)
        if sub is not None:
            own, roots = zip(*sub.keys, strict=True)
            expired = in_subquery(own, SweepSelect(*roots).where(expired))
        referred = SweepSelect(*_named(self.table, self.key.referred)).where(expired)
        columns = _named(self.child, self.key.columns)
        rows = select(columns[0]).where(in_subquery(columns, referred)).limit(limit).subquery()
        counted = self.connection.execute(select(func.count()).select_from(rows))
        return int(counted.scalar_one())

    @property
    def outcome(self) -> str:
        """What a sweep makes of them."""
        if self.key.deletes == "CASCADE":
            return "a sweep also deletes them, by ON DELETE CASCADE"
        return "a sweep can't delete the expired rows because of them"

    @property
    def fix(self) -> str:
        """What to do."""
        columns = ", ".join(self.key.columns)
        return (
            f"point {columns} of these rows to live rows, delete these rows, or give them a ttl "
            f"that ends no later; and touch() a row of {self.table.fullname} whenever you add a "
            "row that refers to it"
        )


def declared_as(connection: Connection, binding: Binding, key: ReferringKey) -> FromClause:
    """The table that refers by a foreign key, as a model declares it, if one does."""
    schema, name = key.table
    tables: list[Table] = [*binding.table.metadata.tables.values(), *bound_tables]
    for table in tables:
        declared_schema, declared_name = name_of(connection, table)
        # A model of another database may be called the same, and one may declare fewer columns.
        has_key = {column.name for column in table.c}.issuperset(key.columns)
        if declared_name == name and declared_schema in (None, schema) and has_key:
            return table
    return bare_table(name, *map(column, key.columns), schema=schema)


def _named(source: FromClause, names: tuple[str, ...]) -> list[Any]:
    columns = {column.name: column for column in source.c}
    return [columns[name] for name in names]

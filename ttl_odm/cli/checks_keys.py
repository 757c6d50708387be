"""What `ttl-odm check` looks at in the foreign keys that lead to a table with a policy.

- Columns that lead to swept rows and have no index.
- Foreign keys that prevent a sweep from deleting rows, or delete rows without a record of them.
- Live rows that refer to expired ones: written under a row that had expired already, or with a
  longer lifetime. The foreign key decides whether a sweep leaves the expired row or also deletes
  the live ones.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from sqlalchemy import Table, column, func, inspect, select
from sqlalchemy import table as bare_table

from ttl_odm.cli.checked_table import MIGRATE, MOST, CheckedTable, up_to_most
from ttl_odm.cli.tables import REFLECTED
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.bindings import (
    all_subtables,
    bound_tables,
    root_binding_of,
    sub_binding_of,
)
from ttl_odm.sqlalchemy.policy.predicate import expired_in
from ttl_odm.sqlalchemy.policy.references import (
    all_rules_below,
    dependents,
    index_link,
    is_recorded,
    rules_below,
)
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, in_subquery
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKey, ReferringKeys, is_indexed
from ttl_odm.sqlalchemy.sweep.transactions import name_of
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import ColumnElement, Connection, FromClause

    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper.findings import Finding

_READS_ALL = "the database would read all of that table for each deleted row"


class KeyChecks(CheckedTable):
    """The checks of the foreign keys that lead to a table."""

    def _keys(self) -> Iterator[Finding]:
        """Report keys without an index, keys that prevent sweeps, and cascades without a record."""
        yield from self._unindexed()
        for _, key in ReferringKeys().of_rows(self.connection, self.binding):
            if key.restricts and not key.is_link_in(self._table.metadata):
                follows = f"__ttl__ = Follows({key.columns[0]!r}) on the model of {key.table[1]}, "
                yield self.warning(
                    "restricting-key",
                    f"{key} refers to it without ON DELETE: rows there prevent expired rows from "
                    "being deleted",
                    f"{follows}so that rows expire together; or ForeignKey(..., "
                    f'ondelete="CASCADE") or "SET NULL" on {key}, in a migration',
                )
        for cascade in _UntracedCascade.of(self.connection, self.binding):
            yield self.warning(
                "untraced-cascade",
                f"{cascade.key} refers to {cascade.parent} with ON DELETE CASCADE: a DELETE there "
                "by raw SQL or another program deletes rows here too, without their "
                f"{cascade.records}",
                f"delete rows of {cascade.parent} through SQLAlchemy or by a sweeper only: these "
                "record the rows here first",
            )
        if rules_below(self._table):
            for extension in dependents:
                yield from extension.check(self)

    def _references(self) -> Iterator[Finding]:
        """Report live rows that refer to expired rows of the table."""
        for references in _LiveReferences.to(self.connection, self.binding):
            key = references.key
            if not self._is_readable:
                message = (
                    f"{key} refers to it; --deep counts its live rows that refer to expired ones"
                )
                yield self._skipped("refers-to-expired", message, self._deeper)
                continue
            rows = up_to_most(references.count(MOST))
            if rows:
                message = f"live rows of {key} refer to expired rows: {rows}; {references.outcome}"
                yield self.warning("refers-to-expired", message, references.fix)

    def _unindexed(self) -> Iterator[Finding]:
        """Report columns without an index that lead to rows of the table or to their dependents.

        They are columns of foreign keys, and the links of rows with a rule. One index serves both,
        so there is one finding for each table and its columns.
        """
        connection, keys = self.connection, ReferringKeys()
        links = self._unindexed_links()
        for _, key in keys.of_rows(connection, self.binding):
            if not key.has_index:
                yield self.error(
                    "missing-fk-index",
                    f"{key} refers to it and has no index, so the sweeper rejects the table: "
                    f"{_READS_ALL}",
                    self._indexing(_link_or_key(links, connection, keys, key)),
                )
        for rule in all_rules_below(self._table):
            place = keys.place(connection, rule.table)
            if not inspect(connection).has_table(place[1], place[0]):
                continue
            for key in keys.of(connection, place):
                if not key.has_index:
                    yield self.warning(
                        "missing-fk-index",
                        f"{key} refers to rows of {place[1]}, which follow it, and has no index: "
                        f"{_READS_ALL} there",
                        self._indexing(_link_or_key(links, connection, keys, key)),
                    )
        for link in links:
            yield self.warning(
                "missing-follows-index",
                f"{link} follows it and has no index, so a sweep reads all of that table for each "
                "batch of expired rows",
                self._indexing(link),
            )

    def _unindexed_links(self) -> list[ReferringKey]:
        """Return the links to rows of the table without an index, unless the model wants none."""
        links = []
        for rule in all_rules_below(self._table):
            name, table = name_of(self.connection, rule.table), rule.table
            if not inspect(self.connection).has_table(name[1], name[0]):
                continue
            own = schema.in_key_order(table, rule.links().own)
            columns = tuple(str(column.name) for column in own)
            needs_index = sweep_of(rule.owner) == "index"
            if needs_index and not is_indexed(self.connection, name, columns):
                links.append(ReferringKey(name, columns, (), "", has_index=False))
        return links

    def _indexing(self, key: ReferringKey) -> str:
        """Return how to add an index that the next migration doesn't remove again."""
        table = _declared_as(self.connection, self.binding, key)
        if not isinstance(table, Table) or table.metadata.info.get(REFLECTED):
            return key.remedy(self.dialect)
        columns = ", ".join(key.columns)
        index_link(table)
        link = schema.link_index(table)
        if link is not None and {column.name for column in link.columns} == set(key.columns):
            if not schema.is_created_on(link, self.dialect.name):
                return f"give {columns} of {table.name} a length, then migrate: {MIGRATE}"
            statement = replace(key, index=str(link.name)).remedy(self.dialect)
            return (
                f"{statement} -- or migrate: Follows declares this index, which index=True replaces"
            )
        how = f"index=True on {columns}"
        if len(key.columns) > 1:
            how = f"Index({', '.join(map(repr, ('ix', *key.columns)))}) in __table_args__"
        return f"write {how} in the model of {table.name}, then migrate: {MIGRATE}"


def _link_or_key(
    links: list[ReferringKey], connection: Connection, keys: ReferringKeys, key: ReferringKey
) -> ReferringKey:
    """Remove the link whose index also serves a foreign key from the list; else return the key."""
    for link in links:
        place = keys.resolved(connection, link.table)
        if place == key.table and set(link.columns).issuperset(key.columns):
            links.remove(link)
            return link
    return key


@dataclass(frozen=True, slots=True)
class _UntracedCascade:
    """A foreign key whose ON DELETE CASCADE deletes rows of a recorded model behind our back.

    Statements through SQLAlchemy and sweeps remove such rows first, with their archive, hooks or
    ORM events. A DELETE by raw SQL or another program doesn't.

    Attributes:
        key: The referring table and its columns.
        parent: The table that is referred to.
        records: What is recorded of a row that ttl_odm deletes.
    """

    key: str
    parent: str
    records: str

    @classmethod
    def of(cls, connection: Connection, binding: Binding) -> Iterator[_UntracedCascade]:
        """Find them in the database, for a policy's table and its joined subclasses."""
        if not is_recorded(binding):
            return
        inspector, owner = inspect(connection), binding.default.owner
        is_kept = {
            "archive": getattr(owner, "__ttl_archive__", None) is not None,
            "hooks": bool(getattr(owner, "__ttl_on_purged__", None)),
            "ORM events": getattr(owner, "__ttl_purge__", None) == "orm",
        }
        records = " and ".join(record for record, is_used in is_kept.items() if is_used)
        joins = {sub.table: {own.name for own, _ in sub.keys} for sub in all_subtables(binding)}
        for table in (binding.table, *joins):
            schema, name = name_of(connection, table)
            if not inspector.has_table(name, schema):
                continue
            for key in inspector.get_foreign_keys(name, schema):
                columns = key["constrained_columns"]
                cascades = key.get("options", {}).get("ondelete", "").upper() == "CASCADE"
                if cascades and not joins.get(table, set()).issuperset(columns):
                    parent = filter(None, (key["referred_schema"], key["referred_table"]))
                    child = ".".join(filter(None, (schema, name)))
                    yield cls(f"{child}({', '.join(columns)})", ".".join(parent), records)


@dataclass(frozen=True, slots=True)
class _LiveReferences:
    """The live rows that refer to expired rows of a table by one foreign key.

    Attributes:
        table: The table that is referred to: the policy's, or that of a joined subclass.
        child: The referring table, as a model declares it (for its policy), if one does.
    """

    connection: Connection
    binding: Binding
    table: Table
    key: ReferringKey
    child: FromClause

    @classmethod
    def to(cls, connection: Connection, binding: Binding) -> Iterator[_LiveReferences]:
        """Find the references that prevent a sweep, or whose rows a sweep would delete."""
        # SQLite's keys, too: the programs that write the rows may have them enforced.
        for table, key in ReferringKeys(enforced=False).of_rows(connection, binding):
            child = _declared_as(connection, binding, key)
            # A cascade without a policy is intended: its rows are deleted with their parents.
            is_meant = key.deletes == "CASCADE" and root_binding_of(child) is None
            if not (is_meant or key.deletes.startswith("SET")):
                yield cls(connection, binding, table, key, child)

    def count(self, limit: int) -> int:
        """Count the rows, up to a limit."""
        expired = expired_in(self.connection, self.binding)
        sub = sub_binding_of(self.table)
        if sub is not None:
            own, roots = zip(*sub.keys, strict=True)
            expired = in_subquery(own, SweepSelect(*roots).where(expired))
        referred = SweepSelect(*_columns(self.table, self.key.referred)).where(expired)
        columns = _columns(self.child, self.key.columns)
        rows = select(columns[0]).where(in_subquery(columns, referred)).limit(limit).subquery()
        counted = self.connection.execute(select(func.count()).select_from(rows))
        return int(counted.scalar_one())

    @property
    def outcome(self) -> str:
        """The effect of a sweep."""
        if self.key.deletes == "CASCADE":
            return "a sweep also deletes them, by ON DELETE CASCADE"
        return "a sweep can't delete the expired rows because of them"

    @property
    def fix(self) -> str:
        """The fix."""
        columns = ", ".join(self.key.columns)
        return (
            f"point {columns} of these rows to live rows, delete these rows, or give them a ttl "
            f"that ends no later; and touch() a row of {self.table.fullname} whenever you add a "
            "row that refers to it"
        )


def _declared_as(connection: Connection, binding: Binding, key: ReferringKey) -> FromClause:
    """Return the referring table of a foreign key, as a model declares it, if one does."""
    schema, name = key.table
    tables: list[Table] = [*binding.table.metadata.tables.values(), *bound_tables]
    for table in tables:
        declared_schema, declared_name = name_of(connection, table)
        # A model of another database may have the same name, and one may declare fewer columns.
        has_key = {column.name for column in table.c}.issuperset(key.columns)
        if declared_name == name and declared_schema in (None, schema) and has_key:
            return table
    return bare_table(name, *map(column, key.columns), schema=schema)


def _columns(source: FromClause, names: tuple[str, ...]) -> list[ColumnElement[Any]]:
    columns = {column.name: column for column in source.c}
    return [columns[name] for name in names]

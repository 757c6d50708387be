"""The tables that keep stored defaults and their changes.

A row of ``ttl_odm_policies`` has the default ttl of one table, or of one scope of it. A second
table keeps the earlier values, and who changed them and why.

After `create_all()` has created a table whose default is stored, it creates both, and a row with
the initial value. (Migrations do so too.) An existing row stays as it is.

This module must not know how a default is changed, nor how a statement looks it up.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    event,
    insert,
    inspect,
    literal,
    select,
)
from sqlalchemy.dialects.mysql import VARCHAR
from sqlalchemy.schema import CreateTable

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy import schema
from ttl_odm.sqlalchemy.policy.bindings import KEPT_KEY, binding_of
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.stored.rows import CHANGES, LONGEST_SCOPE, POLICIES, WHOLE_TABLE

if TYPE_CHECKING:
    from sqlalchemy import Insert

    from ttl_odm.sqlalchemy.policy.bindings import Binding

    SQL = ColumnElement[Any]

_INFO: Final = POLICIES


class PolicyTables(NamedTuple):
    """The table of the stored defaults, and that of their changes."""

    policies: Table
    changes: Table


def policy_tables(metadata: MetaData, *, schema: str | None = None) -> PolicyTables:
    """Add the tables of stored defaults to a MetaData, so that ``create_all()`` creates them.

    Without it they are created in the connection's own schema. The tables of that MetaData then
    have their defaults there. Call it before any statement runs.

    Args:
        metadata: The MetaData of the application's models.
        schema: Their schema; None for the connection's own.
    """
    tables = _tables(metadata, schema)
    event.listen(tables.policies, "after_create", _begin_all)
    return tables


def tables_of(table: Table | None) -> PolicyTables:
    """Return where a table's default is stored; for None, where most defaults are."""
    declared = None if table is None else declared_policy_tables(table.metadata)
    return declared or _undeclared()


def declared_policy_tables(metadata: MetaData) -> PolicyTables | None:
    """Return the tables that `policy_tables` has added to a MetaData; None if it hasn't."""
    ours = {table.info[_INFO]: table for table in metadata.tables.values() if _INFO in table.info}
    return PolicyTables(ours[POLICIES], ours[CHANGES]) if ours else None


@cache
def _undeclared() -> PolicyTables:
    return _tables(MetaData(), None)


def _tables(metadata: MetaData, schema_name: str | None) -> PolicyTables:
    policies = Table(
        POLICIES,
        metadata,
        Column("name", _exact(), primary_key=True),
        Column("scope", _exact(), primary_key=True),
        Column("ttl", Integer),
        Column("changed_at", LastModified(), nullable=False),
        Column("changed_by", String(255)),
        Column("reason", Text),
        # The least of a table's defaults is the first entry of its index.
        UniqueConstraint("name", "ttl", "scope", name=f"uq_{POLICIES}_name_ttl"),
        schema=schema_name,
        info={_INFO: POLICIES, KEPT_KEY: True},
    )
    schema.add_check(policies, policies.c.ttl)
    changes = Table(
        CHANGES,
        metadata,
        Column("id", BigInteger().with_variant(Integer, "sqlite"), primary_key=True),
        Column("name", _exact(), nullable=False),
        Column("scope", _exact(), nullable=False),
        Column("changed_at", LastModified(), nullable=False),
        Column("changed_by", String(255)),
        Column("ttl_before", Integer),
        Column("ttl_after", Integer),
        Column("reason", Text),
        schema=schema_name,
        info={_INFO: CHANGES, KEPT_KEY: True},
    )
    return PolicyTables(policies, changes)


def _exact() -> String:
    """A type of text; MariaDB and MySQL too distinguish its upper and lower case."""
    return String(LONGEST_SCOPE).with_variant(
        VARCHAR(LONGEST_SCOPE, collation="utf8mb4_bin"), *MYSQL_FAMILY
    )


def name_of(table: Table) -> str:
    """Return the name of a table in the table of the policies."""
    return str(table.fullname)  # SQLAlchemy has no type for a quoted_name


def row_of(table: Table, scope: str = WHOLE_TABLE) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions for the row of a table's default, or of a scope's."""
    c = tables_of(table).policies.c
    return (c.name == name_of(table), c.scope == scope)


def begin_when_created(binding: Binding) -> None:
    """Have ``create_all()`` store a table's initial default, and ``drop_all()`` remove it."""
    for name, listener in (("after_create", _begin), ("after_drop", _end)):
        if not event.contains(binding.table, name, listener):
            event.listen(binding.table, name, listener)


def create_policies(connection: Connection, *tables: Table) -> None:
    """Create the tables of stored defaults, and any missing rows in them.

    Use it for tables that neither `create_all()` nor a migration creates: those of a third party,
    to which `enable()` has given a policy.

    Args:
        connection: A connection; the tables and rows are committed with its transaction.
        tables: The tables; those without a stored default are ignored.
    """
    for table in tables:
        _begin(table, connection)


def starting_row(table: Table, start: int | None, now: SQL) -> Insert:
    """Return the INSERT of a table's initial default; it does nothing if one is stored."""
    policies = tables_of(table).policies
    texts: list[SQL] = [literal(text, String()) for text in (name_of(table), WHOLE_TABLE)]
    values = [*texts, literal(start, Integer()), now]
    stored = select(policies.c.name).where(*row_of(table))
    new = select(*values).where(~stored.correlate(None).exists())
    return insert(policies).from_select(["name", "scope", "ttl", "changed_at"], new)


def _begin(table: Table, connection: Connection, **_: object) -> None:
    """Create the tables that store a table's default, and its row."""
    binding = binding_of(table)
    if binding is None or binding.policy.stored is None:
        return
    tables = tables_of(binding.first.table)
    if tables.policies.metadata is not table.metadata:
        for stored in tables:
            connection.execute(CreateTable(stored, if_not_exists=True))
    elif not _exists(connection, tables.policies):
        return  # `_begin_all` inserts the row once the MetaData has created the table
    _insert(connection, binding)


def _begin_all(policies: Table, connection: Connection, **_: object) -> None:
    """Store the initial defaults of all tables of a MetaData, after the table of policies."""
    for table in list(policies.metadata.tables.values()):
        binding = binding_of(table)
        if binding is not None and binding.policy.stored is not None:
            _insert(connection, binding)


def _insert(connection: Connection, binding: Binding) -> None:
    clock = clock_of(connection.dialect)
    now = clock.literal(clock.now_at_write)
    stored = binding.default.policy.stored or binding.policy.stored
    assert stored is not None  # noqa: S101 (the callers have asked)
    connection.execute(starting_row(binding.first.table, stored.start, now))


def _end(table: Table, connection: Connection, **_: object) -> None:
    """Remove a table's rows with it: a new table of its name gets its initial default again."""
    binding = binding_of(table)
    if binding is None or binding.policy.stored is None:
        return
    policies = tables_of(binding.first.table).policies
    if _exists(connection, policies):
        name = name_of(binding.first.table)
        connection.execute(policies.delete().where(policies.c.name == name))


def _exists(connection: Any, table: Table) -> bool:
    """Whether a table exists; True for a mock connection, which only collects DDL."""
    if not isinstance(connection, Connection):
        return True
    schema, name = compat.place_of(connection.get_execution_options(), table)
    return inspect(connection).has_table(name, schema=schema)

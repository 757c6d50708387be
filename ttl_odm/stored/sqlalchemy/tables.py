"""The tables that keep stored defaults and their changes.

A row of ``ttl_odm_policies`` has the default ttl of one table, or of one scope of it. A second
table keeps what it was before, who changed it, and why.

`create_all()` makes both, and the row with the value to begin with, after it has made a table whose
default is stored. (Migrations do so too.) A row that is there stays as it is.

This module must not know how a value is changed, nor how a statement looks it up.
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
    """The table of the policies, and that of their changes."""

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
    """Where a table's default is stored; without one, where that of most is."""
    declared = None if table is None else declared_policy_tables(table.metadata)
    return declared or _undeclared()


def declared_policy_tables(metadata: MetaData) -> PolicyTables | None:
    """What `policy_tables` has added to a MetaData, if it has."""
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
    """Text of which MariaDB and MySQL tell upper from lower case, as the others do."""
    return String(LONGEST_SCOPE).with_variant(
        VARCHAR(LONGEST_SCOPE, collation="utf8mb4_bin"), *MYSQL_FAMILY
    )


def name_of(table: Table) -> str:
    """What a table is called in the table of the policies."""
    return str(table.fullname)  # a quoted_name has no type to SQLAlchemy


def row_of(table: Table, scope: str = WHOLE_TABLE) -> tuple[ColumnElement[bool], ...]:
    """The conditions for the row of a table's default."""
    c = tables_of(table).policies.c
    return (c.name == name_of(table), c.scope == scope)


def begin_when_created(binding: Binding) -> None:
    """Let a table's row be made with the table, and go with it."""
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
    """The INSERT of a table's row, unless there is one."""
    policies = tables_of(table).policies
    texts: list[SQL] = [literal(text, String()) for text in (name_of(table), WHOLE_TABLE)]
    values = [*texts, literal(start, Integer()), now]
    is_there = select(policies.c.name).where(*row_of(table))
    new = select(*values).where(~is_there.correlate(None).exists())
    return insert(policies).from_select(["name", "scope", "ttl", "changed_at"], new)


def _begin(table: Table, connection: Connection, **_: object) -> None:
    """Make what the default of a table needs, after the table."""
    binding = binding_of(table)
    if binding is None or binding.policy.stored is None:
        return
    tables = tables_of(binding.first.table)
    if tables.policies.metadata is not table.metadata:
        for made in tables:
            connection.execute(CreateTable(made, if_not_exists=True))
    elif not _is_there(connection, tables.policies):
        return  # it is the MetaData's to make, and has its rows then
    _insert(connection, binding)


def _begin_all(policies: Table, connection: Connection, **_: object) -> None:
    """Make the rows of all tables beside one of policies, after that."""
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
    """Take a table's rows away with it: a new table of its name begins anew."""
    binding = binding_of(table)
    if binding is None or binding.policy.stored is None:
        return
    policies = tables_of(binding.first.table).policies
    if _is_there(connection, policies):
        name = name_of(binding.first.table)
        connection.execute(policies.delete().where(policies.c.name == name))


def _is_there(connection: Any, table: Table) -> bool:
    """Whether a table exists; True for what only writes down the DDL."""
    if not isinstance(connection, Connection):
        return True
    schema, name = compat.place_of(connection.get_execution_options(), table)
    return inspect(connection).has_table(name, schema=schema)

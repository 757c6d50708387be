"""What a table has of its TTL now, according to the database's catalogue.

Every step of an operation checks here whether it is still needed, so a failed migration continues
where it stopped. This module only reads.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from sqlalchemy import Column, MetaData, Table, inspect, text
from sqlalchemy.exc import NoSuchTableError

from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.dialects import MYSQL_FAMILY, index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, check_on, column_line
from ttl_odm.sqlalchemy.policy.bindings import INFO_KEY
from ttl_odm.sqlalchemy.sweep.due import stored_indexes
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ttl_odm.alembic.target_schema import TargetSchema

Check: TypeAlias = Literal["missing", "unvalidated", "outdated", "unenforced", "there"]

_OF_THE_CLOCK: Final = ("clock_timestamp", "timestampdiff", "julianday")
"""A default with one of these words is the database's clock, not the instant of the migration."""


TOUCH: Final = "_ttl_touch"
"""How the name of a table's trigger ends, after a name that the table has or had."""


@dataclass(frozen=True)
class ExistingSchema:
    """The state of one table.

    Attributes:
        columns: The table's columns, without MariaDB's and MySQL's virtual ones for the indexes.
        primary_key: The columns of the primary key.
        stamps: Whether ``_ts`` has its final default, the database's clock.
        ttl_default: Whether ``ttl`` still has a default, which old rows got: -1.
        check: The state of the CHECK; "unvalidated": old rows may violate it; "outdated": it is an
            earlier release's, which on SQLite allowed values that aren't whole numbers;
            "unenforced": MySQL has it without enforcing it.
        check_name: MySQL's name of the CHECK.
        indexes: Whether each index of the table is valid, by its name.
        scope: The column of scopes with which the index over inheriting rows begins, if one does.
        misled: The name of this index if it begins with another column than the target's; or "".
        virtual: The names of the virtual columns for the indexes.
        trigger: The name of the trigger, which a renamed table keeps; empty if there is none.
        rowid: A name of SQLite's rowid that no column has; empty for a table WITHOUT ROWID.
        is_partitioned: Whether it is partitioned, on PostgreSQL.
        is_nested: Whether some partitions are partitioned themselves, or are foreign tables.
    """

    columns: dict[str, Column[Any]] = field(default_factory=dict)
    primary_key: tuple[Column[Any], ...] = ()
    stamps: bool = False
    ttl_default: bool = False
    check: Check = "missing"
    check_name: str = ""
    indexes: dict[str, bool] = field(default_factory=dict)
    scope: str | None = None
    misled: str = ""
    virtual: tuple[str, ...] = ()
    trigger: str = ""
    rowid: str = ""
    is_partitioned: bool = False
    is_nested: bool = False

    def has_index(self, name: str) -> bool:
        """Whether there is a valid index of this name that begins with the right column."""
        return self.indexes.get(name, False) and name != self.misled


def read_schema(connection: Connection, target: TargetSchema) -> ExistingSchema:
    """Read the state of a table.

    Raises:
        MigrationRefusedError: The database has no such table.
    """
    table = target.table
    try:
        reflected = read_columns(connection, table.name, table.schema)
    except NoSuchTableError:
        tables = inspect(connection).get_table_names(schema=table.schema)
        near = get_close_matches(table.name, tables, n=3)
        where = f" in schema {table.schema!r}" if table.schema else ""
        hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
        raise MigrationRefusedError(
            f"There is no table {table.name!r}{where} on this database.{hint}"
        ) from None
    columns = {column.name: column for column in reflected.c}
    virtual = tuple(
        name for name in (INHERITED_END, OWN_END) if columns.pop(name, None) is not None
    )
    defaults = {
        name: str(getattr(column.server_default, "arg", "")).lower()
        for name, column in columns.items()
    }
    state = _READERS[connection.dialect.name](connection, target)
    default = defaults.get(target.own_ttl.name, "null")
    stamps = state.stamps or _is_of_the_clock(defaults.get(target.last_modified.name, ""))
    scope, misled = _leading_column(connection, target, state)
    return replace(
        state,
        columns=columns,
        primary_key=tuple(reflected.primary_key),
        stamps=stamps,
        ttl_default=default not in ("", "null"),
        scope=scope,
        misled=misled,
        virtual=virtual,
    )


def _leading_column(
    connection: Connection, target: TargetSchema, state: ExistingSchema
) -> tuple[str | None, str]:
    """Return `ExistingSchema.scope` and `ExistingSchema.misled`."""
    inherited = index_name(target.table.name, "ttl_inherited")
    if inherited not in state.indexes or target.dates is not None:
        return None, ""
    indexes = stored_indexes(connection, target.table)
    first = next((index.first for index in indexes if index.name == inherited), None)
    is_mysql = connection.dialect.name in MYSQL_FAMILY
    end = INHERITED_END if is_mysql else target.last_modified.name
    leading = target.scope if can_lead(connection, target) else None
    # An index that begins with an expression (None) is the application's.
    is_misled = first not in (end if leading is None else leading.name, None)
    return None if first == end else first, inherited if is_misled else ""


def can_lead(connection: Connection, target: TargetSchema) -> bool:
    """Whether the database allows an index that begins with the column of scopes."""
    if target.scope is None or connection.dialect.name not in MYSQL_FAMILY:
        return True
    table = target.table
    names = {"schema": table.schema, "table": table.name, "column": target.scope.name}
    length = connection.execute(_LENGTH, names).scalar()
    return length is None or clock_of(connection.dialect).can_lead(int(length))


_LENGTH: Final = text(
    "SELECT character_maximum_length FROM information_schema.columns WHERE table_name = :table "
    "AND table_schema = COALESCE(:schema, DATABASE()) AND column_name = :column"
)


def _is_of_the_clock(default: str) -> bool:
    return any(word in default for word in _OF_THE_CLOCK)


def read_columns(connection: Connection, name: str, schema: str | None) -> Table:
    """Read a table's columns and primary key, and nothing else on which reflection could fail."""
    inspector = inspect(connection)
    key = set(inspector.get_pk_constraint(name, schema=schema)["constrained_columns"])
    table = Table(name, MetaData(info={INFO_KEY: None}), schema=schema)  # expired rows too
    for column in inspector.get_columns(name, schema=schema):
        default = column["default"]
        table.append_column(
            Column(
                column["name"],
                column["type"],
                primary_key=column["name"] in key,
                autoincrement=False,
                server_default=text(default.replace(":", r"\:")) if default else None,
            )
        )
    return table


def _on_postgresql(connection: Connection, target: TargetSchema) -> ExistingSchema:
    names = {
        "table": target.plain(connection.dialect),
        "check": target.check_name,
    }
    indexes = connection.execute(_POSTGRESQL_INDEXES, names).all()
    is_validated, trigger, is_partitioned, is_nested = connection.execute(
        _POSTGRESQL_OTHERS, names
    ).one()
    check: Check = "missing"
    if is_validated is not None:
        check = "there" if is_validated else "unvalidated"
    return ExistingSchema(
        indexes={name: bool(valid) for name, valid in indexes},
        check=check,
        trigger=trigger or "",
        is_partitioned=is_partitioned,
        is_nested=is_partitioned and is_nested,
    )


_POSTGRESQL_INDEXES: Final = text(
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = CAST(:table AS regclass)"
)
_POSTGRESQL_OTHERS: Final = text(
    "SELECT (SELECT convalidated FROM pg_constraint "
    "WHERE conrelid = t.oid AND contype = 'c' AND conname = :check), "
    "(SELECT max(tgname::text) FROM pg_trigger WHERE tgrelid = t.oid "
    f"AND right(tgname::text, {len(TOUCH)}) = '{TOUCH}'), "
    "t.relkind = 'p', EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = t.oid AND c.relkind <> 'r') "
    "FROM pg_class t WHERE t.oid = CAST(:table AS regclass)"
)


def _on_mysql(connection: Connection, target: TargetSchema) -> ExistingSchema:
    table = target.table
    names = {"schema": table.schema, "table": table.name}
    indexes = connection.execute(_MYSQL_INDEXES, names).scalars()
    show = f"SHOW CREATE TABLE {target.quoted(connection.dialect)}"
    _, definition = connection.exec_driver_sql(show).one()
    stamp = column_line(str(definition), target.last_modified.name)
    own, condition = target.own_ttl.name, target.condition(connection.dialect)
    check = check_on(str(definition), own, condition)
    return ExistingSchema(
        indexes=dict.fromkeys(indexes, True),
        check="missing" if check is None else "there" if check.is_enforced else "unenforced",
        check_name="" if check is None else check.name,
        # SQLAlchemy doesn't reflect a default that is an expression without parentheses.
        stamps=_is_of_the_clock(stamp.lower()),
        trigger=connection.scalar(_MYSQL_TRIGGER, names) or "",
    )


_MYSQL_INDEXES: Final = text(
    "SELECT DISTINCT index_name FROM information_schema.statistics "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)
_MYSQL_TRIGGER: Final = text(
    "SELECT max(trigger_name) FROM information_schema.triggers "
    "WHERE trigger_schema = COALESCE(:schema, DATABASE()) AND event_object_table = :table "
    f"AND RIGHT(trigger_name, {len(TOUCH)}) = '{TOUCH}'"
)


def _on_sqlite(connection: Connection, target: TargetSchema) -> ExistingSchema:
    schema = target.table.schema
    prefix = f"{connection.dialect.identifier_preparer.quote(schema)}." if schema else ""
    query = f"SELECT type, name, sql FROM {prefix}sqlite_master WHERE tbl_name = :table"
    names = {"table": target.table.name}
    objects = connection.execute(text(f"{query} COLLATE NOCASE"), names).all()
    definition = next((sql for kind, _, sql in objects if kind == "table"), "")
    check: Check = "missing"
    if target.check_name.replace('"', '""') in definition:
        check = "there" if target.condition(connection.dialect) in definition else "outdated"
    triggers = (name for kind, name, _ in objects if kind == "trigger" and name.endswith(TOUCH))
    return ExistingSchema(
        indexes={name: True for kind, name, _ in objects if kind == "index"},
        check=check,
        rowid=_free_rowid(connection, target, definition),
        trigger=next(triggers, ""),
    )


def _free_rowid(connection: Connection, target: TargetSchema, definition: str) -> str:
    if re.search(r"\bWITHOUT\s+ROWID\b", definition.rpartition(")")[2], re.IGNORECASE):
        return ""
    columns = inspect(connection).get_columns(target.table.name, schema=target.table.schema)
    taken = {column["name"].lower() for column in columns}
    return next((name for name in ("rowid", "_rowid_", "oid") if name not in taken), "")


_READERS: Final = {
    "postgresql": _on_postgresql,
    "sqlite": _on_sqlite,
    **dict.fromkeys(MYSQL_FAMILY, _on_mysql),
}

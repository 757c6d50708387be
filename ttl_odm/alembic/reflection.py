"""What of its TTL a table has at this moment, as the database's own catalogue has it.

Every step of an operation asks here whether it is still to be done; that is what lets a failed
migration go on where it stopped. Only reads.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, Literal

from sqlalchemy import Column, MetaData, Table, inspect, text
from sqlalchemy.exc import NoSuchTableError

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.dialects import MYSQL_FAMILY, index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, check_on, column_line
from ttl_odm.sqlalchemy.policy.bindings import INFO_KEY
from ttl_odm.sqlalchemy.sweep.due import stored_indexes
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from sqlalchemy import Connection

    from ttl_odm.alembic.target_schema import TargetSchema

_OF_THE_CLOCK: Final = ("clock_timestamp", "timestampdiff", "julianday")
"""A default with one of these is the database's clock, not the instant of the migration."""


@dataclass(frozen=True)
class ExistingSchema:
    """The state of one table.

    Attributes:
        stamps: ``_ts`` has its final default, the database's clock.
        ttl_default: ``ttl`` still has a default, as while old rows are given -1.
        check: Whether the CHECK is there, and holds for the rows from before it; "outdated" is that
            of an earlier release, which on SQLite let in what is not a whole number, "unenforced"
            one of MySQL that is there and keeps nothing out.
        check_name: What MySQL calls it.
        indexes: Each index of the table by its name, and whether it is valid.
        scope: The column of scopes that leads the index over the rows that inherit; None where
            there is none.
        misled: The name of that index where another column leads it than the target's.
        without_rowid: SQLite knows its rows by the primary key only.
        is_partitioned: PostgreSQL has its rows in partitions.
        is_nested: Some of these are partitioned themselves, or are foreign tables.
    """

    columns: dict[str, Column[Any]] = field(default_factory=dict)
    primary_key: tuple[Column[Any], ...] = ()
    stamps: bool = False
    ttl_default: bool = False
    check: Literal["missing", "unvalidated", "outdated", "unenforced", "there"] = "missing"
    check_name: str = ""
    indexes: dict[str, bool] = field(default_factory=dict)
    scope: str | None = None
    misled: str = ""
    virtual: tuple[str, ...] = ()
    trigger: bool = False
    without_rowid: bool = False
    is_partitioned: bool = False
    is_nested: bool = False

    def has_index(self, name: str) -> bool:
        """Whether a valid index of this name is there, and led as it has to be."""
        return self.indexes.get(name, False) and name != self.misled


def read_schema(connection: Connection, target: TargetSchema) -> ExistingSchema:
    """Read the state of a table."""
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
    stamp, own = target.last_modified.name, target.own_ttl.name
    found: dict[str, Any] = {
        "stamps": _is_of_the_clock(defaults.get(stamp, "")),
        "ttl_default": defaults.get(own, "null") not in ("", "null"),
        **_READERS[connection.dialect.name](connection, target),
    }
    inherited = index_name(table.name, "ttl_inherited")
    if inherited in found["indexes"] and target.dates is None:
        first = _first_of(connection, table, inherited)
        end = INHERITED_END if connection.dialect.name in MYSQL_FAMILY else stamp
        leading = target.scope if can_lead(connection, target) else None
        found["scope"] = None if first == end else first
        # What begins with an expression is its owner's.
        if first not in (end if leading is None else leading.name, None):
            found["misled"] = inherited
    return ExistingSchema(
        columns=columns, primary_key=tuple(reflected.primary_key), virtual=virtual, **found
    )


def can_lead(connection: Connection, target: TargetSchema) -> bool:
    """Whether an index may begin with the column of scopes, as the database has it."""
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


def _first_of(connection: Connection, table: Table, name: str) -> str | None:
    """The column that an index of a table begins with."""
    every = stored_indexes(connection, table)
    return next((index.first for index in every if index.name == name), None)


def _is_of_the_clock(default: str) -> bool:
    return any(word in default for word in _OF_THE_CLOCK)


def read_columns(connection: Connection, name: str, schema: str | None) -> Table:
    """A table's columns and its primary key, and nothing else that reflection might stumble on."""
    inspector = inspect(connection)
    key = set(inspector.get_pk_constraint(name, schema=schema)["constrained_columns"])
    table = Table(name, MetaData(info={INFO_KEY: None}), schema=schema)  # for all its rows
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


def _on_postgresql(connection: Connection, target: TargetSchema) -> dict[str, Any]:
    names = {
        "table": target.plain(connection.dialect),
        "check": target.check_name,
        "touch": target.name_of("tg_", "ttl_touch"),
    }
    indexes = connection.execute(_POSTGRESQL_INDEXES, names).all()
    validated, trigger, cut, nested = connection.execute(_POSTGRESQL_OTHERS, names).one()
    return {
        "indexes": {name: bool(valid) for name, valid in indexes},
        "check": {None: "missing", False: "unvalidated", True: "there"}[validated],
        "trigger": trigger,
        "is_partitioned": cut,
        "is_nested": cut and nested,
    }


_POSTGRESQL_INDEXES: Final = text(
    "SELECT c.relname, i.indisvalid FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
    "WHERE i.indrelid = CAST(:table AS regclass)"
)
_POSTGRESQL_OTHERS: Final = text(
    "SELECT (SELECT convalidated FROM pg_constraint "
    "WHERE conrelid = t.oid AND contype = 'c' AND conname = :check), "
    "EXISTS (SELECT 1 FROM pg_trigger WHERE tgrelid = t.oid AND tgname = :touch), "
    "t.relkind = 'p', EXISTS (SELECT 1 FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid "
    "WHERE i.inhparent = t.oid AND c.relkind <> 'r') "
    "FROM pg_class t WHERE t.oid = CAST(:table AS regclass)"
)


def _on_mysql(connection: Connection, target: TargetSchema) -> dict[str, Any]:
    table = target.table
    touch = target.name_of("tg_", "ttl_touch")
    names = {"schema": table.schema, "table": table.name, "touch": touch}
    indexes = connection.execute(_MYSQL_INDEXES, names).scalars()
    show = f"SHOW CREATE TABLE {target.quoted(connection.dialect)}"
    _, definition = connection.exec_driver_sql(show).one()
    stamp = column_line(str(definition), target.last_modified.name)
    own, condition = target.own_ttl.name, target.condition(connection.dialect)
    check = check_on(str(definition), own, condition)
    return {
        "indexes": dict.fromkeys(indexes, True),
        "check": "missing" if check is None else "there" if check.is_enforced else "unenforced",
        "check_name": "" if check is None else check.name,
        # SQLAlchemy reflects no default that is an expression without parentheses.
        "stamps": _is_of_the_clock(stamp.lower()),
        "trigger": bool(connection.scalar(_MYSQL_TRIGGER, names)),
    }


_MYSQL_INDEXES: Final = text(
    "SELECT DISTINCT index_name FROM information_schema.statistics "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)
_MYSQL_TRIGGER: Final = text(
    "SELECT 1 FROM information_schema.triggers "
    "WHERE trigger_schema = COALESCE(:schema, DATABASE()) AND trigger_name = :touch"
)


def _on_sqlite(connection: Connection, target: TargetSchema) -> dict[str, Any]:
    schema = target.table.schema
    prefix = f"{connection.dialect.identifier_preparer.quote(schema)}." if schema else ""
    query = f"SELECT type, name, sql FROM {prefix}sqlite_master WHERE tbl_name = :table"
    names = {"table": target.table.name}
    objects = connection.execute(text(f"{query} COLLATE NOCASE"), names).all()
    definition = next((sql for kind, _, sql in objects if kind == "table"), "")
    return {
        "indexes": {name: True for kind, name, _ in objects if kind == "index"},
        "check": _sqlite_check(definition, target, connection),
        "without_rowid": "WITHOUT ROWID" in definition.rpartition(")")[2].upper(),
        "trigger": ("trigger", target.name_of("tg_", "ttl_touch"))
        in {(kind, name) for kind, name, _ in objects},
    }


def _sqlite_check(definition: str, target: TargetSchema, connection: Connection) -> str:
    if target.check_name not in definition:
        return "missing"
    return "there" if target.condition(connection.dialect) in definition else "outdated"


_READERS: Final = {
    "postgresql": _on_postgresql,
    "sqlite": _on_sqlite,
    **dict.fromkeys(MYSQL_FAMILY, _on_mysql),
}

"""Evidence from a SQL database: columns, indexes, rows, a sample. It only reads.

Every statement runs in a read-only transaction (SQLite: connection), with a time limit, and doesn't
wait for locks. Of a table that isn't small only a few hundred rows are read, the first and the last
by primary key, and their number is estimated from the catalogue.
"""

from __future__ import annotations

import warnings
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    REAL,
    Column,
    Date,
    DateTime,
    Float,
    Integer,
    MetaData,
    Numeric,
    String,
    case,
    func,
    inspect,
    literal_column,
    select,
)
from sqlalchemy import Table as SQLTable
from sqlalchemy.dialects import mysql, registry
from sqlalchemy.dialects.mysql import TIMESTAMP as MYSQL_TIMESTAMP
from sqlalchemy.exc import DBAPIError

from ttl_odm.core.policy import fields_of
from ttl_odm.dialects import family_named
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.inspection.evidence import SMALL, Field, Kind, Table
from ttl_odm.inspection.names import is_about_expiry
from ttl_odm.sqlalchemy.purge.removal import count_rows
from ttl_odm.sqlalchemy.sweep.counts import estimate
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper.units import UNITS, misread_dates, misread_instants, misread_lifetimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Select
    from sqlalchemy.engine import Inspector
    from sqlalchemy.types import TypeEngine

    from ttl_odm.core.policy import Policy, Unit
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.sweeper.units import Misread

SAMPLE: Final = 500
"""Rows from the beginning of a table, and as many from its end."""

SECONDS: Final = 10
"""How long a statement may take."""

_OURS: Final = ("ttl_odm_lease", "alembic_version")
_DATES: Final = (Kind.AWARE, Kind.NAIVE, Kind.DATE)
_UNIT_BY_FACTOR: Final[Mapping[int, Unit]] = {factor: unit for unit, factor, _ in UNITS}
"""Units by how many there are in a second."""


@contextmanager
def reading_only(connection: Connection, seconds: int | None = SECONDS) -> Iterator[None]:
    """Enter a transaction in which the database rejects writes and slow statements; roll back.

    Don't use the connection for anything else afterwards, and don't return it to a pool.

    Args:
        connection: The connection.
        seconds: The time limit of each statement; None for no limit.

    Raises:
        TTLConfigurationError: The library has no way to do this on the database.
    """
    limit = seconds or 0  # 0 means no limit on all databases
    dialect = connection.dialect.name
    if family_named(dialect) is None:
        raise TTLConfigurationError(
            f"ttl_odm doesn't know how to make a transaction read-only on {dialect}, and inspects "
            "a database only in read-only transactions. Sweeping, and the sweepers' status, work."
        )
    if dialect == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
    elif dialect == "postgresql":
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{limit}s'")
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
    else:
        time = f"max_execution_time = {limit * 1000}"
        if getattr(connection.dialect, "is_mariadb", False):
            time = f"max_statement_time = {limit}"
        connection.exec_driver_sql(
            f"SET SESSION {time}, lock_wait_timeout = 1, time_zone = '+00:00'"
        )
        connection.rollback()
        connection.exec_driver_sql("SET SESSION TRANSACTION READ ONLY")
        connection.rollback()
    try:
        yield
    finally:
        connection.rollback()


def now(connection: Connection) -> datetime:
    """Return the database's present instant, which is aware."""
    clock = clock_of(connection.dialect)
    return clock.from_storage(connection.execute(select(clock.literal(clock.now))).scalar_one())


def tables(
    connection: Connection,
    *,
    schema: str | None = None,
    models: Mapping[str, Table] | None = None,
) -> Iterator[Table]:
    """Read all tables of a schema, or those that models describe, within `reading_only`."""
    inspector = inspect(connection)
    names = sorted(inspector.get_table_names(schema))
    labels = _django_labels(connection, schema) if models is None else {}
    references = _references(connection, names, schema)
    for name in names:
        full = name if schema is None else f"{schema}.{name}"
        if name in _OURS or (models is not None and full not in models):
            continue
        declared = Table(full, django=labels.get(name)) if models is None else models[full]
        try:
            with connection.begin_nested():
                read = _Reading(connection, inspector, name, schema, declared.policy)
                table = read.table(full)
        except DBAPIError as error:
            table = Table(full, problem=f"can't be read: {' '.join(str(error.orig).split())}")
        yield replace(
            table,
            model=declared.model,
            module=declared.module,
            variable=declared.variable,
            django=declared.django,
            has_policy=declared.has_policy,
            policy=declared.policy,
            references=sorted({*declared.references, *references.get(name, ())}),
        )


def _references(
    connection: Connection, names: list[str], schema: str | None
) -> Mapping[str, list[str]]:
    """Return the columns of foreign keys that refer to each table of the schema."""
    references: dict[str, list[str]] = {}
    inspector = inspect(connection)
    for name in names:
        # A table that can't be read is reported when its own turn comes.
        with suppress(DBAPIError), connection.begin_nested():
            for key in inspector.get_foreign_keys(name, schema):
                if key["referred_schema"] == schema:
                    columns = ", ".join(key["constrained_columns"])
                    references.setdefault(key["referred_table"], []).append(f"{name}.{columns}")
    return references


def _django_labels(connection: Connection, schema: str | None) -> Mapping[str, str]:
    """Return the labels of Django's models by table; empty if these aren't Django's tables."""
    kinds = SQLTable(
        "django_content_type", MetaData(), Column("app_label"), Column("model"), schema=schema
    )
    if not inspect(connection).has_table(kinds.name, schema):
        return {}
    labels = {"django_session": "sessions.session", "django_admin_log": "admin.logentry"}
    with suppress(DBAPIError), connection.begin_nested():  # the user may lack the right to read it
        for app, model in connection.execute(select(kinds.c.app_label, kinds.c.model)):
            labels.setdefault(f"{app}_{model}", f"{app}.{model}")
    return labels


class _Reading:
    """The reading of one table."""

    def __init__(
        self,
        connection: Connection,
        inspector: Inspector,
        name: str,
        schema: str | None,
        policy: Policy | None,
    ) -> None:
        self._connection = connection
        self._columns = {}
        known = {"_ts", "ttl", *(() if policy is None else fields_of(policy))}
        for column in inspector.get_columns(name, schema):
            kind = kind_of(column["type"])
            is_about = is_about_expiry(column["name"]) or column["name"] in known
            if kind in _DATES or (is_about and kind is not Kind.OTHER):
                self._columns[column["name"]] = column
        self._keys = inspector.get_pk_constraint(name, schema)["constrained_columns"]
        with warnings.catch_warnings():  # SQLAlchemy warns of indexes over expressions
            warnings.simplefilter("ignore")
            self._indexes = inspector.get_indexes(name, schema)
        # Without types, so values are what the driver returns, and without the application's
        # policy, so expired rows count.
        columns = dict.fromkeys([*self._columns, *self._keys])
        self._table = SQLTable(
            name, MetaData(), *map(Column, columns), schema=schema, info={"ttl_odm": None}
        )

    def table(self, full: str) -> Table:
        rows, is_estimated = self._rows()
        sample = self._sample() if self._columns and rows else []
        whole: list[Any] = [
            index["column_names"]
            for index in self._indexes
            if not any(
                key.endswith("_where") and value is not None  # on SQLite an expression
                for key, value in index.get("dialect_options", {}).items()
            )
        ]
        indexed = {columns[0] for columns in [*whole, self._keys] if columns}
        fields = []
        for name, column in self._columns.items():
            values = [row[name] for row in sample]
            is_whole = name in indexed or rows <= SMALL
            lowest, highest = self._ends(name, values, all_rows=is_whole)
            fields.append(
                Field(
                    name,
                    kind_of(column["type"], self._connection.dialect.name),
                    is_nullable=column["nullable"],
                    is_indexed=name in indexed,
                    lowest=lowest,
                    highest=highest,
                    note=note_of(name, column["type"]),
                    is_sampled=not is_whole,
                )
            )
        return Table(full, fields, sample, rows, is_estimated, schema=self._table.schema)

    def _rows(self) -> tuple[int, bool]:
        """Return the number of rows, and whether it is an estimate."""
        believed = estimate(self._connection, self._table) or 0
        if believed > SMALL:
            return believed, True
        rows = count_rows(self._connection, self._table, limit=SMALL + 1)
        if rows <= SMALL:
            return rows, False
        if self._connection.dialect.name == "sqlite":
            rowid: ColumnElement[int] = func.max(literal_column("_rowid_"))
            highest = select(rowid).select_from(self._table)
            with suppress(DBAPIError):  # WITHOUT ROWID
                return int(self._connection.execute(highest).scalar_one()), True
        return rows, True

    def _sample(self) -> list[dict[str, object]]:
        values = {name: self._finite(name) for name in self._columns}
        rows = _first_and_last(self._connection, values, [self._table.c[key] for key in self._keys])
        return [{name: self._as_date(name, value) for name, value in row.items()} for row in rows]

    def _finite(self, name: str) -> ColumnElement[Any]:
        column = self._table.c[name]
        is_date = kind_of(self._columns[name]["type"]) in _DATES
        if not is_date or self._connection.dialect.name != "postgresql":
            return column
        return case((func.isfinite(column), column))  # psycopg can't read infinity

    def _ends(self, name: str, values: list[object], *, all_rows: bool) -> tuple[object, object]:
        """Return the lowest and the highest value, of all rows or of the sample."""
        if values and all_rows:
            column = self._finite(name)
            ends = self._connection.execute(select(func.min(column), func.max(column))).one()
            return self._as_date(name, ends[0]), self._as_date(name, ends[1])
        present: list[Any] = [value for value in values if value is not None]
        try:
            return min(present, default=None), max(present, default=None)
        except TypeError:  # SQLite stores any type in any column
            return None, None

    def _as_date(self, name: str, value: object) -> object:
        """Return SQLite's text as the date that the column declares, and instants in UTC."""
        if isinstance(value, datetime) and value.tzinfo is not None:
            with suppress(OverflowError):  # within a day of the year 10,000
                return value.astimezone(timezone.utc)
        kind = kind_of(self._columns[name]["type"])
        if isinstance(value, str) and kind in _DATES:
            reads = date.fromisoformat if kind is Kind.DATE else datetime.fromisoformat
            with suppress(ValueError):
                return reads(value)
        return value


def misread(connection: Connection, binding: Binding) -> Iterator[Misread]:
    """Find columns of a policy whose values are in another unit, or that aren't read as dates.

    It reads the first and the last rows by key, however big the table is.
    """
    yield from misread_texts(connection, binding)
    family = clock_of(connection.dialect).family
    created = None if binding.max_lifetime is None else binding.max_lifetime.created
    instants = [column for column in (binding.last_modified, created) if column is not None]
    units: dict[str, Unit | None] = {
        str(column.name): _unit(connection, binding, column)
        for column in instants
        if isinstance(kept_type(column.type, family), (Integer, Numeric, Float))
    }
    own = binding.override
    names = [*units, *([] if own is None else [str(own.name)])]
    if not names:
        return
    table, keys = _bare(binding.table, names)
    rows = _first_and_last(connection, {name: table.c[name] for name in names}, keys)
    for name, unit in units.items():
        if (wrong := misread_instants(name, unit, [row[name] for row in rows])) is not None:
            yield wrong
    if own is not None:
        name = str(own.name)
        lifetimes = [row[name] for row in rows if row[name] not in binding.nevers]
        if (wrong := misread_lifetimes(name, lifetimes)) is not None:
            yield wrong


def misread_texts(connection: Connection, binding: Binding) -> Iterator[Misread]:
    """Find values of a column of dates, stored as text, that can't be read as dates.

    SQLite stores any text in such a column. A row with an unreadable one never expires.
    """
    name = str(binding.last_modified.name)
    instants = binding.instants.on(clock_of(connection.dialect))
    if instants.form is None:
        return
    table, keys = _bare(binding.table, [name])
    is_read = instants.is_read(table.c[name])
    if is_read is None:
        return
    rows = _first_and_last(connection, {"value": table.c[name], "is_read": is_read}, keys)
    texts = [(row["value"], bool(row["is_read"])) for row in rows if row["value"] is not None]
    if (wrong := misread_dates(name, instants.form, texts)) is not None:
        yield wrong


def _unit(connection: Connection, binding: Binding, column: Column[object]) -> Unit | None:
    if column is binding.last_modified and binding.instants.native:
        return _UNIT_BY_FACTOR.get(clock_of(connection.dialect).per_second or 0)
    return binding.policy.unit


def _bare(table: SQLTable, names: Sequence[str]) -> tuple[SQLTable, list[Column[Any]]]:
    """Return a Table without types and without the policy, and the columns of its key."""
    keys = [str(column.name) for column in table.primary_key]
    columns: list[Column[Any]] = [Column(name) for name in dict.fromkeys([*names, *keys])]
    bare = SQLTable(table.name, MetaData(), *columns, schema=table.schema, info={"ttl_odm": None})
    return bare, [bare.c[key] for key in keys]


def _first_and_last(
    connection: Connection,
    values: Mapping[str, ColumnElement[Any]],
    keys: Sequence[ColumnElement[Any]],
) -> list[dict[str, object]]:
    """Return values of the first rows, and of the last ones by key if the table has a key."""
    # The labels are numbered, since a column may have any name, and be part of the key too.
    columns = [value.label(f"value{place}") for place, value in enumerate(values.values())]
    key_columns = [key.label(f"key{place}") for place, key in enumerate(keys)]
    first = select(*columns, *key_columns).limit(SAMPLE)

    def read(statement: Select[Any]) -> list[tuple[Any, ...]]:
        # The Table is used once, so its statements would only fill the engine's cache.
        result = connection.execute(statement, execution_options={"compiled_cache": None})
        return [tuple(row) for row in result]

    rows = read(first)
    if keys and len(rows) == SAMPLE:
        seen = {row[len(columns) :] for row in rows}
        last = first.order_by(*(key.desc() for key in keys))
        rows += (row for row in read(last) if row[len(columns) :] not in seen)
    return [dict(zip(values, row, strict=False)) for row in rows]


def kind_of(kind: TypeEngine[Any], dialect: str = "") -> Kind:
    """Return what a column of a type holds, as read from a database with this dialect."""
    if isinstance(kind, mysql.FLOAT) or (dialect == "postgresql" and isinstance(kind, REAL)):
        return Kind.SHORT_FLOAT
    if isinstance(kind, DateTime):
        return Kind.AWARE if kind.timezone else Kind.NAIVE
    if isinstance(kind, Date):
        return Kind.DATE
    if isinstance(kind, Integer):
        return Kind.INTEGER
    if isinstance(kind, (Numeric, Float)):
        return Kind.FLOAT
    return Kind.TEXT if isinstance(kind, String) else Kind.OTHER


def note_of(name: str, kind: TypeEngine[Any]) -> str:
    """Return a warning about a column's type for the user; empty for most types."""
    if isinstance(kind, MYSQL_TIMESTAMP):
        return (
            f"{name} is a TIMESTAMP, which each session reads in its own time zone, and which "
            "ends in 2038: set the application's sessions to UTC"
        )
    return ""


def index_for(
    table: str, field: str, dialect: str, schema: str | None = None, *, method: str = ""
) -> str:
    """Return the statement for an index on one column of a table.

    Args:
        table: The table's name, which begins with the schema if there is one.
        field: The column.
        dialect: The name of the database's dialect.
        schema: The table's schema.
        method: PostgreSQL's access method if it isn't the default one.
    """
    quote = registry.load(dialect)().identifier_preparer.quote
    own_name = table if schema is None else table[len(schema) + 1 :]
    index = quote(f"ix_{own_name}_{field}"[:60])
    where = ".".join(quote(name) for name in (schema, own_name) if name)
    how = "INDEX CONCURRENTLY" if dialect == "postgresql" else "INDEX"
    using = f"USING {method} " if method else ""
    return f"CREATE {how} {index} ON {where} {using}({quote(field)})"

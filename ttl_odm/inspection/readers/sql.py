"""Evidence from a SQL database: columns, indexes, rows, a sample. It only reads.

Every statement runs in a transaction that the database itself holds to reading (SQLite: a
connection), with a time limit, and waits for no lock of anybody's. Estimates come from the
catalogue; of a table that is not small only a few hundred rows are read, by its primary key.
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
from ttl_odm.sqlalchemy.purge.statements import count_rows
from ttl_odm.sqlalchemy.sweep.counts import estimate
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from sqlalchemy import ColumnElement, Connection, Select
    from sqlalchemy.engine import Inspector
    from sqlalchemy.types import TypeEngine

    from ttl_odm.core.policy import Policy

SAMPLE: Final = 500
"""Rows from the beginning of a table, and as many from its end."""

SECONDS: Final = 10
"""What a statement may take."""

_OURS: Final = ("ttl_odm_lease", "alembic_version")
_DATES: Final = (Kind.AWARE, Kind.NAIVE, Kind.DATE)


@contextmanager
def reading_only(connection: Connection, seconds: int | None = SECONDS) -> Iterator[None]:
    """Let the database refuse every write and limit each statement's seconds; then roll back.

    The connection is not fit for anything else afterwards: take one that no pool gets back.
    """
    limit = seconds or 0  # no limit, for all of them
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
    """Return the database's present instant."""
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
    """Return the columns of the schema's tables that have foreign keys to each of them."""
    references: dict[str, list[str]] = {}
    inspector = inspect(connection)
    for name in names:
        # One that can't be read is named when it is read for itself.
        with suppress(DBAPIError), connection.begin_nested():
            for key in inspector.get_foreign_keys(name, schema):
                if key["referred_schema"] == schema:
                    columns = ", ".join(key["constrained_columns"])
                    references.setdefault(key["referred_table"], []).append(f"{name}.{columns}")
    return references


def _django_labels(connection: Connection, schema: str | None) -> Mapping[str, str]:
    """Return the labels of Django's models by their tables, where Django has made these."""
    kinds = SQLTable(
        "django_content_type", MetaData(), Column("app_label"), Column("model"), schema=schema
    )
    if not inspect(connection).has_table(kinds.name, schema):
        return {}
    labels = {"django_session": "sessions.session", "django_admin_log": "admin.logentry"}
    with suppress(DBAPIError), connection.begin_nested():  # a user may not be allowed to read it
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
        # Without types: values as the driver gives them, whatever is stored.
        columns = dict.fromkeys([*self._columns, *self._keys])
        # And without the policy that the application has for it, if that is known here.
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
        """How many there are, and whether that is an estimate."""
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
        """The lowest and the highest value, of all rows or else of the sample."""
        if values and all_rows:
            column = self._finite(name)
            ends = self._connection.execute(select(func.min(column), func.max(column))).one()
            return self._as_date(name, ends[0]), self._as_date(name, ends[1])
        known: list[Any] = [value for value in values if value is not None]
        try:
            return min(known, default=None), max(known, default=None)
        except TypeError:  # SQLite stores any type in any column
            return None, None

    def _as_date(self, name: str, value: object) -> object:
        """What SQLite has as text as the date that it is declared to be, and instants in UTC."""
        if isinstance(value, datetime) and value.tzinfo is not None:
            with suppress(OverflowError):  # within a day of the year 10,000
                return value.astimezone(timezone.utc)
        kind = kind_of(self._columns[name]["type"])
        if isinstance(value, str) and kind in _DATES:
            reads = date.fromisoformat if kind is Kind.DATE else datetime.fromisoformat
            with suppress(ValueError):
                return reads(value)
        return value


def numbers_of(
    connection: Connection, table: SQLTable, names: Sequence[str]
) -> dict[str, list[object]]:
    """Return the values of columns in the first and the last rows by key, as they are stored."""
    bare, keys = _bare(table, names)
    rows = _first_and_last(connection, {name: bare.c[name] for name in names}, keys)
    return {name: [row[name] for row in rows] for name in names}


def texts_of(
    connection: Connection,
    table: SQLTable,
    name: str,
    is_read: Callable[[ColumnElement[Any]], ColumnElement[Any] | None],
) -> list[tuple[object, bool]]:
    """Return the values of a column in the same rows, each with whether it is read; not NULL.

    Nothing of a column for which `is_read` has no expression.
    """
    bare, keys = _bare(table, [name])
    read = is_read(bare.c[name])
    if read is None:
        return []
    rows = _first_and_last(connection, {"value": bare.c[name], "read": read}, keys)
    return [(row["value"], bool(row["read"])) for row in rows if row["value"] is not None]


def _bare(table: SQLTable, names: Sequence[str]) -> tuple[SQLTable, list[Column[Any]]]:
    """Return a second Table, without types and without the policy, and the columns of its key."""
    keys = [str(column.name) for column in table.primary_key]
    columns: list[Column[Any]] = [Column(name) for name in dict.fromkeys([*names, *keys])]
    bare = SQLTable(table.name, MetaData(), *columns, schema=table.schema, info={"ttl_odm": None})
    return bare, [bare.c[key] for key in keys]


def _first_and_last(
    connection: Connection,
    values: Mapping[str, ColumnElement[Any]],
    keys: Sequence[ColumnElement[Any]],
) -> list[dict[str, object]]:
    """Return values of the first rows, and of the last by a key if there is one."""
    # Numbered, since a name may be anything, and be a key's too.
    columns = [value.label(f"value{place}") for place, value in enumerate(values.values())]
    key_columns = [key.label(f"key{place}") for place, key in enumerate(keys)]
    first = select(*columns, *key_columns).limit(SAMPLE)

    def read(statement: Select[Any]) -> list[tuple[Any, ...]]:
        # Its Table is used once: its statements would only fill the engine's cache.
        result = connection.execute(statement, execution_options={"compiled_cache": None})
        return [tuple(row) for row in result]

    rows = read(first)
    if keys and len(rows) == SAMPLE:
        met = {row[len(columns) :] for row in rows}
        last = first.order_by(*(key.desc() for key in keys))
        rows += (row for row in read(last) if row[len(columns) :] not in met)
    return [dict(zip(values, row, strict=False)) for row in rows]


def kind_of(kind: TypeEngine[Any], dialect: str = "") -> Kind:
    """Return what a column of a type holds, as it was read of a database with this dialect."""
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
    """Say what has to be known of a type before it is used; nothing of most."""
    if isinstance(kind, MYSQL_TIMESTAMP):
        return (
            f"{name} is a TIMESTAMP, which each session reads in its own time zone, and which "
            "ends in 2038: set the application's sessions to UTC"
        )
    return ""


def index_for(
    table: str, field: str, dialect: str, schema: str | None = None, *, method: str = ""
) -> str:
    """The statement for an index on one column of a table, whose name begins with its schema.

    By a `method` of PostgreSQL's if that isn't the usual one.
    """
    quote = registry.load(dialect)().identifier_preparer.quote
    own_name = table if schema is None else table[len(schema) + 1 :]
    index = quote(f"ix_{own_name}_{field}"[:60])
    where = ".".join(quote(name) for name in (schema, own_name) if name)
    how = "INDEX CONCURRENTLY" if dialect == "postgresql" else "INDEX"
    using = f"USING {method} " if method else ""
    return f"CREATE {how} {index} ON {where} {using}({quote(field)})"

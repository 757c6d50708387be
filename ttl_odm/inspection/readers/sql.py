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
    Date,
    DateTime,
    Float,
    Integer,
    Numeric,
    String,
    case,
    column,
    func,
    inspect,
    literal_column,
    select,
    text,
)
from sqlalchemy import table as bare_table
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.mysql import TIMESTAMP as MYSQL_TIMESTAMP
from sqlalchemy.exc import DBAPIError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.inspection.evidence import SMALL, Field, Kind, Table
from ttl_odm.inspection.names import is_telling
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from sqlalchemy import Connection, Select, TableClause
    from sqlalchemy.engine import Inspector
    from sqlalchemy.types import TypeEngine

SAMPLE: Final = 500
"""Rows from the beginning of a table, and as many from its end."""

SECONDS: Final = 10
"""What a statement may take."""

_OURS: Final = ("ttl_odm_lease", "alembic_version")


@contextmanager
def reading_only(connection: Connection, seconds: int | None = SECONDS) -> Iterator[None]:
    """Let the database refuse every write, limit each statement's time, and roll back at the end.

    Args:
        connection: It is no good for anything else afterwards: take one that no pool gets back.
        seconds: What a statement may take; None for any number.
    """
    limit = seconds or 0  # no limit, for all of them
    dialect = connection.dialect.name
    if dialect == "sqlite":
        connection.exec_driver_sql("PRAGMA query_only = ON")
    elif dialect == "postgresql":
        connection.exec_driver_sql("SET TRANSACTION READ ONLY")
        connection.exec_driver_sql(f"SET LOCAL statement_timeout = '{limit}s'")
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")
    else:
        is_mariadb = getattr(connection.dialect, "is_mariadb", False)
        time = f"max_statement_time = {limit}"
        if not is_mariadb:
            time = f"max_execution_time = {limit * 1000}"
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
    models: Mapping[str, str | None] | None = None,
) -> Iterator[Table]:
    """Read all tables of a schema, one after the other.

    Args:
        connection: One within `reading_only`.
        schema: Which; None for the connection's own.
        models: Names of tables to look at, and of the classes that are mapped to them; None for
            all tables.
    """
    inspector = inspect(connection)
    for name in sorted(inspector.get_table_names(schema)):
        full = name if schema is None else f"{schema}.{name}"
        if name in _OURS or (models is not None and full not in models):
            continue
        try:
            with connection.begin_nested():
                found = _Look(connection, inspector, name, schema).table(full)
        except DBAPIError as error:
            found = Table(full, problem=f"can't be read: {_in_one_line(error)}")
        if models is not None:
            found = replace(found, model=models[full])
        yield found


class _Look:
    """A look at one table."""

    def __init__(
        self, connection: Connection, inspector: Inspector, name: str, schema: str | None
    ) -> None:
        self._connection = connection
        self._inspector = inspector
        self._name = name
        self._schema = schema

    def table(self, full: str) -> Table:
        columns = [
            (each, kind)
            for each in self._inspector.get_columns(self._name, self._schema)
            if (kind := kind_of(each["type"])) in _DATES or _tells(each["name"], kind)
        ]
        rows, is_estimated = self._rows()
        names = [each["name"] for each, _ in columns]
        sample = self._sample(names, rows) if names and rows else []
        kinds = {each["name"]: kind for each, kind in columns}
        sample = [{name: _as_date(row[name], kinds[name]) for name in row} for row in sample]
        indexed = self._indexed()
        fields = []
        for each, kind in columns:
            name = each["name"]
            found = Field(
                name,
                kind,
                is_nullable=each["nullable"],
                is_indexed=name in indexed,
                note=note_of(name, each["type"]),
            )
            fields.append(self._with_ends(found, [row[name] for row in sample], rows))
        return Table(full, fields, sample, rows, is_estimated, schema=self._schema)

    def _lean(self, names: Collection[str]) -> TableClause:
        # Without types: values as the driver gives them, whatever is stored.
        return bare_table(self._name, *map(column, names), schema=self._schema)

    def _rows(self) -> tuple[int | None, bool]:
        estimate = self._estimate()
        if estimate is not None and estimate > SMALL:
            return estimate, True
        some: Select[Any] = select(literal_column("1")).select_from(self._lean(())).limit(SMALL + 1)
        counted = select(func.count()).select_from(some.subquery())
        rows = int(self._connection.execute(counted).scalar_one())
        if rows <= SMALL:
            return rows, False
        if self._connection.dialect.name == "sqlite":
            highest: Select[Any] = select(func.max(literal_column("_rowid_"))).select_from(
                self._lean(())
            )
            try:
                return int(self._connection.execute(highest).scalar_one()), True
            except DBAPIError:  # WITHOUT ROWID
                return rows, True
        return max(rows, estimate or 0), True

    def _estimate(self) -> int | None:
        dialect = self._connection.dialect.name
        if dialect == "postgresql":
            quote = self._connection.dialect.identifier_preparer.quote
            relation = ".".join(quote(each) for each in (self._schema, self._name) if each)
            asked = text(
                # ANALYZE gives a partitioned table the rows of its leaves once more.
                "SELECT sum(greatest(c.reltuples, 0))::bigint FROM pg_class c WHERE "
                "c.relkind <> 'p' AND (c.oid = CAST(:relation AS text)::regclass OR c.oid IN "
                "(SELECT relid FROM pg_partition_tree(CAST(:relation AS text)::regclass)))"
            )
            return self._connection.execute(asked, {"relation": relation}).scalar()
        if dialect in MYSQL_FAMILY:
            asked = text(
                "SELECT table_rows FROM information_schema.tables "
                "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :name"
            )
            told = {"schema": self._schema, "name": self._name}
            return self._connection.execute(asked, told).scalar()
        return None

    def _sample(self, names: list[str], rows: int | None) -> list[dict[str, object]]:
        lean = self._lean(names)
        chosen = [self._finite(each).label(each.name) for each in lean.c]
        first = select(*chosen).limit(SAMPLE)
        found = [dict(row) for row in self._connection.execute(first).mappings()]
        keys = self._inspector.get_pk_constraint(self._name, self._schema)["constrained_columns"]
        if keys and (rows is None or rows > SAMPLE):
            last = first.order_by(*(column(key).desc() for key in keys))
            found += [dict(row) for row in self._connection.execute(last).mappings()]
        return found

    def _finite(self, each: Any) -> Any:
        if self._connection.dialect.name != "postgresql":
            return each
        types = {
            found["name"]: found["type"]
            for found in self._inspector.get_columns(self._name, self._schema)
        }
        if not isinstance(types[each.name], (DateTime, Date)):
            return each
        return case((func.isfinite(each), each))  # psycopg can't read infinity

    def _indexed(self) -> set[str]:
        with warnings.catch_warnings():  # SQLAlchemy warns of indexes over expressions
            warnings.simplefilter("ignore")
            indexes = self._inspector.get_indexes(self._name, self._schema)
        whole: list[Any] = [
            each["column_names"]
            for each in indexes
            if not any(
                key.endswith("_where") and value is not None  # on SQLite an expression
                for key, value in each.get("dialect_options", {}).items()
            )
        ]
        keys = self._inspector.get_pk_constraint(self._name, self._schema)["constrained_columns"]
        return {columns[0] for columns in [*whole, keys] if columns and columns[0] is not None}

    def _with_ends(self, field: Field, values: list[object], rows: int | None) -> Field:
        if not values:
            return field
        low: object
        high: object
        if field.is_indexed or (rows is not None and rows <= SMALL):
            each = self._finite(self._lean([field.name]).c[field.name])
            ends = select(func.min(each), func.max(each))
            low, high = (_as_date(end, field.kind) for end in self._connection.execute(ends).one())
        else:
            known: list[Any] = [value for value in values if value is not None]
            try:
                low, high = min(known, default=None), max(known, default=None)
            except TypeError:  # SQLite stores any type in any column
                low = high = None
        return replace(field, lowest=low, highest=high)


_DATES: Final = (Kind.AWARE, Kind.NAIVE, Kind.DATE)


def kind_of(kind: TypeEngine[Any]) -> Kind:
    """Return what a column of a type holds."""
    if isinstance(kind, DateTime):
        return Kind.AWARE if kind.timezone else Kind.NAIVE
    if isinstance(kind, Date):
        return Kind.DATE
    if isinstance(kind, Integer):
        return Kind.INTEGER
    if isinstance(kind, (Numeric, Float)):
        return Kind.FLOAT
    return Kind.TEXT if isinstance(kind, String) else Kind.OTHER


def _as_date(value: object, kind: Kind) -> object:
    """Return what SQLite has as text as the date that it is declared to be, and instants in UTC."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        with suppress(OverflowError):  # within a day of the year 10,000
            return value.astimezone(timezone.utc)
    if not isinstance(value, str) or kind not in _DATES:
        return value
    reads = date.fromisoformat if kind is Kind.DATE else datetime.fromisoformat
    try:
        return reads(value)
    except ValueError:
        return value


def _tells(name: str, kind: Kind) -> bool:
    return kind is not Kind.OTHER and (is_telling(name) or name in ("_ts", "ttl"))


def note_of(name: str, kind: TypeEngine[Any]) -> str:
    """Say what has to be known of a type before it is used; nothing of most."""
    if isinstance(kind, MYSQL_TIMESTAMP):
        return (
            f"{name} is a TIMESTAMP, which each session reads in its own time zone, and which "
            "ends in 2038: let the application's sessions be in UTC"
        )
    return ""


def index_for(table: str, field: str, dialect: str, schema: str | None = None) -> str:
    """Return the statement that makes an index on one column.

    Args:
        table: Its name, with its schema if that is not the connection's own.
        field: The column.
        dialect: SQLAlchemy's name for the database.
        schema: The schema that the name begins with, if it does.
    """
    quote = registry.load(dialect)().identifier_preparer.quote
    own_name = table if schema is None else table[len(schema) + 1 :]
    name = quote(f"ix_{own_name}_{field}"[:60])
    where = ".".join(quote(each) for each in (schema, own_name) if each)
    how = "INDEX CONCURRENTLY" if dialect == "postgresql" else "INDEX"
    return f"CREATE {how} {name} ON {where} ({quote(field)})"


def _in_one_line(error: DBAPIError) -> str:
    return " ".join(str(error.orig).split())

"""What has expired and was not purged yet: which part of a table's rows, for how long, how many.

One statement reads the first entry of each index; a sweep that finds nothing to do has then done
all that it does. A table that has to be walked isn't asked: that would be a walk by itself. Only
a dry run or a fuse wants the rows counted.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from sqlalchemy import (
    BigInteger,
    String,
    and_,
    column,
    func,
    inspect,
    literal,
    literal_column,
    not_,
    or_,
    select,
    text,
)
from sqlalchemy import table as bare_table

from ttl_odm.core.values import NEVER
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.purge.removal import expired_in
from ttl_odm.sqlalchemy.sweep.foreign_keys import name_of
from ttl_odm.sqlalchemy.sweep.index_windows import PartIndex, finite_defaults
from ttl_odm.sqlalchemy.sweep.table_walk import regclass
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Counted, Due, Part

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from sqlalchemy import Column, ColumnElement, Connection, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.sqlalchemy.policy.binding import Binding
    from ttl_odm.sqlalchemy.time.clock import Clock

_indexed: WeakKeyDictionary[Table, WeakKeyDictionary[Dialect, set[str]]] = WeakKeyDictionary()
"""The columns of dates on which an index was seen, and where."""

_SQLITE_FIRST_COLUMNS: Final = text(
    "SELECT first.name FROM pragma_index_list(:name, :schema) AS every,"
    " pragma_index_info(every.name, :schema) AS first"
    " WHERE first.seqno = 0 AND first.name IS NOT NULL AND NOT every.partial"
)

_FEW: Final = 100_000
"""Rows below which an estimate is made sure of by counting."""

_LOOK: Final = 10
"""Times as many rows as are due are looked for, so that shares of a tenth and more are exact."""


def find_due(connection: Connection, binding: Binding) -> Due | None:
    """Find out what there is to purge; see `ttl_odm.sweeper.Store.due`."""
    if all(default() is None for default in binding.defaults()):
        return None
    if not _is_indexed(connection, binding):
        has_ends = binding.override is not None or binding.max_lifetime is not None
        can_expire = has_ends or finite_defaults(binding)
        return Due((Part.ALL,), None) if can_expire else Due((), 0.0)
    clock = clock_of(connection.dialect)
    questions = list(_questions(binding, clock))
    if not questions:
        return Due((), 0.0)
    overdue = select(*(question.scalar_subquery() for _, question in questions))
    with prepared(connection), reading(connection):
        answers = connection.execute(overdue.options(include_expired())).one()
    found = [
        (part, seconds_of(answer, clock))
        for (part, _), answer in zip(questions, answers, strict=True)
        if answer is not None
    ]
    parts = dict.fromkeys(part for part, _ in found)
    return Due(tuple(parts), max((seconds for _, seconds in found), default=0.0))


def _is_indexed(connection: Connection, binding: Binding) -> bool:
    """Whether indexes lead to all of the expired rows.

    Ours are taken to be there. Where the sweeper goes by a column of the application's, it is the
    application's index, if there is one: the database is asked, until it has one.
    """
    if binding.sweep != "index":
        return False
    columns = [binding.last_modified] if binding.sweeps_by_column else []
    columns += [] if binding.max_lifetime is None else [binding.max_lifetime.created]
    return all(_is_index_on(connection, column) for column in columns)


def _is_index_on(connection: Connection, column: Column[Any]) -> bool:
    table: Table = column.table
    places = _indexed.setdefault(table, WeakKeyDictionary())
    seen = places.setdefault(connection.dialect, set())
    if column.name not in seen:
        with prepared(connection), reading(connection):
            seen |= _first_columns(connection, table) & {column.name}
    return column.name in seen


def _first_columns(connection: Connection, table: Table) -> set[str]:
    """The columns that an index of a table begins with."""
    schemas = connection.get_execution_options().get("schema_translate_map") or {}
    schema = schemas.get(table.schema, table.schema)
    inspector = inspect(connection)
    key = inspector.get_pk_constraint(table.name, schema)["constrained_columns"]
    if connection.dialect.name == "sqlite":  # its inspector warns of indexes over expressions
        asked = {"name": table.name, "schema": schema or "main"}
        return {*key[:1], *connection.scalars(_SQLITE_FIRST_COLUMNS, asked)}
    unique = inspector.get_unique_constraints(table.name, schema)
    indexes: list[Any] = [
        each["column_names"]
        for each in inspector.get_indexes(table.name, schema)
        # A partial index may lack the rows.
        if not any(name.endswith("_where") for name in each.get("dialect_options", ()))
    ]
    every: list[Any] = [key, *(each["column_names"] for each in unique), *indexes]
    return {str(columns[0]) for columns in every if columns}


def count(connection: Connection, binding: Binding) -> Counted:
    """Count what there is to purge; see `ttl_odm.sweeper.Counting`."""
    with prepared(connection), reading(connection):
        if all(default() is None for default in binding.defaults()):
            due = 0
        elif (
            binding.sweep == "scan" or binding.sweeps_by_column or binding.max_lifetime is not None
        ):
            # A row whose limit has passed may be in another part as well.
            due = count_rows(connection, binding.table, expired_in(connection, binding))
        else:
            due = sum(
                _count_part(connection, binding, part) for part in (Part.INHERITING, Part.OWN)
            )
        rows = estimate(connection, binding.table)
        if rows is None or rows < _FEW:
            return Counted(due, count_rows(connection, binding.table))
        # What a database believes may be from before a big sweep, and a fuse would take a part
        # for the whole. A look at a few times as many rows as are due finds that out.
        found = count_up_to(connection, binding.table, _LOOK * due)
        if found < _LOOK * due:
            return Counted(due, found)
        return Counted(due, max(rows, found), is_estimated=True)


def now(connection: Connection) -> datetime:
    """The database's present instant."""
    clock = clock_of(connection.dialect)
    told = connection.execute(select(clock.literal(clock.now_at_write))).scalar_one()
    return clock.from_storage(told)


def _count_part(connection: Connection, binding: Binding, part: Part) -> int:
    """Count by the index of a part alone."""
    index = PartIndex(binding, part, clock_of(connection.dialect))
    table, seconds = index.table, index.shortest
    if seconds is None:
        return 0
    return count_rows(
        connection,
        table,
        index.holds(table),
        index.past(table, seconds),
        index.expired(table, writing=False),
    )


def count_up_to(connection: Connection, table: Table, most: int) -> int:
    """Count the rows of a table up to a number."""
    if not most:
        return 0
    some: Select[Any] = select(literal_column("1")).select_from(table).limit(most)
    counted = select(func.count()).select_from(some.options(include_expired()).subquery())
    return int(connection.execute(counted).scalar_one())


def count_rows(connection: Connection, table: Table, *criteria: ColumnElement[bool]) -> int:
    """Count the rows of a table, expired ones too, that meet all criteria."""
    counted = select(func.count()).select_from(table).where(*criteria)
    return int(connection.execute(counted.options(include_expired())).scalar_one())


def estimate(connection: Connection, table: Table) -> int | None:
    """How many rows the database believes a table to have; None where it keeps no such number."""
    dialect = connection.dialect.name
    if dialect == "postgresql":
        tree = func.pg_partition_tree(regclass(connection, table)).table_valued("relid", "isleaf")
        catalog = bare_table(
            "pg_class", column("oid"), column("reltuples"), column("relkind"), schema="pg_catalog"
        )
        # ANALYZE gives a partitioned table the rows of its leaves once more.
        is_whole = and_(catalog.c.oid == regclass(connection, table), catalog.c.relkind != "p")
        leaves = select(tree.c.relid).where(tree.c.isleaf)
        rows = func.sum(func.greatest(catalog.c.reltuples, 0), type_=BigInteger())
        found = select(rows).where(or_(is_whole, catalog.c.oid.in_(leaves)))
    elif dialect in MYSQL_FAMILY:
        schema, name = name_of(connection, table)
        tables = bare_table(
            "tables",
            column("table_schema", String()),
            column("table_name", String()),
            column("table_rows", BigInteger()),
            schema="information_schema",
        )
        found = select(tables.c.table_rows).where(
            tables.c.table_schema == (func.database() if schema is None else literal(schema)),
            tables.c.table_name == name,
        )
    else:
        return None
    told = connection.execute(found).scalar_one_or_none()
    return None if told is None else int(told)


def _questions(binding: Binding, clock: Clock) -> Iterator[tuple[Part, Select[Any]]]:
    """For how long the first row has been expired, for every life that rows may have."""
    for seconds, rows in _inherited_lives(binding):
        yield Part.INHERITING, _overdue(PartIndex(binding, Part.INHERITING, clock), seconds, rows)
    if binding.override is not None:
        yield Part.OWN, _overdue(PartIndex(binding, Part.OWN, clock), 0, [])
    if binding.max_lifetime is not None:
        index = PartIndex(binding, Part.CAPPED, clock)
        yield Part.CAPPED, _overdue(index, binding.max_lifetime.seconds, [])


def _overdue(index: PartIndex, seconds: int, rows: list[ColumnElement[bool]]) -> Select[Any]:
    table = index.table
    return (
        select(index.overdue(table, seconds))
        .where(index.holds(table), index.past(table, seconds), *rows)
        .where(index.expired(table, writing=False))
        .order_by(index.end(table))
        .limit(1)
    )


def _inherited_lives(binding: Binding) -> Iterator[tuple[int, list[ColumnElement[bool]]]]:
    """Each default that lets rows expire, with the condition for the rows that inherit it."""
    kind = binding.discriminator
    variants = [] if kind is None else [each for each in binding.variants if each.identities]
    of_variants = [
        or_(*(kind == identity for identity in variant.identities)) for variant in variants
    ]
    others = [or_(kind.is_(None), not_(or_(*of_variants)))] if variants and kind is not None else []
    lives = [(binding.default, others)]
    lives += [
        (variant.default, [rows]) for variant, rows in zip(variants, of_variants, strict=True)
    ]
    for default, rows in lives:
        seconds = default()
        if seconds is not None and seconds != NEVER:
            yield seconds, rows


def seconds_of(overdue: Any, clock: Clock) -> float:
    """The seconds of a difference between two instants, as the database tells it."""
    if isinstance(overdue, timedelta):
        return overdue.total_seconds()
    return float(overdue / (clock.per_second or 1))

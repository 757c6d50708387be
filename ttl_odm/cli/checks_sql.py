"""What `ttl-odm check` looks at in a SQL database. It only reads.

Cheap questions to the catalogue and to the sweeper's indexes are always asked; what has to read a
whole table only if the table is small or the user says ``--deep``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import TIMESTAMP, Integer, column, func, inspect, select, text, type_coerce, update
from sqlalchemy import table as bare_table
from sqlalchemy.dialects import registry
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex

from ttl_odm.cli.errors import in_one_line
from ttl_odm.cli.findings import AHEAD, Finding, Severity, fix_of_unreadable
from ttl_odm.core.policy import ExpireAt
from ttl_odm.core.values import NEVER
from ttl_odm.dialects import MYSQL_FAMILY, index_name
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.inspection.evidence import SMALL, Kind
from ttl_odm.inspection.readers.sql import SECONDS, index_for, kind_of, reading_only
from ttl_odm.sqlalchemy.policy.binding import binding_of
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.schema import AddSweepColumns, sweep_indexes
from ttl_odm.sqlalchemy.sweep.due import PartIndex
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys, name_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.column_types import Seconds
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Select, Table
    from sqlalchemy.types import TypeEngine

    from ttl_odm.cli.application import Target
    from ttl_odm.sqlalchemy.policy.binding import Binding

_MOST: Final = 1_000
"""Rows up to which those that are wrong are counted."""

_MIGRATE: Final = "alembic revision --autogenerate -m ttl  (with import ttl_odm.alembic in env.py)"


class Index(NamedTuple):
    """An index as the database has it.

    The first column is None where that is an expression, or where rows are left out; the definition
    is the statement that makes it, empty where the database has none.
    """

    first: str | None
    is_valid: bool
    definition: str


def check(connection: Connection, targets: Sequence[Target], *, deep: bool) -> list[Finding]:
    """Look at all targets; if deep, read whole tables, however big.

    The connection is thrown away afterwards: it has been made one that can only read.
    """
    findings: list[Finding] = []
    with reading_only(connection, None if deep else SECONDS):
        for target in targets:
            binding = binding_of(target.entity)
            if binding is not None:
                findings += _Check(connection, target.name, binding, deep=deep).findings()
    connection.invalidate()
    return findings


class _Check:
    """The checks of one table."""

    def __init__(self, connection: Connection, name: str, binding: Binding, *, deep: bool) -> None:
        self._connection = connection
        self._dialect = connection.dialect
        self._is_mysql = self._dialect.name in MYSQL_FAMILY
        self._name = name
        self._binding = binding
        self._table: Table = binding.table
        self._place = name_of(connection, self._table)
        self._deep = deep

    def findings(self) -> Iterator[Finding]:
        """Give what is not as it should be."""
        schema, name = self._place
        inspector = inspect(self._connection)
        if not inspector.has_table(name, schema):
            yield self._error("missing-table", "the table is not in the database", _MIGRATE)
            return
        stored = {
            reflected["name"]: reflected["type"]
            for reflected in inspector.get_columns(name, schema)
        }
        binding = self._binding
        created = None if binding.max_lifetime is None else binding.max_lifetime.created
        columns = (binding.last_modified, binding.override, created)
        needed = {declared.name: declared for declared in columns if declared is not None}
        missing = [name for name in needed if name not in stored]
        if missing:
            yield self._error(
                "missing-column", f"column {' and '.join(missing)} is not in the database", _MIGRATE
            )
            return
        for declared in needed.values():
            yield from self._type(declared, stored[declared.name])
        for look in (self._indexes, self._keys, self._values, self._future):
            try:
                with self._connection.begin_nested():
                    findings = list(look())
            except DBAPIError as error:
                what, why = look.__name__.strip("_"), in_one_line(error)
                fix = fix_of_unreadable(why, self._quoted, self._deeper)
                yield self._skipped("unreadable", f"{what} can't be checked: {why}", fix)
            else:
                yield from findings

    @property
    def _quoted(self) -> str:
        return self._dialect.identifier_preparer.format_table(self._table)

    @property
    def _deeper(self) -> str:
        return f"ttl-odm check --deep --model {self._name}"

    def _type(self, column: Column[Any], stored: TypeEngine[Any]) -> Iterator[Finding]:
        """See that a column holds what it is declared to hold: instants are read by that."""
        if self._dialect.name == "sqlite":
            return  # which stores any type in any column
        declared = kept_type(column.type, clock_of(self._dialect).family)
        if self._held(declared) != self._held(stored):
            yield self._error(
                "wrong-type",
                f"column {column.name} is {stored.compile(self._dialect)}, and is declared as "
                f"{declared.compile(self._dialect)}: its values are misread",
                f"declare {column.name} as it is, or: {_MIGRATE}",
            )

    def _held(self, kind: TypeEngine[Any]) -> tuple[Kind, bool]:
        """What a column's type holds, as far as it decides how instants are read."""
        held = kind_of(kind)
        if held is Kind.AWARE and self._is_mysql:  # which knows no others
            held = Kind.NAIVE
        return held, self._is_mysql and isinstance(kind, TIMESTAMP)

    def _indexes(self) -> Iterator[Finding]:
        binding = self._binding
        if binding.sweep != "index":
            return
        indexes = self._stored_indexes()
        by_column = [binding.last_modified.name] if binding.sweeps_by_column else []
        by_column += [] if binding.max_lifetime is None else [binding.max_lifetime.created.name]
        for name in by_column:
            if not any(index.first == name for index in indexes.values()):
                yield self._warning(
                    "missing-index",
                    f"no index begins with {name}, so each sweep reads the whole table",
                    index_for(self._table.fullname, name, self._dialect.name, self._table.schema),
                )
        if binding.sweeps_by_column:
            return
        quote = self._dialect.identifier_preparer.quote
        how = "INDEX CONCURRENTLY" if self._dialect.name == "postgresql" else "INDEX"
        where = f" ON {self._quoted}" * self._is_mysql
        for suffix in ("ttl_inherited", "ttl_own"):
            name = index_name(self._table.name, suffix)
            removal = f"DROP {how} {quote(name)}{where}"
            index = indexes.get(name)
            if index is None:
                yield self._error(
                    "missing-index",
                    f"index {name} is not there, and the sweeper searches by it",
                    self._creation(name),
                )
            elif not index.is_valid:
                yield self._error(
                    "invalid-index",
                    f"index {name} is INVALID: a CREATE INDEX CONCURRENTLY has failed",
                    f"{removal}; {self._creation(name)}",
                )
            elif not self._is_as_declared(index, suffix):
                yield self._error(
                    "wrong-index",
                    f"index {name} is another one than the sweeper searches by: "
                    f"{index.definition or index.first}",
                    f"{removal}; {self._creation(name)}",
                )

    def _stored_indexes(self) -> dict[str, Index]:
        """The indexes of the table as the database's catalogue has them, by their names."""
        schema, name = self._place
        parameters = {"schema": schema, "table": name}
        quote = self._dialect.identifier_preparer.quote
        if self._dialect.name == "postgresql":
            parameters["relation"] = ".".join(quote(part) for part in (schema, name) if part)
            query = _POSTGRESQL_INDEXES
        elif self._is_mysql:
            query = _MYSQL_INDEXES
        else:
            parameters["schema"] = schema or "main"
            query = _SQLITE_INDEXES.format(master=f"{quote(schema or 'main')}.sqlite_master")
        rows = self._connection.execute(text(query), parameters)
        return {name: Index(*others) for name, *others in rows}

    def _is_as_declared(self, index: Index, suffix: str) -> bool:
        """Whether an index that is called like one of ours is over the right rows, in order."""
        own = suffix == "ttl_own"
        if self._is_mysql:
            return index.first == (OWN_END if own else INHERITED_END)
        assert self._binding.override is not None  # noqa: S101 (without one there are none)
        definition = index.definition.lower().translate({ord(mark): None for mark in '() "'})
        ttl = self._binding.override.name.lower()
        stamp = self._binding.last_modified.name.lower()
        _, _, rows = definition.rpartition("where")
        return rows == (f"{ttl}>0" if own else f"{ttl}isnull") and stamp in definition

    def _creation(self, name: str) -> str:
        if self._is_mysql:
            override = self._binding.override
            assert override is not None  # noqa: S101 (without one there are no such indexes)
            ddl = AddSweepColumns(self._table, self._binding.last_modified, override)
            schema, table = self._place
            columns = inspect(self._connection).get_columns(table, schema)
            if INHERITED_END not in {reflected["name"] for reflected in columns}:
                return str(ddl.compile(dialect=self._dialect))
            clause = sweep_indexes(ddl, self._dialect.identifier_preparer)[name]
            return f"ALTER TABLE {self._quoted} {clause}"
        index = next(index for index in self._table.indexes if index.name == name)
        statement = " ".join(str(CreateIndex(index).compile(dialect=self._dialect)).split())
        if self._dialect.name == "postgresql":
            statement = statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)
        return statement

    def _keys(self) -> Iterator[Finding]:
        for key in ReferringKeys().of(self._connection, self._place):
            if not key.has_index:
                yield self._error(
                    "missing-fk-index",
                    f"{key} refers to it and has no index, so the sweeper refuses: each row that "
                    "it deletes would read all of that table",
                    key.remedy(self._dialect),
                )
            if key.deletes in ("RESTRICT", "NO ACTION"):
                yield self._warning(
                    "restricting-key",
                    f"{key} refers to it without ON DELETE: its rows keep expired rows from being "
                    "deleted",
                    f'ForeignKey(..., ondelete="CASCADE") or "SET NULL" on {key}, by a migration',
                )

    def _values(self) -> Iterator[Finding]:
        own = self._binding.override
        if own is None:
            return
        valid = {NEVER, *self._binding.nevers}
        number = type_coerce(own, Integer())
        if self._is_mysql:
            # SQLAlchemy reflects no CHECK that stands at a column.
            create = self._connection.exec_driver_sql(f"SHOW CREATE TABLE {self._quoted}").one()[1]
            checked = [line.strip() for line in str(create).splitlines() if " CHECK (" in line]
            has_check = any(line.startswith(f"`{own.name}` ") for line in checked)
        else:
            schema, table = self._place
            checks = inspect(self._connection).get_check_constraints(table, schema)
            has_check = any(f"{own.name} " in f"{check['sqltext']} " for check in checks)
        if has_check:
            return
        if isinstance(own.type, Seconds):
            yield self._warning(
                "missing-check",
                f"there is no CHECK on {own.name}, so raw SQL can write what is no ttl",
                _MIGRATE,
            )
        if not self._is_readable():
            message = f"there is no CHECK on {own.name} and the table is big; --deep reads it all"
            yield self._skipped("ttl-values", message, self._deeper)
            return
        name = self._dialect.identifier_preparer.quote(own.name)
        kept = " AND ".join(f"{name} <> {value}" for value in sorted(valid) if value <= 0)
        criteria = (number <= 0, *(number != value for value in sorted(valid)))
        wrong = _up_to_most(self._number(self._some(_MOST, *criteria)))
        if wrong:
            yield self._error(
                "invalid-ttl",
                f"rows whose {own.name} is no ttl (0, -2), so that the default counts: {wrong}",
                f"UPDATE {self._quoted} SET {name} = NULL WHERE {name} <= 0 AND {kept}",  # noqa: S608 (shown)
            )

    def _future(self) -> Iterator[Finding]:
        binding = self._binding
        if isinstance(binding.policy, ExpireAt):
            return  # whose instants are meant to lie ahead
        clock, stamp = clock_of(self._dialect), binding.last_modified
        storage = binding.instants.on(clock)
        latest = clock.literal(f"({clock.now} + {AHEAD} * {clock.second})")
        rows = self._latest(storage.plain(stamp))
        if rows is None:
            message = f"{stamp.name} has no index and the table is big; --deep reads it all"
            yield self._skipped("future-rows", message, self._deeper)
            return
        ahead = _up_to_most(self._number(select(rows).where(storage.instant(rows.c[0]) > latest)))
        if ahead:
            yield self._warning(
                "future-rows",
                f"rows whose {stamp.name} is more than an hour from now, and which live that much "
                f"longer: {ahead}",
                self._set_back(latest),
            )

    def _latest(self, stamp: ColumnElement[Any]) -> Any:
        """The latest instants, a thousand, by an index; all of them where the table is small.

        None where that would read a big table.
        """
        binding = self._binding
        every = select(stamp.label("latest")).where(stamp.is_not(None))
        if binding.override is not None and binding.sweep == "index":
            index = PartIndex(binding, Part.INHERITING, clock_of(self._dialect))
            every = every.where(index.holds(binding.table))
            every = every.order_by(index.end(binding.table).desc()).limit(_MOST)
        elif any(
            index.first == binding.last_modified.name for index in self._stored_indexes().values()
        ):
            every = every.order_by(stamp.desc()).limit(_MOST)
        elif not self._is_readable():
            return None
        return every.options(include_expired()).subquery()

    def _set_back(self, latest: ColumnElement[Any]) -> str:
        """The statement that sets instants of the future to now."""
        clock, stamp = clock_of(self._dialect), self._binding.last_modified
        storage = self._binding.instants.on(clock)
        bare = bare_table(self._table.name, column(stamp.name), schema=self._table.schema)
        instant = bare.c[stamp.name]
        statement = (
            update(bare)
            .where(storage.instant(instant) > latest)
            .values({instant: storage.stored(clock.literal(clock.stamp))})
        )
        # Not by the driver's own dialect, which may double each % sign.
        plain = registry.load(self._dialect.name)(paramstyle="named")
        compiled = statement.compile(dialect=plain, compile_kwargs={"literal_binds": True})
        kind = kind_of(kept_type(stamp.type, clock.family))
        is_doubtful = kind is Kind.NAIVE and self._binding.policy.timezone == "UTC"
        zone = "declare timezone= if that is local time; or " * is_doubtful
        return f"{zone}{' '.join(str(compiled).split())}"

    def _is_readable(self) -> bool:
        return self._deep or self._number(self._some(SMALL + 1)) <= SMALL

    def _some(self, most: int, *criteria: ColumnElement[bool]) -> Select[Any]:
        return select(self._binding.last_modified).where(*criteria).limit(most)

    def _number(self, rows: Select[Any]) -> int:
        """Count rows, expired or not."""
        counted = select(func.count()).select_from(rows.options(include_expired()).subquery())
        return int(self._connection.execute(counted.options(include_expired())).scalar_one())

    def _error(self, code: str, message: str, fix: str) -> Finding:
        return Finding(Severity.ERROR, code, self._name, message, fix)

    def _warning(self, code: str, message: str, fix: str) -> Finding:
        return Finding(Severity.WARNING, code, self._name, message, fix)

    def _skipped(self, code: str, message: str, fix: str) -> Finding:
        return Finding(Severity.SKIPPED, code, self._name, message, fix)


def _up_to_most(rows: int) -> str:
    """A number of rows that were counted up to `_MOST`; empty for none."""
    return "" if rows == 0 else f"{_MOST:,} or more" if rows == _MOST else f"{rows:,}"


_POSTGRESQL_INDEXES: Final = """
SELECT c.relname, CASE WHEN i.indpred IS NULL THEN a.attname::text END, i.indisvalid,
  pg_get_indexdef(i.indexrelid)
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = CAST(:relation AS text)::regclass
"""
_MYSQL_INDEXES: Final = """
SELECT index_name, column_name, 1, '' FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND seq_in_index = 1
"""
_SQLITE_INDEXES: Final = """
SELECT l.name, CASE WHEN l.partial = 0 THEN i.name END, 1, COALESCE(m.sql, '')
FROM pragma_index_list(:table, :schema) AS l, pragma_index_info(l.name, :schema) AS i
LEFT JOIN {master} AS m ON m.type = 'index' AND m.name = l.name
WHERE i.seqno = 0
"""

"""What `ttl-odm check` looks at in a SQL database. It only reads.

Cheap questions to the catalogue and to the sweeper's indexes are always asked; what has to read a
whole table only if the table is small or the user says ``--deep``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import (
    TIMESTAMP,
    Integer,
    column,
    func,
    inspect,
    select,
    type_coerce,
    update,
)
from sqlalchemy import table as bare_table
from sqlalchemy.dialects import registry
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex

from ttl_odm.cli import findings
from ttl_odm.cli.findings import AHEAD, Finding, Severity
from ttl_odm.cli.indexes_sql import indexes_of, is_as_declared
from ttl_odm.cli.problems import in_one_line
from ttl_odm.core.policy import ExpireAt
from ttl_odm.core.values import NEVER
from ttl_odm.dialects import MYSQL_FAMILY, index_name
from ttl_odm.dialects.mysql import INHERITED_END
from ttl_odm.inspection.evidence import SMALL, Kind
from ttl_odm.inspection.readers.sql import SECONDS, index_for, kind_of, reading_only
from ttl_odm.sqlalchemy.policy.binding import binding_of
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.policy.schema import AddSweepColumns, sweep_indexes
from ttl_odm.sqlalchemy.sweep.foreign_keys import ReferringKeys, name_of
from ttl_odm.sqlalchemy.sweep.index_windows import PartIndex
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sqlalchemy.time.column_types import Seconds
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import Column, ColumnElement, Connection, Select, Table
    from sqlalchemy.engine import Dialect
    from sqlalchemy.types import TypeEngine

    from ttl_odm.cli.application import Target
    from ttl_odm.sqlalchemy.policy.binding import Binding

_MOST: Final = 1_000
"""Rows up to which those that are wrong are counted."""

_MIGRATE: Final = "alembic revision --autogenerate -m ttl  (with import ttl_odm.alembic in env.py)"


def check(connection: Connection, targets: Sequence[Target], *, deep: bool) -> list[Finding]:
    """Look at all targets.

    Args:
        connection: Is thrown away afterwards: it has been made one that can only read.
        targets: Their `given` are Tables.
        deep: Whether to read whole tables, however big.
    """
    found: list[Finding] = []
    with reading_only(connection, None if deep else SECONDS):
        for each in targets:
            binding = binding_of(each.given)
            if binding is not None:
                found += _Check(connection, each.name, binding, deep=deep).findings()
    connection.invalidate()
    return found


class _Check:
    """The checks of one table."""

    def __init__(self, connection: Connection, name: str, binding: Binding, *, deep: bool) -> None:
        self._connection = connection
        self._dialect = connection.dialect
        self._name = name
        self._binding = binding
        self._table: Table = binding.table
        self._deep = deep

    def findings(self) -> Iterator[Finding]:
        """Give what is not as it should be."""
        schema, name = name_of(self._connection, self._table)
        inspector = inspect(self._connection)
        if not inspector.has_table(name, schema):
            yield self._error("missing-table", "the table is not in the database", _MIGRATE)
            return
        there = {each["name"]: each["type"] for each in inspector.get_columns(name, schema)}
        binding = self._binding
        created = None if binding.max_lifetime is None else binding.max_lifetime.created
        columns = (binding.last_modified, binding.override, created)
        needed = {each.name: each for each in columns if each is not None}
        missing = [each for each in needed if each not in there]
        if missing:
            yield self._error(
                "missing-column", f"column {' and '.join(missing)} is not in the database", _MIGRATE
            )
            return
        for each in needed.values():
            yield from self._type(each, there[each.name])
        for look in (self._indexes, self._keys, self._values, self._future):
            try:
                with self._connection.begin_nested():
                    found = list(look())
            except DBAPIError as error:
                what, why = look.__name__.strip("_"), in_one_line(error)
                fix = findings.fix_of_unreadable(why, self._quoted, self._deeper)
                yield self._finding(
                    Severity.SKIPPED, "unreadable", f"{what} can't be checked: {why}", fix
                )
            else:
                yield from found

    @property
    def _quoted(self) -> str:
        return self._dialect.identifier_preparer.format_table(self._table)

    @property
    def _deeper(self) -> str:
        return f"ttl-odm check --deep --model {self._name}"

    def _type(self, column: Column[Any], there: TypeEngine[Any]) -> Iterator[Finding]:
        """See that a column holds what it is declared to hold: instants are read by that."""
        if self._dialect.name == "sqlite":
            return  # which stores any type in any column
        declared = kept_type(column.type, clock_of(self._dialect).family)
        if _what(declared, self._dialect) != _what(there, self._dialect):
            yield self._error(
                "wrong-type",
                f"column {column.name} is {there.compile(self._dialect)}, and is declared as "
                f"{declared.compile(self._dialect)}: its values are misread",
                f"declare {column.name} as it is, or: {_MIGRATE}",
            )

    def _indexes(self) -> Iterator[Finding]:
        binding = self._binding
        if binding.sweep != "index":
            return
        there = indexes_of(self._connection, self._table)
        by_column = [binding.last_modified.name] if binding.sweeps_by_column else []
        by_column += [] if binding.max_lifetime is None else [binding.max_lifetime.created.name]
        for name in by_column:
            if not any(each.first == name for each in there.values()):
                yield self._warning(
                    "missing-index",
                    f"no index begins with {name}, so each sweep reads the whole table",
                    index_for(self._table.fullname, name, self._dialect.name, self._table.schema),
                )
        if binding.sweeps_by_column:
            return
        for suffix in ("ttl_inherited", "ttl_own"):
            name = index_name(self._table.name, suffix)
            if name not in there:
                yield self._error(
                    "missing-index",
                    f"index {name} is not there, and the sweeper searches by it",
                    self._creation(name),
                )
            elif not there[name].is_valid:
                yield self._error(
                    "invalid-index",
                    f"index {name} is INVALID: a CREATE INDEX CONCURRENTLY has failed",
                    f"{self._removal(name)}; {self._creation(name)}",
                )
            elif not is_as_declared(there[name], binding, suffix, self._dialect):
                yield self._error(
                    "wrong-index",
                    f"index {name} is another one than the sweeper searches by: "
                    f"{there[name].definition or there[name].first}",
                    f"{self._removal(name)}; {self._creation(name)}",
                )

    def _removal(self, name: str) -> str:
        quoted = self._dialect.identifier_preparer.quote(name)
        how = "INDEX CONCURRENTLY" if self._dialect.name == "postgresql" else "INDEX"
        where = f" ON {self._quoted}" if self._dialect.name in MYSQL_FAMILY else ""
        return f"DROP {how} {quoted}{where}"

    def _creation(self, name: str) -> str:
        if self._dialect.name in MYSQL_FAMILY:
            override = self._binding.override
            assert override is not None  # noqa: S101 (without one there are no such indexes)
            ddl = AddSweepColumns(self._table, self._binding.last_modified, override)
            if INHERITED_END not in self._virtual():
                return str(ddl.compile(dialect=self._dialect))
            clauses = sweep_indexes(ddl, self._dialect.identifier_preparer)
            wanted = next(each for each in clauses if name in each)
            return f"ALTER TABLE {self._quoted} {wanted}"
        index = next(each for each in self._table.indexes if each.name == name)
        statement = " ".join(str(CreateIndex(index).compile(dialect=self._dialect)).split())
        if self._dialect.name == "postgresql":
            statement = statement.replace("CREATE INDEX", "CREATE INDEX CONCURRENTLY", 1)
        return statement

    def _virtual(self) -> set[str]:
        schema, name = name_of(self._connection, self._table)
        return {each["name"] for each in inspect(self._connection).get_columns(name, schema)}

    def _keys(self) -> Iterator[Finding]:
        keys = ReferringKeys()
        for key in keys.of(self._connection, name_of(self._connection, self._table)):
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
        if self._has_check(own.name):
            return
        if isinstance(own.type, Seconds):
            yield self._warning(
                "missing-check",
                f"there is no CHECK on {own.name}, so raw SQL can write what is no ttl",
                _MIGRATE,
            )
        if not self._is_readable():
            message = f"there is no CHECK on {own.name} and the table is big; --deep reads it all"
            yield self._finding(Severity.SKIPPED, "ttl-values", message, self._deeper)
            return
        name = self._dialect.identifier_preparer.quote(own.name)
        kept = " AND ".join(f"{name} <> {each}" for each in sorted(valid) if each <= 0)
        criteria = (number <= 0, *(number != each for each in sorted(valid)))
        wrong = _told(self._number(self._some(_MOST, *criteria)))
        if wrong:
            yield self._error(
                "invalid-ttl",
                f"rows whose {own.name} is no ttl (0, -2), so that the default counts: {wrong}",
                f"UPDATE {self._quoted} SET {name} = NULL WHERE {name} <= 0 AND {kept}",  # noqa: S608 (shown)
            )

    def _has_check(self, column: str) -> bool:
        schema, name = name_of(self._connection, self._table)
        if self._dialect.name in MYSQL_FAMILY:
            # SQLAlchemy reflects no CHECK that stands at a column.
            made = self._connection.exec_driver_sql(f"SHOW CREATE TABLE {self._quoted}").one()[1]
            lines = [each.strip() for each in str(made).splitlines()]
            return any(each.startswith(f"`{column}` ") and " CHECK (" in each for each in lines)
        checks = inspect(self._connection).get_check_constraints(name, schema)
        return any(f"{column} " in f"{each['sqltext']} " for each in checks)

    def _future(self) -> Iterator[Finding]:
        binding = self._binding
        if isinstance(binding.policy, ExpireAt):
            return  # whose instants are meant to lie ahead
        clock, stamp = clock_of(self._dialect), binding.last_modified
        keeping = binding.instants.on(clock)
        latest = clock.literal(f"({clock.now} + {AHEAD} * {clock.second})")
        rows = self._latest(keeping.plain(stamp))
        if rows is None:
            message = f"{stamp.name} has no index and the table is big; --deep reads it all"
            yield self._finding(Severity.SKIPPED, "future-rows", message, self._deeper)
            return
        ahead = _told(self._number(select(rows).where(keeping.instant(rows.c[0]) > latest)))
        if ahead:
            yield self._warning(
                "future-rows",
                f"rows whose {stamp.name} is more than an hour from now, and which live that much "
                f"longer: {ahead}",
                self._rewinding(latest),
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
        elif binding.last_modified.name in self._first_columns():
            every = every.order_by(stamp.desc()).limit(_MOST)
        elif not self._is_readable():
            return None
        return every.options(include_expired()).subquery()

    def _first_columns(self) -> set[str | None]:
        return {each.first for each in indexes_of(self._connection, self._table).values()}

    def _rewinding(self, latest: ColumnElement[Any]) -> str:
        """The statement that sets instants of the future to now."""
        clock, stamp = clock_of(self._dialect), self._binding.last_modified
        keeping = self._binding.instants.on(clock)
        lean = bare_table(self._table.name, column(stamp.name), schema=self._table.schema)
        there = lean.c[stamp.name]
        said = (
            update(lean)
            .where(keeping.instant(there) > latest)
            .values({there: keeping.stored(clock.literal(clock.stamp))})
        )
        # Not by the driver's own dialect, which may double each % sign.
        plain = registry.load(self._dialect.name)(paramstyle="named")
        compiled = said.compile(dialect=plain, compile_kwargs={"literal_binds": True})
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
        return self._finding(Severity.ERROR, code, message, fix)

    def _warning(self, code: str, message: str, fix: str) -> Finding:
        return self._finding(Severity.WARNING, code, message, fix)

    def _finding(
        self, severity: Severity, code: str, message: str, fix: str | None = None
    ) -> Finding:
        return Finding(severity, code, self._name, message, fix)


def _told(rows: int) -> str:
    """A number of rows that were counted up to `_MOST`; empty for none."""
    return "" if rows == 0 else f"{_MOST:,} or more" if rows == _MOST else f"{rows:,}"


def _what(kind: TypeEngine[Any], dialect: Dialect) -> tuple[Kind, bool]:
    """What a column's type holds, as far as it decides how instants are read."""
    held = kind_of(kind)
    if held is Kind.AWARE and dialect.name in MYSQL_FAMILY:  # which knows no others
        held = Kind.NAIVE
    return held, dialect.name in MYSQL_FAMILY and isinstance(kind, TIMESTAMP)


def run(connection: Any, targets: Sequence[Target], deep: bool) -> list[Finding]:  # noqa: FBT001
    """`check`, for ``run_sync``."""
    return check(connection, targets, deep=deep)

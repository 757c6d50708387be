"""What `ttl-odm check` looks at in a SQL database. It only reads.

Cheap questions to the catalogue and to the sweeper's indexes are always asked; what has to read a
whole table only if the table is small or the user says ``--deep``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Integer, and_, func, inspect, select, text, type_coerce
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex

from ttl_odm.cli.findings import Finding, Severity
from ttl_odm.cli.problems import in_one_line
from ttl_odm.core.values import NEVER
from ttl_odm.inspecting.evidence import SMALL
from ttl_odm.inspecting.reading_sql import SECONDS, index_for, reading_only
from ttl_odm.sqlalchemy.binding import binding_of
from ttl_odm.sqlalchemy.clock import INHERITED_END, MYSQL_FAMILY, clock_of
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.schema import AddSweepColumns, index_name, sweep_indexes
from ttl_odm.sqlalchemy.sweeping.referring import ReferringKeys, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from sqlalchemy import ColumnElement, Connection, Table

    from ttl_odm.cli.application import Target
    from ttl_odm.sqlalchemy.binding import Binding

AHEAD: Final = 3_600
"""Seconds that a last modification may lie in the future before that is worth a word."""

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
        there = {each["name"] for each in inspector.get_columns(name, schema)}
        binding = self._binding
        created = None if binding.cap is None else binding.cap.created
        columns = (binding.last_modified, binding.override, created)
        needed = [each.name for each in columns if each is not None]
        missing = [each for each in needed if each not in there]
        if missing:
            yield self._error(
                "missing-column", f"column {' and '.join(missing)} is not in the database", _MIGRATE
            )
            return
        for look in (self._indexes, self._keys, self._values, self._future):
            try:
                with self._connection.begin_nested():
                    found = list(look())
            except DBAPIError as error:
                what = look.__name__.strip("_")
                yield self._finding(
                    Severity.SKIPPED, "unreadable", f"{what} can't be checked: {in_one_line(error)}"
                )
            else:
                yield from found

    @property
    def _quoted(self) -> str:
        return self._dialect.identifier_preparer.format_table(self._table)

    def _indexes(self) -> Iterator[Finding]:
        binding = self._binding
        if binding.sweep != "index":
            return
        there = self._valid_indexes()
        by_column = [binding.last_modified.name] if binding.sweeps_by_column else []
        by_column += [] if binding.cap is None else [binding.cap.created.name]
        for column in by_column:
            if not any(first == column for first, _ in there.values()):
                yield self._warning(
                    "missing-index",
                    f"no index begins with {column}, so each sweep reads the whole table",
                    index_for(self._name, column, self._dialect.name),
                )
        if binding.sweeps_by_column:
            return
        for suffix in ("ttl_inherited", "ttl_own"):
            name = index_name(self._table, suffix)
            if name not in there:
                yield self._error(
                    "missing-index",
                    f"index {name} is not there, and the sweeper searches by it",
                    self._creation(name),
                )
            elif not there[name][1]:
                quoted = self._dialect.identifier_preparer.quote(name)
                yield self._error(
                    "invalid-index",
                    f"index {name} is INVALID: a CREATE INDEX CONCURRENTLY has failed",
                    f"DROP INDEX CONCURRENTLY {quoted}; {self._creation(name)}",
                )

    def _valid_indexes(self) -> dict[str, tuple[str | None, bool]]:
        """The indexes of the table: the first column (None for an expression), and validity."""
        schema, name = name_of(self._connection, self._table)
        asked = {"schema": schema, "table": name}
        quote = self._dialect.identifier_preparer.quote
        if self._dialect.name == "postgresql":
            asked["relation"] = ".".join(quote(each) for each in (schema, name) if each)
            rows = self._connection.execute(_POSTGRESQL_INDEXES, asked)
        elif self._dialect.name in MYSQL_FAMILY:
            rows = self._connection.execute(_MYSQL_INDEXES, asked)
        else:
            rows = self._connection.execute(_SQLITE_INDEXES, {**asked, "schema": schema or "main"})
        return {index: (first, bool(valid)) for index, first, valid in rows}

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
        if not self._is_readable():
            yield self._finding(
                Severity.SKIPPED,
                "ttl-values",
                f"there is no CHECK on {own.name} and the table is big; --deep reads it all",
            )
            return
        name = self._dialect.identifier_preparer.quote(own.name)
        kept = " AND ".join(f"{name} <> {each}" for each in sorted(valid) if each <= 0)
        wrong = self._some(and_(number <= 0, *(number != each for each in sorted(valid))))
        if wrong:
            yield self._error(
                "invalid-ttl",
                f"{wrong} rows have a {own.name} that is no ttl (0, -2): the default counts there",
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
        if binding.is_adopted or binding.sweep != "index" or binding.override is None:
            return
        clock = clock_of(self._dialect)
        latest = clock.literal(f"{clock.now} + {AHEAD} * {clock.second}")
        stamp = type_coerce(binding.last_modified, clock.storage)
        ahead = self._some(type_coerce(binding.override, Integer()).is_(None), stamp > latest)
        if ahead:
            column = self._dialect.identifier_preparer.quote(binding.last_modified.name)
            yield self._warning(
                "future-rows",
                f"{ahead} rows were last modified more than an hour from now, and live that much "
                "longer",
                f"UPDATE {self._quoted} SET {column} = {clock.stamp} "  # noqa: S608 (shown)
                f"WHERE {column} > {clock.now} + {AHEAD} * {clock.second}",
            )

    def _is_readable(self) -> bool:
        if self._deep:
            return True
        some = select(self._binding.last_modified).select_from(self._table).limit(SMALL + 1)
        counted = select(func.count()).select_from(some.options(include_expired()).subquery())
        rows = self._connection.execute(counted.options(include_expired())).scalar_one()
        return int(rows) <= SMALL

    def _some(self, *criteria: ColumnElement[bool]) -> str:
        """Count rows, a thousand at most; empty for none."""
        most = 1_000
        some = select(self._binding.last_modified).where(*criteria).limit(most)
        counted = select(func.count()).select_from(some.options(include_expired()).subquery())
        rows = int(self._connection.execute(counted.options(include_expired())).scalar_one())
        return "" if rows == 0 else f"{most:,} or more" if rows == most else f"{rows:,}"

    def _error(self, code: str, message: str, mend: str) -> Finding:
        return self._finding(Severity.ERROR, code, message, mend)

    def _warning(self, code: str, message: str, mend: str) -> Finding:
        return self._finding(Severity.WARNING, code, message, mend)

    def _finding(
        self, severity: Severity, code: str, message: str, mend: str | None = None
    ) -> Finding:
        return Finding(severity, code, self._name, message, mend)


_POSTGRESQL_INDEXES: Final = text("""
SELECT c.relname, CASE WHEN i.indpred IS NULL THEN a.attname::text END, i.indisvalid
FROM pg_index i
JOIN pg_class c ON c.oid = i.indexrelid
LEFT JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
WHERE i.indrelid = CAST(:relation AS text)::regclass
""")
_MYSQL_INDEXES: Final = text("""
SELECT index_name, column_name, 1 FROM information_schema.statistics
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table AND seq_in_index = 1
""")
_SQLITE_INDEXES: Final = text("""
SELECT l.name, CASE WHEN l.partial = 0 THEN i.name END, 1
FROM pragma_index_list(:table, :schema) AS l, pragma_index_info(l.name, :schema) AS i
WHERE i.seqno = 0
""")


def run(connection: Any, targets: Sequence[Target], deep: bool) -> list[Finding]:  # noqa: FBT001
    """`check`, for ``run_sync``."""
    return check(connection, targets, deep=deep)

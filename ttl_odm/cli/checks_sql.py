"""What `ttl-odm check` looks at in a SQL database. It only reads.

Checks of the catalogue and of the sweeper's indexes are cheap and always run. A check that has to
read a whole table runs only if the table is small, or with ``--deep``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import TIMESTAMP, inspect, text

from ttl_odm.cli.checked_table import MIGRATE
from ttl_odm.cli.checks_keys import KeyChecks
from ttl_odm.cli.checks_rows import RowChecks
from ttl_odm.cli.checks_tables import every_metadata, second_tables
from ttl_odm.cli.extensions import table_checks
from ttl_odm.core.policy import ExpireAt
from ttl_odm.dialects import index_name
from ttl_odm.dialects.mysql import INHERITED_END
from ttl_odm.dialects.postgresql import relation as relation_of
from ttl_odm.inspection.evidence import Kind
from ttl_odm.inspection.readers.sql import SECONDS, index_for, kind_of, reading_only
from ttl_odm.sqlalchemy.policy.bindings import binding_of
from ttl_odm.sqlalchemy.policy.schema import AddSweepColumns, sweep_indexes
from ttl_odm.sqlalchemy.sweep.due import is_ttl_on
from ttl_odm.sqlalchemy.sweep.store import whereabouts_of
from ttl_odm.sqlalchemy.time.clock import Seconds, clock_of
from ttl_odm.sqlalchemy.time.instants import kept_type
from ttl_odm.sweeper import Part
from ttl_odm.sweeper.findings import is_misread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Column, Connection
    from sqlalchemy.types import TypeEngine

    from ttl_odm.cli.application import Target
    from ttl_odm.dialects.indexes import IndexNeed
    from ttl_odm.sweeper.findings import Finding


_IN_ORDER: Final = text("""
SELECT correlation >= :least FROM pg_catalog.pg_stats
WHERE schemaname = COALESCE(CAST(:schema AS text), current_schema())
AND tablename = :table AND attname = :column
""")
_ORDERED: Final = 0.9
"""Correlation from which on the expired rows are close together in a table."""

_UPDATES: Final = text("""
SELECT n_tup_upd AS updated, n_tup_hot_upd AS hot, n_tup_del AS deleted
FROM pg_catalog.pg_stat_all_tables
WHERE relid = CAST(:relation AS text)::regclass AND n_tup_hot_upd < 0.1 * n_tup_upd
""")
_MANY: Final = 100_000
"""Updates; below this number their cost is negligible."""

_OFTEN: Final = 20
"""Updates per deleted row from which on the indexes cost more than they save."""


def check(
    connection: Connection, targets: Sequence[Target], max_age: float, *, deep: bool
) -> list[Finding]:
    """Check all targets.

    Args:
        connection: Is invalidated at the end: until then it is made read-only.
        targets: The tables.
        max_age: Seconds after which expired rows are overdue.
        deep: Whether to read whole tables, regardless of their size.
    """
    findings: list[Finding] = []
    everywhere = every_metadata()
    with reading_only(connection, None if deep else SECONDS):
        for target in targets:
            binding = binding_of(target.entity)
            if binding is not None:
                findings += second_tables(target.name, binding, connection.dialect, everywhere)
                findings += _Check(connection, target, binding, max_age, deep=deep).all()
    connection.invalidate()
    return findings


def needs_sweeper(connection: Connection, targets: Sequence[Target]) -> bool:
    """Whether expired rows of some target stay unless a sweeper deletes them.

    The connection must be in no transaction.
    """
    bindings = [binding_of(target.entity) for target in targets]
    for binding in bindings:
        if binding is None or not is_ttl_on(connection, binding):
            continue
        with connection.begin():  # `is_ttl_on` begins its own where it looks defaults up
            if all(checks.needs_sweeper(connection, binding) for checks in table_checks()):
                return True
    return not bindings


class _Check(RowChecks, KeyChecks):
    """The checks of one table."""

    def all(self) -> Sequence[Finding]:
        """Return all findings, including that a check failed, as on a locked table."""
        return self._tried(self._findings, "the table")

    def _findings(self) -> Iterator[Finding]:
        schema, name = self._place
        inspector = inspect(self.connection)
        if not inspector.has_table(name, schema):
            yield self.error("missing-table", "the table is not in the database", MIGRATE)
            return
        stored = {column["name"]: column for column in inspector.get_columns(name, schema)}
        binding = self.binding
        created = None if binding.max_lifetime is None else binding.max_lifetime.created
        columns = (binding.last_modified, binding.override, created)
        needed = {declared.name: declared for declared in columns if declared is not None}
        missing = [name for name in needed if name not in stored]
        if missing:
            yield self.error(
                "missing-column", f"column {' and '.join(missing)} is not in the database", MIGRATE
            )
            return
        for declared in needed.values():
            yield from self._type(declared, stored[declared.name]["type"])
        stamp = binding.last_modified
        if stored[stamp.name]["nullable"] and not stamp.nullable and binding.instants.native:
            yield from self._tried(self._undated, stamp.name)
        elif stored[stamp.name]["nullable"] and not isinstance(binding.policy, ExpireAt):
            yield from self._tried(self._endless, stamp.name)
        units = self._tried(self._units, "units")
        yield from units
        checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
            ("indexes", self._indexes),
            ("the cost of indexes", self._hot_updates),
            *([] if is_misread(units) else [("overdue rows", self._overdue)]),
            ("foreign keys", self._keys),
            ("its layout", lambda: whereabouts_of(binding).check(self)),
            *((others.subject, partial(others.findings, self)) for others in table_checks()),
            ("references to it", self._references),
            ("values", self._values),
            (f"the future of {stamp.name}", self._future),
        ]
        for subject, look in checks:
            yield from self._tried(look, subject)

    def _type(self, column: Column[Any], stored: TypeEngine[Any]) -> Iterator[Finding]:
        """Compare a column's type with the declared one, by which instants are read."""
        if self.dialect.name == "sqlite":
            return  # any column stores any type
        declared = kept_type(column.type, clock_of(self.dialect).family)
        if self._held(declared) != self._held(stored):
            yield self.error(
                "wrong-type",
                f"column {column.name} is {stored.compile(self.dialect)}, but is declared as "
                f"{declared.compile(self.dialect)}: its values are misread",
                f"declare {column.name} with the type it has, or: {MIGRATE}",
            )

    def _held(self, kind: TypeEngine[Any]) -> tuple[Kind, bool]:
        """Return what a column's type says about how its instants are read."""
        content = kind_of(kind)
        if content is Kind.AWARE and self._is_mysql:  # which has no aware types
            content = Kind.NAIVE
        return content, self._is_mysql and isinstance(kind, TIMESTAMP)

    def _indexes(self) -> Iterator[Finding]:
        """Report missing indexes of the sweeper, unless the model wants the table scanned."""
        if self.binding.sweep == "scan":
            return
        for need in self._lacking:
            if not any(index.narrows(need) for index in self._stored):
                yield from self._missing(need)
        if not self._needs and not self._is_readable:
            yield self.warning(
                "no-index-serves",
                "no index can find the expired rows of this policy, so each sweep reads the "
                "whole table, which is big",
                f"sweep it rarely: ttl-odm run --model {self.name} --interval 3600; or declare "
                "__ttl_sweep__ = 'scan' to say that this is intended",
            )

    def _missing(self, need: IndexNeed) -> Iterator[Finding]:
        """Report an index that is missing, invalid or wrong."""
        quote = self.dialect.identifier_preparer.quote
        suffix = "own" if need.part is Part.OWN else "inherited"
        name = index_name(self._table.name, f"ttl_{suffix}")
        broken = next((index for index in self._stored if index.name == name), None)
        if need.is_partial and (broken is not None or self._declares(need)):
            how = "INDEX CONCURRENTLY" if self.dialect.name == "postgresql" else "INDEX"
            removal = f"DROP {how} {quote(name)}" + f" ON {self._quoted}" * self._is_mysql
            code, message, fix = (
                "missing-index",
                f"index {name} is missing, and the sweeper needs it",
                self._creation(need, name),
            )
            if broken is not None and broken.is_over(need):
                code, fix = "invalid-index", f"{removal}; {fix}"
                message = f"index {name} is INVALID: a CREATE INDEX CONCURRENTLY failed"
            elif broken is not None:
                code, fix = "wrong-index", f"{removal}; {fix}"
                message = (
                    f"index {name} isn't the index that the sweeper needs: "
                    f"{broken.definition or broken.first}"
                )
            yield self.error(code, message, fix)
        elif self._declares(need) or not self._is_readable:
            lacking, method = f"no index begins with {need.column}", ""
            if need.is_partial:
                lacking = f"no index covers the rows whose ttl is {suffix}"
            elif not self._declares(need) and self._is_in_order(need.column):
                lacking, method = f"{lacking}, although the rows are stored in its order", "brin"
            yield self.warning(
                "missing-index",
                f"{lacking}, so each sweep reads the whole table",
                self._creation(need, name, method=method),
            )

    def _is_in_order(self, column: str) -> bool:
        """Whether PostgreSQL's statistics say that a table's rows are in the order of a column."""
        if self.dialect.name != "postgresql":
            return False
        schema, table = self._place
        return bool(
            self.connection.execute(
                _IN_ORDER, {"schema": schema, "table": table, "column": column, "least": _ORDERED}
            ).scalar()
        )

    def _hot_updates(self) -> Iterator[Finding]:
        """Report what the indexes on the last modification cost a table that is mostly updated."""
        if self.dialect.name != "postgresql" or not self.binding.stamps or self._is_walked:
            return
        relation = {"relation": relation_of(*self._place)}
        counts = self.connection.execute(_UPDATES, relation).one_or_none()
        if counts is None or counts.updated < _MANY or counts.updated < _OFTEN * counts.deleted:
            return
        yield self.warning(
            "updates-move-rows",
            f"{counts.updated:,} updates for {counts.deleted:,} deleted rows since the statistics "
            f"were reset, of which {counts.hot:,} were HOT: all others wrote to every index, "
            f"because the sweeper's indexes contain {self.binding.last_modified.name}, which "
            "changes",
            "declare __ttl_sweep__ = 'scan' and drop these indexes, if an occasional scan of the "
            "whole table is affordable: see docs/schema.md for the cost of an index",
        )

    def _declares(self, need: IndexNeed) -> bool:
        """Whether the model declares the index, so that a migration would create it."""
        own = self.binding.override
        if own is not None and need.is_partial:
            return isinstance(own.type, Seconds)
        firsts = (next(iter(index.columns), None) for index in self._table.indexes)
        return need.column in {column.name for column in firsts if column is not None}

    def _creation(self, need: IndexNeed, name: str, *, method: str = "") -> str:
        """Return the statement that creates an index without blocking writes."""
        stamp, own = self.binding.last_modified, self.binding.override
        if own is None or not need.is_partial:
            schema = self._table.schema
            place = (self._table.fullname, need.column, self.dialect.name, schema)
            return index_for(*place, method=method)
        quote = self.dialect.identifier_preparer.quote
        if self._is_mysql:
            scope = None if need.scope is None else self.binding.discriminator
            ddl = AddSweepColumns(self._table, stamp, own, scope)
            schema, table = self._place
            columns = inspect(self.connection).get_columns(table, schema)
            if INHERITED_END not in {reflected["name"] for reflected in columns}:
                return str(ddl.compile(dialect=self.dialect))
            clause = sweep_indexes(ddl, self.dialect.identifier_preparer)[name]
            return f"ALTER TABLE {self._quoted} {clause}"
        clock, ttl = clock_of(self.dialect), quote(own.name)
        end, rows = clock.inherited_end, f"{ttl} IS NULL"
        if need.part is Part.OWN:
            end, rows = clock.own_end, f"{ttl} > 0"
        order = end.format(stamp=quote(stamp.name), ttl=ttl, table="")
        if need.scope is not None:
            order = f"{quote(need.scope)}, {order}"
        how = "INDEX CONCURRENTLY" if self.dialect.name == "postgresql" else "INDEX"
        return f"CREATE {how} {quote(name)} ON {self._quoted} ({order}) WHERE {rows}"

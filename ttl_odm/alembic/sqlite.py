"""The steps on SQLite, which has one writer at a time, so all statements are short or in batches.

ADD COLUMN takes only a constant default, and existing rows don't store its value: they read it from
the table's definition. So each row is written once. Then the clock replaces the constant in the
stored definition, in the way that SQLite's documentation of ALTER TABLE describes for defaults.
Otherwise raw INSERTs would get the instant of the migration.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from sqlalchemy import text
from sqlalchemy.schema import CreateIndex

from ttl_odm.alembic.steps import NEVER_FOR_OLD_ROWS, Steps
from ttl_odm.dialects.sqlite import SQLite
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Column


class SQLiteSteps(Steps[SQLite]):
    """The steps on SQLite."""

    family = SQLite()
    rewrites_rows = True

    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """Add the columns with constant defaults, which `settle` replaces."""
        stamp, own = self.target.last_modified, self.target.own_ttl
        if self.lacks(own.name):
            old = NEVER_FOR_OLD_ROWS if never else None
            column = self.target.column(own, self.dialect, default=old, check=True)
            self.run.briefly([f"ALTER TABLE {self.table} ADD COLUMN {column}"])
        if self.lacks(stamp.name):

            def make() -> list[str]:
                since = _PLACEHOLDER if self.run.offline else self.now()
                note(since)
                column = self.target.column(stamp, self.dialect, default=since, check=False)
                return [f"ALTER TABLE {self.table} ADD COLUMN {column}"]

            self.run.briefly(make)
        if self.run.offline:
            changes = f"{self.stamp} = {self.family.stamp}, {self.own} = {self.own}"
            self.run.at_once(f"UPDATE {self.table} SET {changes}")

    def settle(self) -> None:
        """Replace the constants in the table's definition."""
        stamp, own = self.target.last_modified, self.target.own_ttl
        changes = [self._change(own, NEVER_FOR_OLD_ROWS, check=True)]
        since = _PLACEHOLDER if self.run.offline else self._constant()
        if since is not None:
            changes.append(self._change(stamp, since, check=False))
        if self.run.offline:
            self._script(changes)
        elif since is not None or self.existing.ttl_default:

            def change(sql: str) -> str:
                for old, new in changes:
                    sql = sql.replace(old, new)
                return sql

            def check() -> None:
                if self._constant() is not None:
                    raise TTLError(
                        f"Could not give column {self.stamp} of table {self.table} its default: "
                        "its definition in sqlite_master is not the one that was added. The rows "
                        "are unchanged; see docs/migrating.md."
                    )

            self.run.patiently(lambda: self._redefine(change, check), "the file")
        if self.existing.check == "outdated":
            self.replace_check()
        elif self.existing.check == "missing" and not self.lacks(own.name):
            self._add_check()

    def _add_check(self) -> None:
        """Add the CHECK to the stored definition: its column was there without one."""
        condition = self.target.condition(self.dialect)
        clause = f"CONSTRAINT {self.quote(self.target.check_name)} CHECK ({condition})"

        def change(sql: str) -> str:
            columns, _, options = sql.rpartition(")")
            return f"{columns}, {clause}){options}"

        def check() -> None:
            # SQLite reads the definition here, and raises if it can't.
            self.run.connection.exec_driver_sql(f"SELECT 1 FROM {self.table} LIMIT 0")

        self.run.patiently(lambda: self._redefine(change, check), "the file")

    def replace_check(self) -> None:
        """Replace the CHECK in the stored definition by this release's."""
        condition = self.target.condition(self.dialect)
        if self.run.offline:
            self._script([(f"CHECK ({self.target.check.sqltext})", f"CHECK ({condition})")])
            return

        def check() -> None:
            if condition not in self._definition():
                raise TTLError(
                    f"Could not replace the CHECK on column {self.own} of table {self.table}: it "
                    f"is not the one that ttl_odm created. Change it to CHECK ({condition}); see "
                    "docs/migrating.md."
                )

        def change(sql: str) -> str:
            return re.sub(self._check_pattern(), lambda match: f"{match[1]}({condition})", sql)

        self.run.patiently(lambda: self._redefine(change, check), "the file")

    def _check_pattern(self) -> str:
        """Return a pattern for the CHECK in a definition, of this release or an earlier one."""
        conditions = (self.target.condition(self.dialect), str(self.target.check.sqltext))
        name = re.escape(self.target.check_name.replace('"', '""'))
        return (
            rf'(CONSTRAINT\s+["`\[]?{name}["`\]]?\s+CHECK\s*)'
            rf"\((?:{'|'.join(map(re.escape, conditions))})\)"
        )

    def _change(self, column: Column[Any], default: str, *, check: bool) -> tuple[str, str]:
        """Return a column's definition as it was added, and as it should be."""
        before = self.target.column(column, self.dialect, default=default, check=check)
        return before, self.target.column(column, self.dialect, check=check)

    def _constant(self) -> str | None:
        """Return the instant that still is the default, or None if the clock is."""
        schema = self.target.table.schema
        pragma = f"pragma_table_info(:table{f', {schema!r}' if schema else ''})"
        default = self.run.connection.execute(
            text(f"SELECT dflt_value FROM {pragma} WHERE name = :name"),
            {"table": self.target.table.name, "name": self.target.last_modified.name},
        ).scalar()
        return str(default) if str(default).isdigit() else None

    def _definition(self) -> str:
        catalogue = f"{self.schema}sqlite_master"
        query = text(f"SELECT sql FROM {catalogue} WHERE type = 'table' AND name = :table")
        return str(self.run.connection.scalar(query, {"table": self.target.table.name}))

    def _redefine(self, change: Callable[[str], str], check: Callable[[], None]) -> None:
        """Change the table's stored definition, and roll back if `check` then raises."""
        connection = self.run.connection
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        try:
            cookie = connection.exec_driver_sql(f"PRAGMA {self.schema}schema_version").scalar() or 0
            sql = change(self._definition())
            connection.exec_driver_sql("PRAGMA writable_schema = ON")
            storing = text(
                f"UPDATE {self.schema}sqlite_master SET sql = :sql "
                "WHERE type = 'table' AND name = :table"
            )
            connection.execute(storing, {"table": self.target.table.name, "sql": sql})
            # This makes every connection read the definition again.
            connection.exec_driver_sql(f"PRAGMA {self.schema}schema_version = {cookie + 1}")
            connection.exec_driver_sql("PRAGMA writable_schema = OFF")
            check()
        except BaseException:
            connection.exec_driver_sql("ROLLBACK")
            raise
        finally:
            connection.exec_driver_sql("PRAGMA writable_schema = OFF")
        connection.exec_driver_sql("COMMIT")

    def _script(self, changes: list[tuple[str, str]]) -> None:
        self.run.at_once("PRAGMA writable_schema = ON")
        name = self.target.table.name.replace("'", "''")
        for old, new in changes:
            before, after = old.replace("'", "''"), new.replace("'", "''")
            self.run.at_once(
                f"UPDATE {self.schema}sqlite_master "
                f"SET sql = replace(sql, '{before}', '{after}') "
                f"WHERE type = 'table' AND name = '{name}'"
            )
        self.run.at_once("PRAGMA writable_schema = OFF")
        # Any change of the catalogue makes every connection read it again.
        self.run.at_once(f"CREATE TABLE {self.schema}_ttl_odm_reread (x)")
        self.run.at_once(f"DROP TABLE {self.schema}_ttl_odm_reread")

    def add_indexes(self) -> None:
        """Build the indexes: each reads the table once, and writers wait meanwhile."""
        for index in self.target.indexes:
            name = str(index.name)
            if not self.existing.has_index(name):
                drop = [f"DROP INDEX {self.schema}{self.quote(name)}"]
                removal = drop if name == self.existing.misled else []
                self.run.briefly([*removal, str(CreateIndex(index).compile(dialect=self.dialect))])

    def drop_indexes(self) -> None:
        """Drop the indexes, which is instant."""
        for name in self.indexes_to_drop:
            if self.is_there(name in self.existing.indexes):
                self.run.briefly([f"DROP INDEX IF EXISTS {self.schema}{self.quote(name)}"])

    def drop_columns(self, *, keep_ttl: bool) -> None:
        """Drop the columns: each rewrites the table, and writers wait meanwhile."""
        dropped = [self.target.last_modified.name]
        if not keep_ttl:
            dropped.append(self.target.own_ttl.name)
            if not self.run.offline:
                # A copy that Alembic's batch mode made has the CHECK as one of the table, which
                # would prevent its column from being dropped.
                check = re.compile(rf",\s*{self._check_pattern()}")
                if check.search(self._definition()):
                    self.run.patiently(
                        lambda: self._redefine(lambda sql: check.sub("", sql), lambda: None),
                        "the file",
                    )
        for name in dropped:
            if self.is_there(name in self.existing.columns):
                self.run.briefly([f"ALTER TABLE {self.table} DROP COLUMN {self.quote(name)}"])

    def trigger_statements(self) -> list[str]:
        """Return the statement for a trigger that updates the row again.

        Not twice in the same millisecond: with recursive_triggers it would not end.
        """
        table = self.quote(self.target.table.name)  # without a schema, as a trigger requires
        new, old = f"NEW.{self.stamp}", f"OLD.{self.stamp}"
        columns = [self.quote(column.name) for column in self.existing.primary_key]
        key = [self.existing.rowid] if self.existing.rowid else columns or ["rowid"]
        same_row = " AND ".join(f"{column} = NEW.{column}" for column in key)
        stamping = f"UPDATE {table} SET {self.stamp} = {self.family.stamp} WHERE {same_row}"
        when = f"FOR EACH ROW WHEN {new} IS {old} AND {new} <> {self.family.stamp}"
        head = f"CREATE TRIGGER {self.schema}{self.trigger} AFTER UPDATE ON {table}"
        return [f"{head} {when} BEGIN {stamping}; END"]


_PLACEHOLDER = "946684800000"
"""Stands for the instant (2000-01-01) in a script, which sets the real one when it runs."""

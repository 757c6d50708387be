"""PostgreSQL: what locks everybody out is short and tried again; what takes long locks nobody out.

| step | lock | for how long |
|---|---|---|
| ADD COLUMN, SET DEFAULT, CHECK NOT VALID | ACCESS EXCLUSIVE | no row is read or written |
| VALIDATE CONSTRAINT | SHARE UPDATE EXCLUSIVE | reads the table |
| CREATE INDEX CONCURRENTLY, DROP INDEX CONCURRENTLY | SHARE UPDATE EXCLUSIVE | waits for others |
| CREATE TRIGGER | SHARE ROW EXCLUSIVE | no row is read |

A default of ``clock_timestamp()`` would rewrite the table, so the columns get a constant first.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex

from ttl_odm.alembic.steps import ENOUGH_FOR_OLD_ROWS, Steps

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Index


class PostgreSQLSteps(Steps):
    """The steps on PostgreSQL."""

    def now(self) -> str:
        """A literal that reads the same in every session."""
        utc = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        instant = self.run.connection.exec_driver_sql(f"SELECT {utc}").scalar()
        return f"CAST('{instant}' AS timestamptz)"

    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """All in one go: columns, defaults, and the CHECK for new rows."""
        if not self.lacks(self.wanted.last_modified.name):
            self._add_check()
            return

        def make() -> list[str]:
            if self.run.offline:
                return self._script(never=never)
            since = self.now()
            note(since)
            return [f"ALTER TABLE {self.table} {self._added(since, never=never)}", *self._after()]

        self.run.briefly(make)

    def _added(self, since: str, *, never: bool) -> str:
        stamp, own = self.wanted.last_modified, self.wanted.own_ttl
        old = ENOUGH_FOR_OLD_ROWS if never else None
        parts = [
            f"ADD COLUMN {self.wanted.column(stamp, self.dialect, default=since, check=False)}"
        ]
        if self.lacks(own.name):
            given = self.wanted.column(own, self.dialect, default=old, check=False)
            parts.append(f"ADD COLUMN {given}")
        if self.found.check == "missing":
            parts.append(f"ADD {self.wanted.check_sql(self.dialect)} NOT VALID")
        return ", ".join(parts)

    def _after(self) -> list[str]:
        parts = [f"ALTER COLUMN {self.stamp} SET DEFAULT {self.default}"]
        if self.lacks(self.wanted.own_ttl.name):
            parts.append(f"ALTER COLUMN {self.own} DROP DEFAULT")
        return [f"ALTER TABLE {self.table} {', '.join(parts)}"]

    def _script(self, *, never: bool) -> list[str]:
        """The same for a script, which knows no instant before it runs."""
        mark = "\0"
        head, _, tail = self._added(mark, never=never).replace("'", "''").partition(mark)
        now = "quote_literal(clock_timestamp())"
        return [
            f"EXECUTE 'ALTER TABLE {self.table} {head}' || {now} || '::timestamptz{tail}'",
            *self._after(),
        ]

    def _add_check(self) -> None:
        if self.found.check == "missing":
            check = self.wanted.check_sql(self.dialect)
            self.run.briefly([f"ALTER TABLE {self.table} ADD {check} NOT VALID"])

    def settle(self) -> None:
        """Let the CHECK hold for the old rows too."""
        if self.found.check != "there":
            self.run.at_length(f"ALTER TABLE {self.table} VALIDATE CONSTRAINT {self.check_name}")

    def add_indexes(self) -> None:
        """Without locking writers out; one that an earlier try left invalid is replaced."""
        for index in self.wanted.indexes:
            name = str(index.name)
            if self.found.has_index(name):
                continue
            if name in self.found.indexes:
                self._drop_index(name)
            self.run.patiently(lambda each=index: self._create_index(each), "a lock on the table")  # type: ignore[misc]

    def _create_index(self, index: Index) -> None:
        options: Any = index.dialect_options["postgresql"]
        options["concurrently"] = not self.run.in_transaction
        try:
            self.run.at_once(str(CreateIndex(index).compile(dialect=self.dialect)))
        except Exception:
            if not self.run.in_transaction and not self.run.offline:
                # What it leaves behind costs every write and serves no read.
                # Whether it can be dropped or not: the next run replaces it.
                with suppress(DBAPIError):
                    self._drop_index(str(index.name))
            raise

    def drop_indexes(self) -> None:
        """Without locking writers out."""
        for name in self.wanted.index_names:
            if self.there(name in self.found.indexes):
                self._drop_index(name)

    def _drop_index(self, name: str) -> None:
        preparer = self.dialect.identifier_preparer
        schema = self.wanted.table.schema
        full = f"{preparer.quote_schema(schema)}." if schema else ""
        how = "" if self.run.in_transaction else "CONCURRENTLY "
        self.run.at_length(f"DROP INDEX {how}IF EXISTS {full}{preparer.quote(name)}")

    def drop_columns(self, *, keep_ttl: bool) -> None:
        """In one statement; the CHECK goes with its column."""
        names = [self.stamp] if keep_ttl else [self.stamp, self.own]
        parts = ", ".join(f"DROP COLUMN IF EXISTS {name}" for name in names)
        self.run.briefly([f"ALTER TABLE {self.table} {parts}"])

    def add_trigger(self) -> None:
        """A row that is written without a new ``_ts`` gets one."""
        if self.found.trigger:
            return
        function = self._function()
        self.run.briefly(
            [
                (
                    f"CREATE OR REPLACE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS "
                    f"$touch$ BEGIN NEW.{self.stamp} := {self.clock.stamp}; RETURN NEW; END $touch$"
                ),
                (
                    f"CREATE TRIGGER {self.trigger} BEFORE UPDATE ON {self.table} FOR EACH ROW "
                    f"WHEN (NEW.{self.stamp} IS NOT DISTINCT FROM OLD.{self.stamp}) "
                    f"EXECUTE FUNCTION {function}()"
                ),
            ]
        )

    def drop_trigger(self) -> None:
        """The trigger and its function."""
        if self.there(self.found.trigger):
            self.run.briefly(
                [
                    f"DROP TRIGGER IF EXISTS {self.trigger} ON {self.table}",
                    f"DROP FUNCTION IF EXISTS {self._function()}()",
                ]
            )

    def _function(self) -> str:
        schema = self.wanted.table.schema
        full = f"{self.dialect.identifier_preparer.quote_schema(schema)}." if schema else ""
        return f"{full}{self.trigger}"

"""The steps on PostgreSQL: exclusive locks are short and retried, long statements block no writer.

`ttl_odm.dialects.postgresql` says which statement takes which lock.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.schema import CreateIndex

from ttl_odm.alembic.steps import Steps
from ttl_odm.dialects.family import as_value, derived_name
from ttl_odm.dialects.postgresql import PostgreSQL, block, dollar_quoted, relation

if TYPE_CHECKING:
    from collections.abc import Callable


class PostgreSQLSteps(Steps[PostgreSQL]):
    """The steps on PostgreSQL."""

    family = PostgreSQL()

    def now(self) -> str:
        """Return the present instant, as a literal that means the same in every session."""
        utc = "to_char(clock_timestamp() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS.US\"Z\"')"
        instant = self.run.connection.exec_driver_sql(f"SELECT {utc}").scalar()
        return f"CAST('{instant}' AS timestamptz)"

    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """Add columns, defaults, and the CHECK for new rows together."""
        check = self.family.add_check(self.target.check_sql(self.dialect))
        if not self.lacks(self.target.last_modified.name):
            if self.existing.check == "missing":
                self.run.briefly([f"ALTER TABLE {self.table} {check}"])
            return
        defaults = [f"ALTER COLUMN {self.stamp} SET DEFAULT {self.default}"]
        if self.lacks(self.target.own_ttl.name):
            defaults.append(f"ALTER COLUMN {self.own} DROP DEFAULT")

        def add(since: str) -> str:
            parts = self.missing_columns(since, never=never, check=False)
            if self.existing.check == "missing":
                parts.append(check)
            return f"ALTER TABLE {self.table} {', '.join(parts)}"

        def statements() -> list[str]:
            if self.run.offline:  # the instant is known only when the script runs
                head, _, tail = add("\0").replace("'", "''").partition("\0")
                now = "quote_literal(clock_timestamp())"
                adding = f"EXECUTE '{head}' || {now} || '::timestamptz{tail}'"
                if self.run.in_transaction:  # otherwise it is in a block that tries again
                    adding = block(f" BEGIN {adding}; END ")
            else:
                since = self.now()
                note(since)
                adding = add(since)
            return [adding, f"ALTER TABLE {self.table} {', '.join(defaults)}"]

        self.run.briefly(statements)

    def settle(self) -> None:
        """Validate the CHECK for old rows."""
        if self.existing.check != "there":
            validate = self.family.validate_check(self.quote(self.target.check_name))
            self.run.at_length(f"ALTER TABLE {self.table} {validate}")

    def add_indexes(self) -> None:
        """Build the indexes while others write."""
        for index in self.target.indexes:
            name = str(index.name)
            if self.existing.has_index(name):
                continue
            if name == self.existing.misled:
                self._drop_index(name)
                del self.existing.indexes[name]
            if self.existing.is_partitioned and not self.run.in_transaction:
                self._index_partitions(name, str(CreateIndex(index).compile(dialect=self.dialect)))
                continue
            index.dialect_options["postgresql"]["concurrently"] = not self.run.in_transaction
            self.build_index(name, str(CreateIndex(index).compile(dialect=self.dialect)))

    def _index_partitions(self, name: str, statement: str) -> None:
        """Build an index on each partition; the table's is valid once all partitions have one."""
        _, _, rest = statement.partition(f" ON {self.table} ")
        if name not in self.existing.indexes:
            only = f"CREATE INDEX {self.quote(name)} ON ONLY {self.table} {rest}"
            self.run.briefly([only])
        whole = relation(self.target.table.schema, name)
        names = {"table": self.target.plain(self.dialect), "index": whole}
        suffix = name.removeprefix(f"ix_{self.target.table.name}_")
        for schema, partition in self.run.connection.execute(_WITHOUT_INDEX, names).all():
            own = derived_name(partition, suffix)
            prefix = f"{self.quote(schema)}."
            own_name = {"index": relation(schema, own)}
            is_valid = self.run.connection.scalar(_IS_VALID, own_name)
            if is_valid is False:  # left by a run that was killed
                self.run.at_length(f"DROP INDEX CONCURRENTLY {prefix}{self.quote(own)}")
            if not is_valid:
                on = f"{self.quote(own)} ON {prefix}{self.quote(partition)} {rest}"
                self.run.at_length(f"CREATE INDEX CONCURRENTLY {on}")
            attach = f"ATTACH PARTITION {prefix}{self.quote(own)}"
            self.run.briefly([f"ALTER INDEX {self.schema}{self.quote(name)} {attach}"])

    def build_index(self, name: str, statement: str) -> None:
        """Build an index, and replace one that an earlier try left invalid."""
        if name in self.existing.indexes:
            self._drop_index(name)

        def create() -> None:
            try:
                self.run.at_once(statement)
            except Exception:
                if not self.run.in_transaction and not self.run.offline:
                    # The invalid index costs every write and serves no read.
                    # If it can't be dropped now, the next run replaces it.
                    with suppress(DBAPIError):
                        self._drop_index(name)
                raise

        self.run.patiently(create, "a lock on the table")

    def drop_indexes(self) -> None:
        """Drop the indexes while others write."""
        for name in self.indexes_to_drop:
            if self.is_there(name in self.existing.indexes):
                self._drop_index(name)

    def _drop_index(self, name: str) -> None:
        qualified = f"{self.schema}{self.quote(name)}"
        if self.existing.is_partitioned:  # can't be done concurrently, but reads no row
            self.run.briefly([f"DROP INDEX IF EXISTS {qualified}"])
            return
        in_transaction = self.run.in_transaction
        self.run.at_length(self.family.drop_index(qualified, in_transaction=in_transaction))

    def drop_columns(self, *, keep_ttl: bool) -> None:
        """Drop the columns in one statement; the CHECK goes with its column."""
        names = [self.stamp] if keep_ttl else [self.stamp, self.own]
        parts = ", ".join(f"DROP COLUMN IF EXISTS {name}" for name in names)
        self.run.briefly([f"ALTER TABLE {self.table} {parts}"])

    @property
    def _function(self) -> str:
        return f"{self.schema}{self.trigger}()"

    def trigger_statements(self) -> list[str]:
        """Return the statements for a trigger, and for its function in the table's schema."""
        language = "RETURNS trigger LANGUAGE plpgsql"
        body = f"BEGIN NEW.{self.stamp} := {self.family.stamp}; RETURN NEW; END"
        when = f"WHEN (NEW.{self.stamp} IS NOT DISTINCT FROM OLD.{self.stamp})"
        each_row = f"BEFORE UPDATE ON {self.table} FOR EACH ROW {when}"
        quoted = dollar_quoted(f" {body} ", "touch")
        return [
            f"CREATE OR REPLACE FUNCTION {self._function} {language} AS {quoted}",
            f"CREATE TRIGGER {self.trigger} {each_row} EXECUTE FUNCTION {self._function}",
        ]

    def trigger_drops(self) -> list[str]:
        """Return the statements that drop the trigger, whose name has no schema, and its function.

        A renamed table's trigger goes on using the function of the former name.
        """
        is_used = (
            f"SELECT FROM pg_trigger WHERE tgfoid = to_regprocedure({as_value(self._function)})"
        )
        drop = f"IF NOT EXISTS ({is_used}) THEN DROP FUNCTION IF EXISTS {self._function}; END IF"
        return [
            f"DROP TRIGGER IF EXISTS {self.trigger} ON {self.table}",
            block(f" BEGIN {drop}; END ", "touch"),
        ]


_WITHOUT_INDEX: Final = text(
    "SELECT n.nspname::text, c.relname::text FROM pg_inherits i "
    "JOIN pg_class c ON c.oid = i.inhrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
    "WHERE i.inhparent = CAST(:table AS regclass) AND NOT EXISTS ("
    "SELECT FROM pg_index x JOIN pg_inherits h ON h.inhrelid = x.indexrelid "
    "WHERE x.indrelid = c.oid AND h.inhparent = CAST(:index AS regclass)) ORDER BY 1, 2"
)
_IS_VALID: Final = text("SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass(:index)")

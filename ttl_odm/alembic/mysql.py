"""MariaDB and MySQL: the way that leaves the table alone is always named.

Why, stands in `ttl_odm.dialects.mysql`. What is INSTANT waits briefly and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.alembic.steps import Steps
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.sqlalchemy.policy.schema import AddSweepColumns, sweep_columns, sweep_indexes

if TYPE_CHECKING:
    from collections.abc import Callable


class MySQLSteps(Steps[MySQL]):
    """The steps on MariaDB and MySQL."""

    family = MySQL()

    def _alter(self, *parts: str) -> None:
        """Change the catalogue only."""
        sql = f"ALTER TABLE {self.table} {', '.join(parts)}, {self.family.INSTANT}"
        self.run.briefly([sql])

    @property
    def _without_copy(self) -> str:
        return self.family.without_copy(is_mariadb=self.run.is_mariadb)

    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """With constants as defaults, which is what INSTANT takes; then the real default."""

        def add(since: str) -> str:
            # A CHECK of the table, and not of its column, would copy the table.
            parts = ", ".join(self.missing_columns(since, never=never, check=True))
            return f"ALTER TABLE {self.table} {parts}, {self.family.INSTANT}"

        def statements() -> list[str]:
            since = self.now()
            note(since)
            return [add(since)]

        if self.run.offline:
            # A script knows no instant before it runs, so it puts the statement together there.
            head, _, tail = add("\0").replace("'", "''").partition("\0")
            for sql in (
                f"SET @ttl_odm = CONCAT('{head}', {self.family.stamp}, '{tail}')",
                "PREPARE ttl_odm FROM @ttl_odm",
                "EXECUTE ttl_odm",
                "DEALLOCATE PREPARE ttl_odm",
            ):
                self.run.at_once(sql)
        elif self.lacks(self.target.last_modified.name):
            self.run.briefly(statements)
        if not self.existing.stamps:
            default = self.default.removeprefix("(").removesuffix(")")
            self._alter(f"ALTER COLUMN {self.stamp} SET DEFAULT ({default})")
        if never or self.existing.ttl_default:
            self._alter(f"ALTER COLUMN {self.own} SET DEFAULT NULL")

    def settle(self) -> None:
        """Nothing is left to do."""

    def add_indexes(self) -> None:
        """Virtual columns at once, then their indexes while others write."""
        if self.target.dates is None:
            target, preparer = self.target, self.dialect.identifier_preparer
            virtual = AddSweepColumns(target.table, target.last_modified, target.own_ttl)
            columns = sweep_columns(virtual, preparer).items()
            missing = [sql for name, sql in columns if name not in self.existing.virtual]
            if missing:
                self._alter(*missing)
            indexes = sweep_indexes(virtual, preparer)
        else:
            column = self.quote(self.target.dates)
            indexes = {
                name: f"ADD INDEX {self.quote(name)} ({column})" for name in self.target.index_names
            }
        for name, sql in indexes.items():
            if not self.existing.has_index(name):
                self.run.at_length(f"ALTER TABLE {self.table} {sql}, {self._without_copy}")

    def drop_indexes(self) -> None:
        """One after the other, and then the columns; together they would copy the table."""
        for name in reversed(self.target.index_names):
            if self.is_there(name in self.existing.indexes):
                drop = f"DROP INDEX {self.quote(name)}"
                self.run.briefly([f"ALTER TABLE {self.table} {drop}, {self._without_copy}"])
        for name in () if self.target.dates is not None else (OWN_END, INHERITED_END):
            if self.is_there(name in self.existing.virtual):
                self._alter(f"DROP COLUMN {name}")

    def drop_columns(self, *, keep_ttl: bool) -> None:
        """At once; the CHECK goes with its column."""
        stamp, own = self.target.last_modified, self.target.own_ttl
        for column in [stamp] if keep_ttl else [stamp, own]:
            if self.is_there(column.name in self.existing.columns):
                self._alter(f"DROP COLUMN {self.quote(column.name)}")

    def trigger_statements(self) -> list[str]:
        """A trigger that changes the row before it is written."""
        new, old = f"NEW.{self.stamp}", f"OLD.{self.stamp}"
        stamping = f"SET {new} = IF({new} <=> {old}, {self.family.stamp}, {new})"
        head = f"CREATE TRIGGER {self.schema}{self.trigger} BEFORE UPDATE ON {self.table}"
        return [f"{head} FOR EACH ROW {stamping}"]

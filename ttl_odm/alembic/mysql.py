"""MariaDB and MySQL: the way that leaves the table alone is always named.

A statement that names its ALGORITHM fails where the server would copy the table; without it, the
copy would start. What is INSTANT changes the catalogue only, but waits for every transaction on
the table, so it waits briefly and is tried again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.alembic.steps import ENOUGH_FOR_OLD_ROWS, Steps
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END
from ttl_odm.sqlalchemy.policy.schema import sweep_columns, sweep_indexes

if TYPE_CHECKING:
    from collections.abc import Callable

_INSTANT = "ALGORITHM=INSTANT"


class MySQLSteps(Steps):
    """The steps on MariaDB and MySQL."""

    @property
    def _without_copy(self) -> str:
        # MySQL calls it INPLACE, which on MariaDB may rebuild the table.
        mariadb = getattr(self.dialect, "is_mariadb", False)
        return f"ALGORITHM={'NOCOPY' if mariadb else 'INPLACE'}, LOCK=NONE"

    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """With constants as defaults, which is what INSTANT takes; then the real default."""
        stamp, own = self.wanted.last_modified, self.wanted.own_ttl
        old = ENOUGH_FOR_OLD_ROWS if never else None

        def added(since: str) -> str:
            parts = [self.wanted.column(stamp, self.dialect, default=since, check=False)]
            if self.lacks(own.name):
                # A CHECK of the table, and not of its column, would copy the table.
                parts.append(self.wanted.column(own, self.dialect, default=old, check=True))
            columns = ", ".join(f"ADD COLUMN {part}" for part in parts)
            return f"ALTER TABLE {self.table} {columns}, {_INSTANT}"

        def make() -> list[str]:
            since = self.now()
            note(since)
            return [added(since)]

        if self.run.offline:
            self._script(added)
        elif self.lacks(stamp.name):
            self.run.briefly(make)
        alter = f"ALTER TABLE {self.table} ALTER COLUMN"
        if not self.found.stamps:
            default = self.default.removeprefix("(").removesuffix(")")
            self.run.briefly([f"{alter} {self.stamp} SET DEFAULT ({default}), {_INSTANT}"])
        if never or self.found.ttl_default:
            self.run.briefly([f"{alter} {self.own} SET DEFAULT NULL, {_INSTANT}"])

    def _script(self, added: Callable[[str], str]) -> None:
        """A script knows no instant before it runs, so it puts the statement together there."""
        mark = "\0"
        head, _, tail = added(mark).replace("'", "''").partition(mark)
        for each in (
            f"SET @ttl_odm = CONCAT('{head}', {self.clock.stamp}, '{tail}')",
            "PREPARE ttl_odm FROM @ttl_odm",
            "EXECUTE ttl_odm",
            "DEALLOCATE PREPARE ttl_odm",
        ):
            self.run.at_once(each)

    def settle(self) -> None:
        """Nothing is left to do."""

    def add_indexes(self) -> None:
        """Virtual columns at once, then their indexes while others write."""
        preparer = self.dialect.identifier_preparer
        if self.wanted.dates is not None:
            self._add_index_on(preparer.quote(self.wanted.dates))
            return
        virtual = self.wanted.virtual
        columns = sweep_columns(virtual, preparer).items()
        missing = [sql for name, sql in columns if name not in self.found.virtual]
        if missing:
            self.run.briefly([f"ALTER TABLE {self.table} {', '.join(missing)}, {_INSTANT}"])
        for sql in sweep_indexes(virtual, preparer):
            if not any(f" {preparer.quote(name)} " in sql for name in self.found.indexes):
                self.run.at_length(f"ALTER TABLE {self.table} {sql}, {self._without_copy}")

    def _add_index_on(self, column: str) -> None:
        for name in self.wanted.index_names:
            if not self.found.has_index(name):
                added = f"ADD INDEX {self.dialect.identifier_preparer.quote(name)} ({column})"
                self.run.at_length(f"ALTER TABLE {self.table} {added}, {self._without_copy}")

    def drop_indexes(self) -> None:
        """One after the other, and then the columns; together they would copy the table."""
        quote = self.dialect.identifier_preparer.quote
        for name in reversed(self.wanted.index_names):
            if self.there(name in self.found.indexes):
                self.run.briefly(
                    [f"ALTER TABLE {self.table} DROP INDEX {quote(name)}, {self._without_copy}"]
                )
        virtual = () if self.wanted.dates is not None else (OWN_END, INHERITED_END)
        for name in virtual:
            if self.there(name in self.found.virtual):
                self.run.briefly([f"ALTER TABLE {self.table} DROP COLUMN {name}, {_INSTANT}"])

    def drop_columns(self, *, keep_ttl: bool) -> None:
        """At once; the CHECK goes with its column."""
        dropped = [self.wanted.last_modified.name]
        if not keep_ttl:
            dropped.append(self.wanted.own_ttl.name)
        quote = self.dialect.identifier_preparer.quote
        for name in dropped:
            if self.there(name in self.found.columns):
                self.run.briefly(
                    [f"ALTER TABLE {self.table} DROP COLUMN {quote(name)}, {_INSTANT}"]
                )

    def add_trigger(self) -> None:
        """A row that is written without a new ``_ts`` gets one."""
        if self.found.trigger:
            return
        new, old = f"NEW.{self.stamp}", f"OLD.{self.stamp}"
        stamping = f"SET {new} = IF({new} <=> {old}, {self.clock.stamp}, {new})"
        head = f"CREATE TRIGGER {self._trigger()} BEFORE UPDATE ON {self.table}"
        self.run.briefly([f"{head} FOR EACH ROW {stamping}"])

    def drop_trigger(self) -> None:
        """Take it off."""
        if self.there(self.found.trigger):
            self.run.briefly([f"DROP TRIGGER {self._trigger()}"])

    def _trigger(self) -> str:
        schema = self.wanted.table.schema
        full = f"{self.dialect.identifier_preparer.quote_schema(schema)}." if schema else ""
        return f"{full}{self.trigger}"

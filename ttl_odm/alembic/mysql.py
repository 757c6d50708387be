"""The steps on MariaDB and MySQL: each statement names an algorithm that doesn't copy the table.

`ttl_odm.dialects.mysql` says why. INSTANT changes wait briefly for their lock and are retried.
"""

from __future__ import annotations

import logging
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from ttl_odm.alembic.reflection import can_lead
from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.alembic.steps import NEVER_FOR_OLD_ROWS, Steps
from ttl_odm.alembic.target_schema import INDEXED
from ttl_odm.dialects.errors import code_of
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL, column_line
from ttl_odm.sqlalchemy.policy.schema import AddSweepColumns, sweep_columns, sweep_indexes
from ttl_odm.sqlalchemy.purge.errors import in_short

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ttl_odm.alembic.target_schema import Sweep

log = logging.getLogger("alembic.ttl_odm")

_UNENFORCED: Final = (
    "table %s: on MySQL, the CHECK of rows' own ttl is NOT ENFORCED, because MySQL copies the "
    "table to enforce one. copy_table=True does that, and blocks writers meanwhile"
)


COPY: Final = "ALGORITHM=COPY, LOCK=SHARED"
"""While the table is copied, readers go on and writers wait."""

_NOT_INSTANT: Final = (1845, 1846)
"""The codes of "ALGORITHM=INSTANT is not supported", without and with a reason."""

PARTITIONED: Final = """
SELECT partition_method, partition_expression FROM information_schema.partitions
WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table
AND partition_name IS NOT NULL LIMIT 1
"""

_ENGINE: Final = text(
    "SELECT engine FROM information_schema.tables "
    "WHERE table_schema = COALESCE(:schema, DATABASE()) AND table_name = :table"
)


class MySQLSteps(Steps[MySQL]):
    """The steps on MariaDB and MySQL."""

    family = MySQL()
    # In quotes, or SQLAlchemy renders -1 as an expression, which can't be an INSTANT default.
    never_for_old_rows = f"'{NEVER_FOR_OLD_ROWS}'"

    def _alter(self, *parts: str) -> None:
        """Change only the catalogue, unless the table has to be copied."""
        self._instantly(lambda how: f"ALTER TABLE {self.table} {', '.join(parts)}, {how}")

    def _instantly(self, make: Callable[[str], str]) -> None:
        """Run a statement that is instant for most tables.

        It isn't with a FULLTEXT index, compressed rows, or indexes over expressions.

        Args:
            make: Returns the statement with its algorithm.

        Raises:
            MigrationRefusedError: The server would have to copy the table, and may not.
        """
        try:
            self.run.briefly(lambda: [make(self.family.INSTANT)])
        except DBAPIError as error:
            if code_of(error.orig) not in _NOT_INSTANT:
                raise
            if not self.may_copy:
                raise MigrationRefusedError(
                    f"Table {self.target.label} can't be changed without copying it: "
                    f"{in_short(error)} Writers wait until it is copied. Write copy_table=True if "
                    "that is acceptable, and migrate again."
                ) from error
            self.run.at_length(make(COPY))

    @property
    def _without_copy(self) -> str:
        return self.family.without_copy(is_mariadb=self.run.is_mariadb)

    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """Add the columns with constant defaults, as INSTANT requires, then set the real ones."""

        def add(since: str, how: str = self.family.INSTANT) -> str:
            # MariaDB would copy the table for a CHECK of the table, but not of its column.
            parts = ", ".join(self.missing_columns(since, never=never, check=True))
            unenforced = self.lacks(self.target.own_ttl.name) and not self.may_copy
            check = f" {self.family.NOT_ENFORCED}" * unenforced
            ending = f", {how}"
            if self.may_copy and not self.run.is_mariadb:
                ending = f" {self.family.COPY}"
            return f"ALTER TABLE {self.table} {parts}{check}{ending}"

        def statement(how: str) -> str:
            since = self.now()
            note(since)
            return add(since, how)

        if self.run.offline:
            # The instant is known only when the script runs, so the script builds the statement.
            # The placeholder is in quotes, or SQLAlchemy takes it for an expression.
            adding = add("'\0'").replace("\\", "\\\\")
            head, _, tail = (part.replace("'", "''") for part in adding.partition("'\0'"))
            for sql in (
                f"SET @ttl_odm = CONCAT('{head}', {self.family.stamp}, '{tail}')",
                "PREPARE ttl_odm FROM @ttl_odm",
                "EXECUTE ttl_odm",
                "DEALLOCATE PREPARE ttl_odm",
            ):
                self.run.at_once(sql)
        elif self.lacks(self.target.last_modified.name):
            self._instantly(statement)
        if not self.existing.stamps:
            default = self.default.removeprefix("(").removesuffix(")")
            self._alter(f"ALTER COLUMN {self.stamp} SET DEFAULT ({default})")
        if never or self.existing.ttl_default:
            self._alter(f"ALTER COLUMN {self.own} SET DEFAULT NULL")

    def settle(self) -> None:
        """Add the CHECK to a kept column, and let MySQL enforce it if it may copy the table."""
        is_kept = not (self.run.offline or self.lacks(self.target.own_ttl.name))
        if self.existing.check == "there":
            return
        if self.run.is_mariadb:
            if is_kept:
                # The column's definition again, with the CHECK: instant, unlike ADD CHECK.
                show = f"SHOW CREATE TABLE {self.table}"
                _, definition = self.run.connection.exec_driver_sql(show).one()
                line = column_line(str(definition), self.target.own_ttl.name).rstrip(",")
                check = self.target.check_sql(self.dialect)
                self._alter(f"MODIFY COLUMN {line.replace('%', '%%')} {check}")
            return
        if not self.may_copy:
            log.info(_UNENFORCED, self.target.label)
        if not is_kept:
            return
        adding = f"ADD {self.target.check_sql(self.dialect)}"
        if not self.may_copy:
            if self.existing.check == "missing":
                self._alter(f"{adding} {self.family.NOT_ENFORCED}")
            return
        if self.existing.check == "unenforced":
            adding = f"ALTER CHECK {self.quote(self.existing.check_name)} ENFORCED"
        self.run.at_length(f"ALTER TABLE {self.table} {adding} {self.family.COPY}")

    @cached_property
    def _copies_virtual(self) -> bool:
        """Whether adding or dropping virtual columns copies the table: if MariaDB partitions it."""
        if self.run.offline or not self.run.is_mariadb:
            return False
        table = self.target.table
        names = {"schema": table.schema, "table": table.name}
        return bool(self.run.connection.execute(text(PARTITIONED), names).all())

    def _alter_virtual(self, *parts: str) -> None:
        if not self._copies_virtual:
            self._alter(*parts)
            return
        self.run.at_length(f"ALTER TABLE {self.table} {', '.join(parts)}, {COPY}")

    def refuse_copies(self, sweep: Sweep | None) -> None:
        """Reject virtual columns that the engine doesn't index, or MariaDB's copying of partitions.

        MariaDB copies a partitioned table to add or drop them.
        """
        self._refuse_engine(sweep)
        virtual, complete = len(self.existing.virtual), len((INHERITED_END, OWN_END))
        changes = virtual < complete if sweep in INDEXED else virtual and sweep == "scan"
        if self.target.dates is None and changes and not self.may_copy and self._copies_virtual:
            raise MigrationRefusedError(
                f"Table {self.target.label} is partitioned, and MariaDB copies a partitioned "
                "table to add or drop the columns of the sweeper's indexes. Writers wait until "
                "it is copied. Write copy_table=True if that is acceptable. (To add TTL without "
                "them, write sweep='scan'.)"
            )

    def _refuse_engine(self, sweep: Sweep | None) -> None:
        if self.run.offline or self.target.dates is not None or sweep not in INDEXED:
            return
        table = self.target.table
        names = {"schema": table.schema, "table": table.name}
        engine = self.run.connection.scalar(_ENGINE, names)
        if engine not in (None, "InnoDB"):
            raise MigrationRefusedError(
                f"Table {self.target.label} has the engine {engine}, but only InnoDB indexes the "
                "virtual columns by which a sweep finds expired rows. Write sweep='scan' here and "
                "__ttl_sweep__ = 'scan' in the model, or convert the table first: "
                f"ALTER TABLE {self.target.plain(self.dialect)} ENGINE=InnoDB."
            )

    def add_indexes(self) -> None:
        """Add virtual columns, which is instant, then their indexes while others write."""
        if self.target.dates is None:
            target, preparer = self.target, self.dialect.identifier_preparer
            leads = self.run.offline or can_lead(self.run.connection, target)
            scope = target.scope if leads else None
            virtual = AddSweepColumns(target.table, target.last_modified, target.own_ttl, scope)
            columns = sweep_columns(virtual, preparer).items()
            missing = [sql for name, sql in columns if name not in self.existing.virtual]
            if missing:
                self._alter_virtual(*missing)
            indexes = sweep_indexes(virtual, preparer)
        else:
            indexes = {}
            for index in self.target.indexes:
                over = ", ".join(map(self.quote, index.columns.keys()))
                indexes[str(index.name)] = f"ADD INDEX {self.quote(str(index.name))} ({over})"
        for name, sql in indexes.items():
            if not self.existing.has_index(name):
                # In one statement, so that the sweeper always has an index.
                is_misled = name == self.existing.misled
                replaced = f"DROP INDEX {self.quote(name)}, " if is_misled else ""
                change = f"ALTER TABLE {self.table} {replaced}{sql}, {self._without_copy}"
                with self._building(name):
                    self.run.at_length(change)

    @contextmanager
    def _building(self, name: str) -> Iterator[None]:
        """Reject an index that can't be built or dropped while others write.

        Raises:
            MigrationRefusedError: The table's engine isn't InnoDB.
        """
        try:
            yield
        except DBAPIError as error:
            if code_of(error.orig) not in _NOT_INSTANT:
                raise
            raise MigrationRefusedError(
                f"Index {name!r} of table {self.target.label} can't be built or dropped while "
                f"others write: {in_short(error)} If writers may wait, replace this operation by "
                "op.create_index or op.drop_index with the same name."
            ) from error

    def drop_indexes(self) -> None:
        """Drop the indexes one by one, then the columns: together they would copy the table."""
        for name in reversed(self.indexes_to_drop):
            if self.is_there(name in self.existing.indexes):
                drop = f"ALTER TABLE {self.table} DROP INDEX {self.quote(name)}"
                with self._building(name):
                    self.run.briefly([f"{drop}, {self._without_copy}"])
        names = () if self.target.dates is not None else (OWN_END, INHERITED_END)
        drops = [
            f"DROP COLUMN {name}" for name in names if self.is_there(name in self.existing.virtual)
        ]
        if drops and self._copies_virtual:
            self._alter_virtual(*drops)
            return
        for drop in drops:
            self._alter(drop)

    def drop_columns(self, *, keep_ttl: bool) -> None:
        """Drop the columns, which is instant; the CHECK goes with its column."""
        stamp, own = self.target.last_modified, self.target.own_ttl
        for column in [stamp] if keep_ttl else [stamp, own]:
            if self.is_there(column.name in self.existing.columns):
                self._alter(f"DROP COLUMN {self.quote(column.name)}")

    def trigger_statements(self) -> list[str]:
        """Return the statement for a trigger that changes the row before it is written."""
        new, old = f"NEW.{self.stamp}", f"OLD.{self.stamp}"
        stamping = f"SET {new} = IF({new} <=> {old}, {self.family.stamp}, {new})"
        head = f"CREATE TRIGGER {self.schema}{self.trigger} BEFORE UPDATE ON {self.table}"
        return [f"{head} FOR EACH ROW {stamping}"]

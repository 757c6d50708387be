"""The steps of the operations, as each database does them without stalling its writers.

`Steps` says what there is to do; `ttl_odm.alembic.postgresql`, `mysql` and `sqlite` say in which
order and when, and `ttl_odm.dialects` has the statements that are the same for every ORM. Each step
looks at what exists and does what is missing, so that it can be run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlalchemy import String, literal

from ttl_odm.alembic.target_schema import as_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.target_schema import Sweep, TargetSchema
    from ttl_odm.dialects import Family

ENOUGH_FOR_OLD_ROWS = "-1"
"""The ttl that rows get which are to be left alone."""


F = TypeVar("F", bound="Family")


class Steps(ABC, Generic[F]):
    """What one database does to one table; nothing exists there while a script is written."""

    family: F

    enough_for_old_rows = ENOUGH_FOR_OLD_ROWS
    """The same as the default of a column that is added."""

    rewrites_rows = False
    """Old rows have to be written once before the operation is done."""

    may_copy = False
    """What MySQL does by copying the table only is wanted none the less."""

    def __init__(self, runner: Runner, target: TargetSchema, existing: ExistingSchema) -> None:
        """Quote the names."""
        self.run = runner
        self.target = target
        self.existing = existing
        self.dialect = runner.dialect
        preparer = runner.dialect.identifier_preparer
        schema = target.table.schema
        self.quote = preparer.quote
        self.schema = f"{preparer.quote_schema(schema)}." if schema else ""
        self.table = target.quoted(runner.dialect)
        self.default = target.default_sql(runner.dialect)
        self.stamp = self.quote(target.last_modified.name)
        self.own = self.quote(target.own_ttl.name)
        self.trigger = self.quote(target.name_of("tg_", "ttl_touch"))

    def literal(self, value: str) -> str:
        """A text as a statement has it, with its percent signs as the driver wants them."""
        return as_text(literal(value, String()), self.dialect)

    def is_there(self, exists: bool) -> bool:  # noqa: FBT001
        """Whether something is there to be dropped; a script assumes that it is."""
        return self.run.offline or exists

    def lacks(self, column: str) -> bool:
        """Whether a column is still to be added."""
        return column not in self.existing.columns

    def now(self) -> str:
        """The database's now, as a literal that a column's default may be."""
        instant = self.run.connection.exec_driver_sql(f"SELECT {self.family.stamp}").scalar()
        return str(instant)

    def missing_columns(self, since: str, *, never: bool, check: bool) -> list[str]:
        """The clauses that add the columns that are missing; see `add_columns`.

        Without ``check`` the CHECK of rows' own ttl is not its column's, but for the table to have.
        """
        stamp, own = self.target.last_modified, self.target.own_ttl
        columns = [self.target.column(stamp, self.dialect, default=since, check=False)]
        if self.lacks(own.name):
            old = self.enough_for_old_rows if never else None
            columns.append(self.target.column(own, self.dialect, default=old, check=check))
        return [f"ADD COLUMN {column}" for column in columns]

    @abstractmethod
    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """Add the columns; with ``never`` old rows get the ttl -1.

        ``note`` gets the instant from which old rows live, before they get it.
        """

    @abstractmethod
    def settle(self) -> None:
        """Whatever has to follow once old rows have what they get."""

    def replace_check(self) -> None:
        """Let the CHECK be this release's; that of earlier ones differs on SQLite alone."""

    @abstractmethod
    def add_indexes(self) -> None:
        """Add what the sweeper finds expired rows by."""

    @abstractmethod
    def drop_indexes(self) -> None:
        """Take that off."""

    @abstractmethod
    def drop_columns(self, *, keep_ttl: bool) -> None:
        """Drop the columns, or only ``_ts``."""

    @abstractmethod
    def trigger_statements(self) -> list[str]:
        """Let the database stamp a row that is written without a new ``_ts``."""

    def add_trigger(self) -> None:
        """Let the database stamp rows that others write."""
        if not self.existing.trigger:
            self.run.briefly(self.trigger_statements())

    def drop_trigger(self) -> None:
        """Take that off."""
        if self.is_there(self.existing.trigger):
            self.run.briefly([f"DROP TRIGGER IF EXISTS {self.schema}{self.trigger}"])

    def refuse_copies(self, sweep: Sweep | None) -> None:
        """Refuse what takes a copy of the table, where nobody asked for that; this only reads.

        Args:
            sweep: What becomes of the indexes; None where they stay as they are.

        Raises:
            MigrationRefusedError: With what to write.
        """

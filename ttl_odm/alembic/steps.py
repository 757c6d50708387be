"""The steps of the operations, which don't block writers on any database.

`Steps` names the steps. `ttl_odm.alembic.postgresql`, `mysql` and `sqlite` implement them, with
statements from `ttl_odm.dialects`, which are the same for every ORM. Each step compares with what
exists and adds what is missing, so it can be run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from sqlalchemy import String, literal

from ttl_odm.alembic.target_schema import as_text, is_of_sweeper

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.alembic.reflection import ExistingSchema
    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.target_schema import Sweep, TargetSchema
    from ttl_odm.dialects import Family

NEVER_FOR_OLD_ROWS = "-1"
"""SQL for the ttl of old rows that never expire."""

F_co = TypeVar("F_co", bound="Family", covariant=True)


class Steps(ABC, Generic[F_co]):
    """The steps of one database for one table."""

    family: F_co

    never_for_old_rows = NEVER_FOR_OLD_ROWS
    """SQL for the same ttl as the default of an added column."""

    rewrites_rows = False
    """Whether each old row has to be written once before the operation is done."""

    may_copy = False
    """Whether to allow changes that MySQL can make only by copying the table."""

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
        self.trigger = self.quote(existing.trigger or target.name_of("tg_", "ttl_touch"))

    def literal(self, value: str) -> str:
        """Return a text as a literal in a statement, with the driver's form of percent signs."""
        return as_text(literal(value, String()), self.dialect)

    def is_there(self, exists: bool) -> bool:  # noqa: FBT001
        """Whether something exists that can be dropped; a script assumes that it does."""
        return self.run.offline or exists

    @property
    def indexes_to_drop(self) -> list[str]:
        """The names of the sweeper's indexes, and of those that a renamed table has kept."""
        names = self.target.index_names
        if self.target.dates is not None:
            return names
        kept = (name for name in self.existing.indexes if is_of_sweeper(name))
        return [*names, *(name for name in kept if name not in names)]

    def lacks(self, column: str) -> bool:
        """Whether a column is missing."""
        return column not in self.existing.columns

    def now(self) -> str:
        """Return the database's present instant, as a literal for a column's default."""
        instant = self.run.connection.exec_driver_sql(f"SELECT {self.family.stamp}").scalar()
        return str(instant)

    def missing_columns(self, since: str, *, never: bool, check: bool) -> list[str]:
        """Return the clauses that add the missing columns; see `add_columns`.

        Args:
            since: SQL for the ``_ts`` of old rows.
            never: Whether old rows get the ttl -1.
            check: Whether the column of rows' own ttl has the CHECK; otherwise the caller adds it
                to the table.
        """
        stamp, own = self.target.last_modified, self.target.own_ttl
        columns = [self.target.column(stamp, self.dialect, default=since, check=False)]
        if self.lacks(own.name):
            old = self.never_for_old_rows if never else None
            columns.append(self.target.column(own, self.dialect, default=old, check=check))
        return [f"ADD COLUMN {column}" for column in columns]

    @abstractmethod
    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """Add the columns.

        Args:
            never: Whether old rows get the ttl -1.
            note: Called with the instant at which the lives of old rows begin, before it is
                written.
        """

    @abstractmethod
    def settle(self) -> None:
        """Finish the columns once old rows have their values."""

    def replace_check(self) -> None:
        """Replace an earlier release's CHECK by this release's; they differ only on SQLite."""

    @abstractmethod
    def add_indexes(self) -> None:
        """Add the indexes by which the sweeper finds expired rows."""

    @abstractmethod
    def drop_indexes(self) -> None:
        """Drop the sweeper's indexes."""

    @abstractmethod
    def drop_columns(self, *, keep_ttl: bool) -> None:
        """Drop the columns, or with ``keep_ttl`` only ``_ts``."""

    @abstractmethod
    def trigger_statements(self) -> list[str]:
        """Return the statements that create the trigger of `add_trigger`."""

    def add_trigger(self) -> None:
        """Let the database stamp rows that others update without a new ``_ts``.

        The trigger of a renamed table, which has kept its name, is made again under the table's.
        """
        kept = self.existing.trigger
        name = self.target.name_of("tg_", "ttl_touch")
        if kept != name:
            dropped = self.trigger_drops() if kept else []
            self.trigger = self.quote(name)
            self.run.briefly([*dropped, *self.trigger_statements()])

    def trigger_drops(self) -> list[str]:
        """Return the statements that drop the trigger."""
        return [f"DROP TRIGGER IF EXISTS {self.schema}{self.trigger}"]

    def drop_trigger(self) -> None:
        """Drop the trigger."""
        if self.is_there(bool(self.existing.trigger)):
            self.run.briefly(self.trigger_drops())

    def refuse_copies(self, sweep: Sweep | None) -> None:
        """Reject changes that copy the table, unless `may_copy`. It only reads.

        Args:
            sweep: The operation's ``sweep=``; None if the indexes stay as they are.

        Raises:
            MigrationRefusedError: With what to write.
        """

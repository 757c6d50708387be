"""The steps of the operations, as each database does them without stalling its writers.

`Steps` says what there is to do; `ttl_odm.alembic.postgresql`, `mysql` and `sqlite` say how. Each
step looks at what was found and does what is missing, so that it can be run again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from ttl_odm.alembic.target_schema import default_sql
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from ttl_odm.alembic.reflection import Found
    from ttl_odm.alembic.runner import Runner
    from ttl_odm.alembic.target_schema import Wanted

ENOUGH_FOR_OLD_ROWS = "-1"
"""The ttl that rows get which are to be left alone."""


class Steps(ABC):
    """What one database does to one table.

    Args:
        runner: runs the statements.
        wanted: what the table is to have.
        found: what it has; nothing while a script is written.
    """

    rewrites_rows = False
    """Old rows have to be written once before the operation is done."""

    def __init__(self, runner: Runner, wanted: Wanted, found: Found) -> None:
        """Spell the names."""
        self.run = runner
        self.wanted = wanted
        self.found = found
        self.dialect = runner.dialect
        self.clock = clock_of(runner.dialect)
        self.table = wanted.quoted(runner.dialect)
        self.default = default_sql(wanted.last_modified, runner.dialect)
        quote = runner.dialect.identifier_preparer.quote
        self.stamp = quote(wanted.last_modified.name)
        self.own = quote(wanted.own_ttl.name)
        self.check_name = quote(wanted.check_name)
        self.trigger = quote(wanted.name_of("tg_", "ttl_touch"))

    def there(self, found: bool) -> bool:  # noqa: FBT001
        """Whether something is there to be dropped; a script assumes that it is."""
        return self.run.offline or found

    def lacks(self, column: str) -> bool:
        """Whether a column is still to be added."""
        return column not in self.found.columns

    def now(self) -> str:
        """The database's now, as a literal that a column's default may be."""
        instant = self.run.connection.exec_driver_sql(f"SELECT {self.clock.stamp}").scalar()
        return str(instant)

    @abstractmethod
    def add_columns(self, *, never: bool, note: Callable[[str], None]) -> None:
        """Add the columns.

        Args:
            never: old rows get the ttl -1.
            note: is told the instant from which old rows live, before they get it.
        """

    @abstractmethod
    def settle(self) -> None:
        """Whatever has to follow once old rows have what they get."""

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
    def add_trigger(self) -> None:
        """Let the database stamp rows that others write."""

    @abstractmethod
    def drop_trigger(self) -> None:
        """Take that off."""

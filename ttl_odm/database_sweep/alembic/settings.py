"""The hours and the fuse of a job that sweeps a table, which its table of one row has.

They are not part of the procedure: it reads them before each batch, so an UPDATE changes them at
once, and a migration to another default leaves them as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ttl_odm.alembic.runner import MigrationRefusedError
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.options import DailyWindow

if TYPE_CHECKING:
    from ttl_odm.alembic.aspects import Operation
    from ttl_odm.alembic.runner import Runner

ALWAYS: Final = "always"
"""The window of a job that may work at any hour, to take one away."""

FLOOR: Final = 1_000
"""So many rows blow no fuse, as for a sweeper."""


@dataclass(frozen=True)
class JobSettings:
    """What an operation says of a job's settings, as columns of its table; empty for nothing.

    Attributes:
        timezone: The zone in which the window's hours are; None if no window is given.
        columns: What to set.
    """

    timezone: str | None = None
    columns: dict[str, str | float | None] = field(default_factory=dict)

    @classmethod
    def of(cls, op: Operation, label: str) -> JobSettings:
        """Check them.

        Raises:
            MigrationRefusedError: A value can't be.
        """
        columns: dict[str, str | float | None] = {}
        timezone = None
        hours, fraction = op.argument("window"), op.argument("max_fraction")
        if hours == ALWAYS:
            columns |= dict.fromkeys(("opens", "closes", "timezone"))
        elif hours is not None:
            timezone = op.argument("timezone")
            try:
                window = DailyWindow.of(hours, timezone)
            except TTLConfigurationError as error:
                raise MigrationRefusedError(f"Table {label}: {error}") from error
            columns |= {"opens": f"{window.start:%H:%M}", "closes": f"{window.end:%H:%M}"}
            columns["timezone"] = timezone
        if fraction is not None:
            if isinstance(fraction, bool) or not 0 < fraction <= 1:
                raise MigrationRefusedError(
                    f"Table {label}: max_fraction={fraction!r}: give the share of rows that may "
                    "be expired at once, more than 0 and at most 1 (1 disables the fuse)."
                )
            columns["max_fraction"] = None if fraction == 1 else float(fraction)
        return cls(timezone, columns)

    def refuse_unknown_zone(self, runner: Runner, label: str) -> None:
        """Refuse a time zone that the database does not know."""
        if self.timezone is None:
            return
        connection, name = runner.connection, self.timezone.replace("'", "''")
        if runner.dialect.name == "postgresql":
            known = f"SELECT 1 FROM pg_timezone_names WHERE name = '{name}'"
            hint = "See pg_timezone_names."
        else:
            known = f"SELECT CONVERT_TZ('2020-01-01', '+00:00', '{zone_on_mysql(name)}')"
            hint = (
                "Load the time zones: mysql_tzinfo_to_sql /usr/share/zoneinfo | mysql mysql "
                "(MariaDB: mariadb-tzinfo-to-sql)."
            )
        if connection.exec_driver_sql(known).scalar() is None:
            raise MigrationRefusedError(
                f"Table {label}: this server doesn't know timezone={self.timezone!r}. {hint}"
            )


def zone_on_mysql(name: str) -> str:
    """UTC by a name that is known also where no time zones were loaded."""
    return "+00:00" if name == "UTC" else name

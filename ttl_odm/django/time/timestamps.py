"""MariaDB's and MySQL's ``TIMESTAMP`` columns: Django reads and writes them in the session's zone.

Django takes what such a session shows for UTC. Where the clocks of its time zone are put back, two
instants show the same, so no statement can tell the rows apart, and the sweeper would leave some.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from django.db.backends.base.base import BaseDatabaseWrapper

ZONE: Final = ("time_zone", "system_time_zone")
"""The variables of a session that say its time zone."""

_FIXED: Final = re.compile(r"[+-]\d\d:\d\d|(Etc/)?UTC")
"""Time zones whose clocks never change."""

_COLUMNS: Final = (
    "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE()"
    " AND table_name = %s AND data_type = 'timestamp'"
)


def is_fixed(zone: str, system: str) -> bool:
    """Whether the clocks of a session never change.

    Args:
        zone: Its ``time_zone``.
        system: Its ``system_time_zone``, which that may refer to.
    """
    return _FIXED.fullmatch(system if zone == "SYSTEM" else zone) is not None


def check_session(connection: BaseDatabaseWrapper, table: str, columns: Collection[str]) -> None:
    """Reject a session of MariaDB or MySQL whose clocks change, if a column is a ``TIMESTAMP``.

    Raises:
        TTLConfigurationError: One of these columns of the table is.
    """
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(f'@@{name}' for name in ZONE)}")
        zone, system = cursor.fetchone()
        if is_fixed(zone, system):
            return
        cursor.execute(_COLUMNS, [table])
        kept = sorted({name for (name,) in cursor.fetchall()} & set(columns))
    if kept:
        shown = f"SYSTEM ({system})" if zone == "SYSTEM" else zone
        raise TTLConfigurationError(
            f"{table}.{kept[0]} is a TIMESTAMP, and sessions of the database {connection.alias!r} "
            f"are in the time zone {shown}, where an hour occurs twice in autumn, so instants in "
            "that hour are ambiguous. Set OPTIONS = {'init_command': \"SET time_zone = "
            "'+00:00'\"} for that database, or make the column a DATETIME."
        )

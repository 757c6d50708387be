"""MariaDB's and MySQL's ``TIMESTAMP`` columns, which must not be read in a changing time zone.

The database converts a ``TIMESTAMP`` to the session's time zone, and Django takes the result for
UTC. Where clocks are put back, two instants look the same, so no statement can tell the rows apart,
and the sweeper would leave some.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.django.policy.rules import all_rules_below
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Collection

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding

ZONE: Final = ("time_zone", "system_time_zone")
"""The session variables that hold its time zone."""

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
        system: Its ``system_time_zone``, which counts where ``time_zone`` is SYSTEM.
    """
    return _FIXED.fullmatch(system if zone == "SYSTEM" else zone) is not None


def check_timestamps(binding: Binding, connection: BaseDatabaseWrapper) -> None:
    """Check the columns that hold instants or keys, also of models whose rows expire with these.

    Raises:
        TTLConfigurationError: One of them is a ``TIMESTAMP``, and the session's clocks change.
    """
    below = (rule.model for rule in all_rules_below(binding.model))
    for model in (binding.model, *below):
        meta: Any = model._meta
        fields = [*getattr(meta, "pk_fields", [meta.pk])]
        if model is binding.model:
            fields.append(binding.stamp)
        _check_session(connection, meta.db_table, {str(field.column) for field in fields})


def _check_session(connection: BaseDatabaseWrapper, table: str, columns: Collection[str]) -> None:
    """Reject a session whose clocks change, if one of the columns is a ``TIMESTAMP``."""
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT {', '.join(f'@@{name}' for name in ZONE)}")
        zone, system = cursor.fetchone()
        if is_fixed(zone, system):
            return
        cursor.execute(_COLUMNS, [table])
        timestamps = sorted({name for (name,) in cursor.fetchall()} & set(columns))
    if timestamps:
        shown = f"SYSTEM ({system})" if zone == "SYSTEM" else zone
        raise TTLConfigurationError(
            f"{table}.{timestamps[0]} is a TIMESTAMP, and sessions of the database "
            f"{connection.alias!r} are in the time zone {shown}, where an hour occurs twice in "
            "autumn, so instants in that hour are ambiguous. Set OPTIONS = {'init_command': \"SET "
            "time_zone = '+00:00'\"} for that database, or make the column a DATETIME."
        )

"""Time-to-live for SQLAlchemy models (SQLite, PostgreSQL, MariaDB, MySQL; sync and async).

Importing this module is all the installation there is: every Session, AsyncSession and Core
connection of every engine then sees live rows only, wherever a model declares ``__ttl__``.
"""

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.declare import mapper  # noqa: F401
from ttl_odm.sqlalchemy.declare.enable import disable, enable
from ttl_odm.sqlalchemy.declare.mixin import TTLMixin
from ttl_odm.sqlalchemy.gate.compiler import enclose_handlers
from ttl_odm.sqlalchemy.gate.functions import expired, expires_at, live
from ttl_odm.sqlalchemy.objects import bulk, flush, identity_map
from ttl_odm.sqlalchemy.objects.flush import ExpiredError
from ttl_odm.sqlalchemy.objects.lifetime import (
    expire_at,
    expire_in,
    inherit_ttl,
    is_expired,
    persist,
    time_left,
    touch,
)
from ttl_odm.sqlalchemy.policy.parameters import include_expired
from ttl_odm.sqlalchemy.sweep.advisory_leases import AdvisoryLeases, AsyncAdvisoryLeases
from ttl_odm.sqlalchemy.sweep.leases import lease_table
from ttl_odm.sweeper.declarations import Archive

enclose_handlers()
# What of SQLAlchemy is replaced, and by what.
compat.install(
    {
        "session.flush": flush.flushing,
        "session.delete": flush.marking,
        "session.merge": identity_map.live_merges,
        "identity lookup": identity_map.live_lookups,
        "flush updates": flush.checking_updates,
        "flush deletes": flush.checking_deletes,
        "bulk update": bulk.stamping,
        "bulk evaluation": bulk.fetching,
    }
)

__all__ = [
    "AdvisoryLeases",
    "Archive",
    "AsyncAdvisoryLeases",
    "ExpiredError",
    "TTLMixin",
    "disable",
    "enable",
    "expire_at",
    "expire_in",
    "expired",
    "expires_at",
    "include_expired",
    "inherit_ttl",
    "is_expired",
    "lease_table",
    "live",
    "persist",
    "time_left",
    "touch",
]

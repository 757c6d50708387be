"""Time-to-live for SQLAlchemy models (SQLite, PostgreSQL, MariaDB, MySQL; sync and async).

Importing this module is all the installation there is: every Session, AsyncSession and Core
connection of every engine then sees live rows only, wherever a model declares ``__ttl__``.
"""

from ttl_odm.sqlalchemy import bulk, gate, identity, mapping, unit_of_work  # noqa: F401
from ttl_odm.sqlalchemy.enabling import disable, enable
from ttl_odm.sqlalchemy.functions import expired, expires_at, live
from ttl_odm.sqlalchemy.lifetimes import (
    expire_at,
    expire_in,
    inherit_ttl,
    is_expired,
    persist,
    time_left,
    touch,
)
from ttl_odm.sqlalchemy.mixin import TTLMixin
from ttl_odm.sqlalchemy.options import include_expired
from ttl_odm.sqlalchemy.sweeping.advisory import AdvisoryLeases, AsyncAdvisoryLeases
from ttl_odm.sqlalchemy.sweeping.leases import lease_table
from ttl_odm.sqlalchemy.sweeping.modes import Archive
from ttl_odm.sqlalchemy.unit_of_work import ExpiredError

for part in (gate, unit_of_work, identity, bulk):
    part.install()

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

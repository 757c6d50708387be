"""Time-to-live for SQLAlchemy models (SQLite, PostgreSQL, MariaDB, MySQL; sync and async).

Importing this module is all the installation there is: every Session, AsyncSession and Core
connection of every engine then sees live rows only, wherever a model declares ``__ttl__``.
"""

from ttl_odm.sqlalchemy import gate, mapping
from ttl_odm.sqlalchemy.functions import expired, expires_at, live, touch
from ttl_odm.sqlalchemy.mixin import TTLMixin
from ttl_odm.sqlalchemy.options import include_expired

gate.install()

__all__ = ["TTLMixin", "expired", "expires_at", "include_expired", "live", "touch"]

"""Time-to-live for SQLAlchemy models (SQLite, PostgreSQL, MariaDB, MySQL; sync and async).

Importing this module is the whole setup: every Session, AsyncSession and Core connection of every
engine then sees live rows only, wherever a model declares ``__ttl__``. It extends SQLAlchemy's
compiler (`ttl_odm.sqlalchemy.gate`); there is no ``do_orm_execute`` listener and no
``with_loader_criteria``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.declare import mapper
from ttl_odm.sqlalchemy.declare.enable import disable, enable
from ttl_odm.sqlalchemy.declare.mixin import TTLMixin
from ttl_odm.sqlalchemy.gate.compiler import enclose_handlers
from ttl_odm.sqlalchemy.gate.functions import expired, expires_at, live
from ttl_odm.sqlalchemy.objects import arrivals, bulk, flush, identity_map
from ttl_odm.sqlalchemy.objects.lifetime import (
    expire_at,
    expire_in,
    inherit_ttl,
    is_expired,
    persist,
    time_left,
)
from ttl_odm.sqlalchemy.objects.renewals import touch
from ttl_odm.sqlalchemy.policy.predicate import include_expired
from ttl_odm.sqlalchemy.purge.errors import ExpiredError
from ttl_odm.sqlalchemy.rewrite.from_clauses import outer_joins
from ttl_odm.sqlalchemy.sweep.advisory_leases import AdvisoryLeases, AsyncAdvisoryLeases
from ttl_odm.sqlalchemy.sweep.leases import lease_table
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from ttl_odm.database_sweep.sqlalchemy import database_jobs
    from ttl_odm.guard.sqlalchemy import guard
    from ttl_odm.guard.sqlalchemy.reports import RawSQLError, RawSQLWarning
    from ttl_odm.stored.rows import PolicyChange, StoredPolicy
    from ttl_odm.stored.sqlalchemy.changes import policy_changes, set_policy, stored_policies
    from ttl_odm.stored.sqlalchemy.tables import create_policies, policy_tables

enclose_handlers()
# The functions of SQLAlchemy that are wrapped, and the wrappers.
compat.install(
    {
        "class attribute": mapper.checking_defaults,
        "session.flush": flush.flushing,
        "session.delete": flush.marking,
        "flush order": flush.ordering,
        "session.merge": identity_map.live_merges,
        "identity lookup": identity_map.live_lookups,
        "flush objects": flush.saving,
        "flush inserts": flush.reading_stamps,
        "flush updates": flush.checking_updates,
        "flush deletes": flush.checking_deletes,
        "flush post-updates": flush.checking_post_updates,
        "flush ties": flush.releasing_secondary_rows,
        "bulk save": flush.checking_bulk_saves,
        "reload": identity_map.whole_reloads,
        "bulk update": bulk.stamping,
        "bulk evaluation": bulk.fetching,
        "bulk values": identity_map.whole_updates,
        "row receivers": arrivals.receiving,
        "eager joins": outer_joins,
    }
)

__all__ = [
    "AdvisoryLeases",
    "Archive",
    "AsyncAdvisoryLeases",
    "ExpiredError",
    "PolicyChange",
    "RawSQLError",
    "RawSQLWarning",
    "StoredPolicy",
    "TTLMixin",
    "create_policies",
    "database_jobs",
    "disable",
    "enable",
    "expire_at",
    "expire_in",
    "expired",
    "expires_at",
    "guard",
    "include_expired",
    "inherit_ttl",
    "is_expired",
    "lease_table",
    "live",
    "persist",
    "policy_changes",
    "policy_tables",
    "set_policy",
    "stored_policies",
    "time_left",
    "touch",
]

# Names that extensions define, which are imported on first use.
_EXTENSIONS: Final = {
    "PolicyChange": "ttl_odm.stored.rows",
    "RawSQLError": "ttl_odm.guard.sqlalchemy.reports",
    "RawSQLWarning": "ttl_odm.guard.sqlalchemy.reports",
    "StoredPolicy": "ttl_odm.stored.rows",
    "create_policies": "ttl_odm.stored.sqlalchemy.tables",
    "guard": "ttl_odm.guard.sqlalchemy",
    "database_jobs": "ttl_odm.database_sweep.sqlalchemy",
    "policy_changes": "ttl_odm.stored.sqlalchemy.changes",
    "policy_tables": "ttl_odm.stored.sqlalchemy.tables",
    "set_policy": "ttl_odm.stored.sqlalchemy.changes",
    "stored_policies": "ttl_odm.stored.sqlalchemy.changes",
}


def __getattr__(name: str) -> object:
    if name in _EXTENSIONS:
        return getattr(import_module(_EXTENSIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

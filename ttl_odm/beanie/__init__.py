"""The MongoDB adapter: Beanie documents with a time-to-live.

`ttl_database` returns the database for ``init_beanie``. `TTLMixin` gives a class's documents a
lifetime, and `enable` does so for classes of other packages. A write of an expired document raises
`ExpiredError`; `expires_at` asks the database when a document expires. `ensure_indexes` makes
MongoDB delete expired documents. `find_strays` and `repair_strays` handle documents of other
programs, `keep_lifetimes` Beanie's migrations. `set_policy` changes a default that the database
stores; `stored_policies` and `policy_changes` read such defaults and their history.

This package imports the core; the core and the SQL adapters never import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

from ttl_odm.beanie.declare.enable import disable, enable
from ttl_odm.beanie.declare.mixin import TTLMixin
from ttl_odm.beanie.gate.database import keep_lifetimes, ttl_database
from ttl_odm.beanie.gate.handle import keep_last_modified
from ttl_odm.beanie.indexes.ensure import ensure_indexes
from ttl_odm.beanie.indexes.strays import find_strays, repair_strays
from ttl_odm.beanie.objects.lifetime import (
    expire_at,
    expire_in,
    expires_at,
    inherit_ttl,
    persist,
    touch,
)
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.sweeper.hooks import Archive

if TYPE_CHECKING:
    from ttl_odm.stored.beanie.changes import policy_changes, set_policy, stored_policies
    from ttl_odm.stored.rows import PolicyChange, StoredPolicy

__all__ = [
    "Archive",
    "ExpiredError",
    "PolicyChange",
    "StoredPolicy",
    "TTLMixin",
    "disable",
    "enable",
    "ensure_indexes",
    "expire_at",
    "expire_in",
    "expires_at",
    "find_strays",
    "inherit_ttl",
    "keep_last_modified",
    "keep_lifetimes",
    "persist",
    "policy_changes",
    "repair_strays",
    "set_policy",
    "stored_policies",
    "touch",
    "ttl_database",
]

# The names of extensions, which are imported at their first use.
_EXTENSIONS: Final = {
    "PolicyChange": "ttl_odm.stored.rows",
    "StoredPolicy": "ttl_odm.stored.rows",
    "policy_changes": "ttl_odm.stored.beanie.changes",
    "set_policy": "ttl_odm.stored.beanie.changes",
    "stored_policies": "ttl_odm.stored.beanie.changes",
}


def __getattr__(name: str) -> object:
    if name in _EXTENSIONS:
        return getattr(import_module(_EXTENSIONS[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})

"""Stored defaults on MongoDB; imported when the first document class declares one.

- `source`: `StoredSource`, which answers all that the base asks about a collection's default.
- `lookup`: where a default is, and how it is read; `default_cache`: a process's cache of it.
- `turns`: a default, and the index by which MongoDB deletes, changed in one order.
- `changes`: reading and changing one; `previews`: a change, previewed and approved.
- `scope_ranges`: the way of a sweep from scope to scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.bindings import declared_policy
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.beanie.source import StoredSource

if TYPE_CHECKING:
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.stored import Stored


def source(binding: Binding, declared: Stored) -> StoredSource:
    """Return the source of a collection's stored default.

    Raises:
        TTLConfigurationError: The service can't store it.
    """
    del declared  # a class may change it while the application runs
    if binding.backend not in ("mongodb", "migrations"):
        model = binding.model
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {declared_policy(model)!r}: a default can be stored only "
            f"in MongoDB itself, and this is backend={binding.backend!r}: give seconds."
        )
    return StoredSource(binding)

"""Stored defaults on Django; imported when the first model declares one.

- `source`: `StoredSource`, which answers all that the base asks about a table's default.
- `lookup`: how a statement looks a default up, and how a deletion locks it.
- `fixed_scopes`: the scopes that a statement's own conditions leave to its rows.
- `scope_ranges`: the way of a sweep from scope to scope.
- `changes`: reading and changing one; `previews`: a change, previewed and approved.

The app ``ttl_odm.django.policies``, whose folder shows these modules to Django, consists of the
following ones. Models without a stored default need neither the app nor its tables.

- `models`: the two tables, which are those of `ttl_odm.stored.sqlalchemy`.
- `apps`: stores the initial defaults after ``migrate``.
- `admin`: stored defaults for people, by the application's own permissions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.stored.django.lookup import check_scope
from ttl_odm.stored.django.source import StoredSource

if TYPE_CHECKING:
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.stored import Stored


def source(binding: Binding, declared: Stored, *, where: str) -> StoredSource:  # noqa: ARG001 (as of the other adapters)
    """Return the source of a table's stored default.

    Raises:
        TTLConfigurationError: The type of the scopes' field has no form as text.
    """
    if binding.scope is not None:
        check_scope(binding.scope, where)
    return StoredSource(binding)

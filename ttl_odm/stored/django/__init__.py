"""Stored defaults on Django; imported when the first model declares one.

- `source`: all that the base asks: `StoredSource` of a table.
- `lookup`: how a statement looks a default up.
- `fixed_scopes`: the scopes that a statement's own conditions leave to its rows.
- `locks`: no default changes while a transaction deletes by it.
- `scope_index`, `scopes`, `scope_ranges`: the way of a sweep from scope to scope.
- `changes`: reading and changing stored defaults; `previews`: a change, previewed and approved.

And what the app ``ttl_odm.django.policies`` consists of, which `ttl_odm/django/policies` shows to
Django: models that store no default need neither the app nor its tables.

- `models`: the two tables, which are those of `ttl_odm.sqlalchemy`
- `apps`: makes the rows that defaults begin with, after ``migrate``
- `admin`: reading and changing stored defaults for people, by the application's own permissions
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.stored.django.lookup import check_scope
from ttl_odm.stored.django.source import StoredSource

if TYPE_CHECKING:
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.stored import Stored


def source(binding: Binding, declared: Stored, *, where: str) -> StoredSource:  # noqa: ARG001 (as of the other adapters)
    """Return the source of a table's default that the database stores.

    Raises:
        TTLConfigurationError: The field of the scopes has values of which there is no text.
    """
    if binding.scope is not None:
        check_scope(binding.scope, where)
    return StoredSource(binding)

"""The index by which a sweep comes from one scope of a stored default to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from django.db import connections

from ttl_odm.django.policy.indexes import scope_need, stored_indexes

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.dialects.indexes import IndexNeed, StoredIndex
    from ttl_odm.django.policy.bindings import Binding

    _Seen = dict[tuple[str, IndexNeed], StoredIndex]

_seen: WeakKeyDictionary[BaseDatabaseWrapper, _Seen] = WeakKeyDictionary()
"""The needs of tables that an index was seen for: they are not looked for again."""


def scope_index(binding: Binding, using: str) -> StoredIndex | None:
    """The index that the scopes' field leads; None where there is none, or can't be."""
    connection = connections[using]
    need = scope_need(binding, connection)
    if need is None:
        return None
    seen, key = _seen.setdefault(connection, {}), (binding.model._meta.db_table, need)
    if key not in seen:
        indexes = stored_indexes(connection, binding.model)
        found = next((index for index in indexes if index.leads_to(need)), None)
        if found is None:
            return None
        seen[key] = found
    return seen[key]


def forget() -> None:
    """Look for them anew from now on, for tests that change tables."""
    _seen.clear()

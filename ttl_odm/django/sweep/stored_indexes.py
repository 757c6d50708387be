"""The index by which a sweep comes from one scope of a stored default to the next.

What the catalogue is asked is in `ttl_odm.dialects.indexes`: a model says what index it wants, and
not whether its table has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from django.db import connections

from ttl_odm.dialects.indexes import IndexNeed, StoredIndex, stored_index
from ttl_odm.dialects.mysql import INHERITED_END, MySQL
from ttl_odm.django.policy.indexes import can_lead, has_contract_fields
from ttl_odm.django.time.clock import family_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.binding import Binding, Model

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


def scope_need(binding: Binding, connection: BaseDatabaseWrapper) -> IndexNeed | None:
    """What that index has to be; None where a table's sweeps don't go by scope."""
    scope, own, family = binding.scope, binding.own, family_of(connection)
    if scope is None or own is None or binding.sweep == "scan" or not has_contract_fields(binding):
        return None
    if not can_lead(scope, family):
        return None
    if isinstance(family, MySQL):
        return IndexNeed(Part.INHERITING, INHERITED_END, scope=str(scope.column))
    names = (str(binding.stamp.column), str(own.column), str(scope.column))
    return IndexNeed(Part.INHERITING, *names)


def stored_indexes(connection: BaseDatabaseWrapper, model: Model) -> list[StoredIndex]:
    """The indexes of a model's table as the database's catalogue has them."""
    # How one names a table of another schema in Django: '"schema"."table"', in the middle at least.
    schema, _, name = model._meta.db_table.strip('"').rpartition('"."')
    query: Any = family_of(connection).indexes_query(schema or None, name)
    with connection.cursor() as cursor:
        cursor.execute(query)
        names = [str(column[0]).lower() for column in cursor.description]
        return [stored_index(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]

"""The indexes that a table has in the database, and the one that leads a sweep from scope to scope.

What the catalogue is asked is in `ttl_odm.dialects.indexes`: a model says what index it wants, and
not whether its table has it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.dialects.indexes import IndexNeed, StoredIndex, stored_index
from ttl_odm.dialects.mysql import INHERITED_END, MySQL
from ttl_odm.django.policy.indexes import can_lead, has_contract_fields
from ttl_odm.django.time.clock import family_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding, Model


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

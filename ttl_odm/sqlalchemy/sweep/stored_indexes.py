"""The indexes that a table has in the database, and which of them lead to its expired rows.

A table that lacks one that it needs (`needs_of`) is walked. What the catalogue is asked, and what
makes an index one that leads there, is in `ttl_odm.dialects.indexes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from sqlalchemy import Table, inspect, text

from ttl_odm.dialects.indexes import IndexNeed, StoredIndex, stored_index
from ttl_odm.dialects.mysql import INHERITED_END, OWN_END, MySQL
from ttl_odm.sqlalchemy.policy.schema import can_lead
from ttl_odm.sqlalchemy.sweep.transactions import prepared, reading
from ttl_odm.sqlalchemy.sweep.whereabouts import name_of
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

    from ttl_odm.dialects import Family
    from ttl_odm.sqlalchemy.policy.binding import Binding


_Seen = dict["IndexNeed", StoredIndex]

_seen: WeakKeyDictionary[Table, WeakKeyDictionary[Dialect, _Seen]] = WeakKeyDictionary()
"""The needs that an index was seen for, and where: they are not looked for again."""


def needs_of(binding: Binding, family: Family) -> list[IndexNeed]:
    """The indexes that lead to all expired rows of a table; none where indexes can't do that.

    Rows whose own ttl is in a column of the application's, and NULLs that are expired, are in no
    index at the place where they end.
    """
    stamp, own, limit = binding.last_modified, binding.override, binding.max_lifetime
    if binding.nulls_expire or (own is not None and not binding.instants.native):
        return []
    if own is None:
        needs = [IndexNeed(Part.INHERITING, stamp.name)]
    elif not family.indexes_parts:
        return []
    elif isinstance(family, MySQL):  # which have no partial indexes, but virtual columns
        needs = [IndexNeed(Part.INHERITING, INHERITED_END), IndexNeed(Part.OWN, OWN_END)]
    else:
        needs = [IndexNeed(part, stamp.name, own.name) for part in (Part.INHERITING, Part.OWN)]
    scope = None if binding.source.scoping is None else binding.discriminator
    if own is not None and scope is not None and can_lead(scope, family):
        needs[0] = needs[0]._replace(scope=scope.name)
    return needs if limit is None else [*needs, IndexNeed(Part.CAPPED, limit.created.name)]


def is_walked(connection: Connection, binding: Binding) -> bool:
    """Whether a sweep has to walk a table: it was declared so, or lacks an index.

    The connection is fresh from the pool. The database is asked until it has all that are needed.
    """
    needs = needs_of(binding, clock_of(connection.dialect))
    if binding.sweep == "scan" or not needs:
        return True
    seen = seen_indexes(connection, binding, needs)
    return not all(need in seen or need.least in seen for need in needs)


def seen_indexes(connection: Connection, binding: Binding, needs: Sequence[IndexNeed]) -> _Seen:
    """The needs for which the database has an index, or has had one.

    The connection is fresh from the pool.
    """
    places = _seen.setdefault(binding.table, WeakKeyDictionary())
    seen = places.setdefault(connection.dialect, {})
    if any(need not in seen for need in needs):
        with prepared(connection), reading(connection):
            stored = stored_indexes(connection, binding.table)
        every = {*needs, *(need.least for need in needs)}
        seen |= {need: index for need in every for index in stored if index.leads_to(need)}
    return seen


def is_narrowed(connection: Connection, binding: Binding, source: Table) -> bool:
    """Whether a walk need not go through all of a table, or of a child of one, on PostgreSQL."""
    needs = needs_of(binding, clock_of(connection.dialect))
    return len(needs) == 1 and any(
        index.narrows(needs[0]) for index in stored_indexes(connection, source)
    )


def stored_indexes(connection: Connection, table: Table) -> list[StoredIndex]:
    """The indexes of a table as the database's catalogue has them.

    By SQLAlchemy's inspector only where the database isn't one of ours: it warns of indexes over
    expressions on SQLite, and knows neither which are valid nor how they are ordered.
    """
    schema, name = name_of(connection, table)
    family = clock_of(connection.dialect)
    query = family.indexes_query(schema, name)
    if query is not None:
        rows = connection.execute(text(query.replace(":", "\\:"))).mappings()
        return [stored_index({key.lower(): value for key, value in row.items()}) for row in rows]
    if not family.is_inspected:
        return []
    return [
        StoredIndex(str(index["name"]), index["column_names"][0], "", True, True, "")  # noqa: FBT003
        for index in inspect(connection).get_indexes(name, schema)
    ]

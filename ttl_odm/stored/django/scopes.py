"""Which scopes of a stored default have expired rows, by an index that the scope leads.

As `ttl_odm.stored.sqlalchemy.scopes`: one statement goes from one scope to the next by the index,
many scopes at once, and looks at the first entry of each. Whoever has nothing to delete costs a few
look-ups, however many rows there are.

That entry is compared outside of its look-up, and MariaDB and MySQL find the scopes by DISTINCT:
these search an index by no bound that comes from another row, and would read all entries to find
none that is old enough.
"""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from django.db import connections

from ttl_odm.django.time import clock
from ttl_odm.stored.django.lookup import age_of
from ttl_odm.stored.scope_walk import AT_ONCE, all_due, looked_at

if TYPE_CHECKING:
    from collections.abc import Iterator

    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.dialects.indexes import StoredIndex
    from ttl_odm.django.policy.bindings import Binding
    from ttl_odm.stored.scope_walk import Scope, Scopes


def due_in_scopes(binding: Binding, using: str, index: StoredIndex) -> Iterator[Scope]:
    """Find all scopes with rows to delete, but for the rows that are of none."""
    return chain.from_iterable(all_due(partial(next_scopes, binding, using, index)))


def next_scopes(binding: Binding, using: str, index: StoredIndex, after: Any) -> Scopes:
    """Look at the scopes that follow one (None: at the first ones)."""
    connection = connections[using]
    family, earliest = clock.family_of(connection), clock.earliest(connection, "instant")
    looked = _looked(connection, binding, index, is_first=after is None)
    cutoff = clock.ago(connection, "instant", "ttl_age")
    # Nothing can be taken from minus infinity.
    began = f"CASE WHEN ttl_began < {earliest} THEN {earliest} ELSE ttl_began END"
    columns = f"ttl_of, ttl_age, {family.bookmark(cutoff)}, {cutoff} - {began}"
    statement = f"SELECT {columns} FROM ({looked}) ttl_looked ORDER BY ttl_number"  # noqa: S608 (names that Django quotes)
    with connection.cursor() as cursor:
        cursor.execute(statement, [] if after is None else [after])
        return looked_at(cursor.fetchall(), family.per_second)


def _looked(
    connection: BaseDatabaseWrapper, binding: Binding, index: StoredIndex, *, is_first: bool
) -> str:
    """The next scopes in order, the age at which their rows expire, and where the first began."""
    quote = connection.ops.quote_name
    assert binding.scope is not None  # noqa: S101 (or there are no scopes)
    assert binding.own is not None  # noqa: S101 (nor such an index)
    table, scope = quote(binding.model._meta.db_table), quote(str(binding.scope.column))
    stamp, own = quote(str(binding.stamp.column)), quote(str(binding.own.column))
    end = clock.family_of(connection).part_end(f"r.{stamp}")
    # On MariaDB and MySQL the index has all rows: those that don't inherit have no end in it.
    is_mysql = connection.vendor == "mysql"
    inherits = f"{end} IS NOT NULL" if is_mysql else f"r.{own} IS NULL"
    # By both, or MySQL sorts.
    first = f"r.{scope} = w.ttl_of AND {inherits} ORDER BY r.{scope}, {end} LIMIT 1"
    began = f"SELECT {end} FROM {table} r WHERE {first}"  # noqa: S608 (as above)
    age = age_of(connection, binding, "w.ttl_of", index.collation)
    looked = f"w.ttl_of, w.ttl_number, {age} AS ttl_age, ({began}) AS ttl_began"
    follows = f"r.{scope} IS NOT NULL" if is_first else f"r.{scope} > %s"
    if is_mysql:  # which skip from one value to the next themselves
        scopes = f"DISTINCT r.{scope} AS ttl_of, r.{scope} AS ttl_number"
        walk = f"SELECT {scopes} FROM {table} r WHERE {follows} ORDER BY r.{scope} LIMIT {AT_ONCE}"  # noqa: S608 (as above)
        return f"SELECT {looked} FROM ({walk}) w"  # noqa: S608 (as above)

    def following(condition: str) -> str:
        rows = f"FROM {table} r WHERE {inherits} AND {condition}"
        return f"(SELECT r.{scope} {rows} ORDER BY r.{scope} LIMIT 1)"

    more = f"SELECT {following(f'r.{scope} > w.ttl_of')}, w.ttl_number + 1"
    more = f"{more} FROM ttl_walk w WHERE w.ttl_of IS NOT NULL AND w.ttl_number < {AT_ONCE}"
    walk = f"ttl_walk (ttl_of, ttl_number) AS (SELECT {following(follows)}, 1 UNION ALL {more})"
    return f"WITH RECURSIVE {walk} SELECT {looked} FROM ttl_walk w WHERE w.ttl_of IS NOT NULL"  # noqa: S608 (as above)

"""Fields of Django's models whose numbers are in another unit than the policy reads.

What it says is in `ttl_odm.sweeper.units`. It reads the first and the last rows by primary key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from django.db import connections

from ttl_odm.core.policy import TTL
from ttl_odm.sweeper.units import misread_instants, misread_lifetimes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.binding import Binding
    from ttl_odm.sweeper.units import Misread

_SAMPLE: Final = 500


def misread(binding: Binding, alias: str) -> Iterator[Misread]:
    """Find fields of a policy whose values are in another unit."""
    policy, columns = binding.policy, []
    if policy.unit not in (None, "iso"):
        columns.append(str(binding.stamp.column))
    if binding.own is not None:
        columns.append(str(binding.own.column))
    if not columns:
        return
    values = _values(binding, alias, columns)
    nevers = policy.never if isinstance(policy, TTL) else ()
    for column, found in values.items():
        if binding.own is not None and column == binding.own.column:
            lifetimes = [value for value in found if value not in nevers]
            wrong = misread_lifetimes(column, lifetimes)
        else:
            wrong = misread_instants(column, policy.unit, found)
        if wrong is not None:
            yield wrong


def _values(binding: Binding, alias: str, columns: list[str]) -> dict[str, list[object]]:
    connection, meta = connections[alias], binding.model._meta
    quote: Any = connection.ops.quote_name
    key = quote(str(meta.pk.column))
    names = ", ".join([key, *map(quote, columns)])
    rows: dict[object, tuple[object, ...]] = {}
    with connection.cursor() as cursor:
        for order in ("", " DESC"):
            cursor.execute(
                f"SELECT {names} FROM {quote(meta.db_table)} "  # noqa: S608 (names, quoted)
                f"ORDER BY {key}{order} LIMIT {_SAMPLE}"
            )
            rows |= {row[0]: row[1:] for row in cursor.fetchall()}
    return {column: [row[place] for row in rows.values()] for place, column in enumerate(columns)}

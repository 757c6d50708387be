"""Locking stored defaults for a transaction that deletes by them.

As in `ttl_odm.stored.sqlalchemy.locks`, with which programs share the tables: whoever
changes any default of a table locks the row of the table's own default, and whoever deletes by one
locks it, shared, before a row is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import DatabaseError, connections

from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.django.policy.stored import check_app, name_of, sharing
from ttl_odm.stored.rows import MAY_SHARE, POLICIES, WHOLE_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ttl_odm.django.policy.binding import Binding


def lock_defaults(bindings: Iterable[Binding], using: str) -> None:
    """Lock the stored defaults of tables, shared, until the transaction ends.

    Those whose defaults aren't stored are ignored.
    """
    stored = {name_of(binding): binding for binding in bindings if binding.is_stored}
    connection = connections[using]
    share = sharing(connection)
    if not stored or not share:
        return
    quote = connection.ops.quote_name
    row = f"SELECT {quote('ttl')} FROM {quote(POLICIES)} "  # noqa: S608 (names that Django quotes)
    row += f"WHERE {quote('name')} = %s AND {quote('scope')} = %s{share}"
    with connection.cursor() as cursor:
        for name in sorted(stored):  # in one order, or two transactions deadlock
            check_app(stored[name])
            try:
                cursor.execute(row, [name, WHOLE_TABLE])
            except DatabaseError as error:
                if not is_forbidden(error.__cause__):
                    raise
                raise type(error)(f"{error}: {MAY_SHARE}") from error.__cause__

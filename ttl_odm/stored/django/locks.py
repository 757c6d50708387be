"""Locking stored defaults for a transaction that deletes by them.

As in `ttl_odm.stored.sqlalchemy.locks`, with which programs share the tables: whoever changes any
default of a table locks the row of the table's own default, and whoever deletes by one locks it,
shared, before a row is judged.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import DatabaseError

from ttl_odm.dialects.errors import is_forbidden
from ttl_odm.stored.django.lookup import name_of, sharing
from ttl_odm.stored.rows import MAY_SHARE, POLICIES, WHOLE_TABLE

if TYPE_CHECKING:
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Binding


def lock_row(connection: BaseDatabaseWrapper, binding: Binding) -> None:
    """Lock the row that stands for all stored defaults of a table, shared.

    Raises:
        DatabaseError: The database's, with the fix where its user may not.
    """
    quote = connection.ops.quote_name
    row = f"SELECT {quote('ttl')} FROM {quote(POLICIES)} "  # noqa: S608 (names that Django quotes)
    row += f"WHERE {quote('name')} = %s AND {quote('scope')} = %s{sharing(connection)}"
    with connection.cursor() as cursor:
        try:
            cursor.execute(row, [name_of(binding), WHOLE_TABLE])
        except DatabaseError as error:
            if not is_forbidden(error.__cause__):
                raise
            raise type(error)(f"{error}: {MAY_SHARE}") from error.__cause__

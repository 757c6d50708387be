"""Whether a table lets a write be tried, and what stands behind the VALUES of such an INSERT.

A write that meets a taken key as it is would end a transaction of PostgreSQL, and on InnoDB leave a
shared lock of that key, over which two writers of it block each other. What
`ttl_odm.dialects.Family` has for an INSERT does neither. The database is asked, once for each
table, whether something in it that Django doesn't know of forbids that.

This module must not know which keys a write takes.
"""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.django.purge.errors import is_denied
from ttl_odm.django.time.clock import family_of

if TYPE_CHECKING:
    from django.db import DatabaseError
    from django.db.backends.base.base import BaseDatabaseWrapper

    from ttl_odm.django.policy.bindings import Model

_READ_COMMITTED: Final = {"READ_COMMITTED", "READ_UNCOMMITTED"}

_answers: dict[tuple[str, str, str], bool] = {}
"""What databases have said of their tables, by alias, name of the database, and table."""


def are_allowed(connection: BaseDatabaseWrapper, table: str, *, anew: bool = False) -> bool:
    """Whether a failed or short write of a table leaves nothing behind.

    Args:
        connection: That of the write, in its transaction.
        table: As Django's ``db_table`` has it.
        anew: Ask the database, although it has been asked.
    """
    key = name_of(connection, table)
    answer = None if anew else _answers.get(key)
    if answer is None:
        answer = _answers[key] = _ask(connection, table)
    return answer


def are_declined(connection: BaseDatabaseWrapper, table: str, error: DatabaseError) -> bool:
    """Whether an error is about what stands behind the VALUES: nothing does from now on.

    After another error the database is asked about the table anew: somebody may have made a key of
    it deferrable.
    """
    denied = is_denied(error)  # an ON DUPLICATE KEY UPDATE, for a user who may not update
    if denied:
        _answers[name_of(connection, table)] = False
    else:
        _answers.pop(name_of(connection, table), None)
    return denied


def forget() -> None:
    """Ask anew from now on, for tests that change tables."""
    _answers.clear()


def name_of(connection: BaseDatabaseWrapper, table: str) -> tuple[str, str, str]:
    """What tells a table from those of other databases."""
    return connection.alias, str(connection.settings_dict["NAME"]), table


def _ask(connection: BaseDatabaseWrapper, table: str) -> bool:
    family = family_of(connection)
    if not family.tries_inserts:
        return False
    # How one names a table of another schema in Django: '"schema"."table"', in the middle at least.
    schema, _, name = table.strip('"').rpartition('"."')
    rows = read(connection, family.takes_tried_inserts(schema or None, name))
    return bool(rows and rows[0][0])


def read(connection: BaseDatabaseWrapper, query: str) -> list[Any]:
    """The rows of a query to the database's catalogue."""
    connection.ensure_connection()
    connection.validate_no_broken_transaction()
    # Not connection.cursor(), which tells those who count an application's queries.
    with connection.wrap_database_errors, closing(connection.create_cursor()) as cursor:
        cursor.execute(query)
        return list(cursor.fetchall())


def suffix(connection: BaseDatabaseWrapper, model: Model) -> str | None:
    """What stands behind the VALUES of a tried INSERT; None where that is nothing."""
    template = family_of(connection).on_conflict
    if template is None:
        return None
    quote, meta = connection.ops.quote_name, model._meta
    column = quote(str(meta.pk_fields[0].column))
    return template.replace("{table}", quote(meta.db_table)).replace("{column}", column)


def fit_isolation(connection: BaseDatabaseWrapper) -> bool:
    """Whether a transaction may try INSERTs.

    Above READ COMMITTED PostgreSQL answers them with a serialization failure, where the key is that
    of a row that the transaction doesn't see, and other INSERTs with an `IntegrityError`.
    """
    if connection.vendor != "postgresql":
        return True
    level: Any = getattr(connection, "isolation_level", None)
    return getattr(level, "name", "READ_COMMITTED") in _READ_COMMITTED

"""Tables, as SQLAlchemy hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, Table


def key_columns(table: Table) -> Sequence[Column[Any]]:
    """The primary key of a table.

    Raises:
        TTLConfigurationError: It has none.
    """
    columns = list(table.primary_key.columns)
    if not columns:
        raise TTLConfigurationError(
            f"Table {table.fullname!r} has no primary key, so its expired rows can't be named; "
            "declare primary_key=True on its key columns."
        )
    return columns

"""Stored defaults on SQLAlchemy; imported when the first model declares one.

- `source`: `StoredSource`, which answers all that the base asks about a table's default.
- `tables`: the tables that keep the defaults and their changes.
- `lookup`: how a statement looks a default up, and how a deletion locks it.
- `one_scope`: a statement that reads one scope only.
- `default_cache`: what a process knows of the defaults, for rows in memory.
- `stored_default`: the default of a table, or of one of its scopes.
- `changes`: reading and changing one; `previews`: a change, previewed and approved.
- `scope_ranges`: the way of a sweep from scope to scope.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy import Enum, Integer, String, TypeDecorator, Uuid

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.sqlalchemy.source import StoredSource

if TYPE_CHECKING:
    from ttl_odm.sqlalchemy.policy.bindings import Binding
    from ttl_odm.stored import Stored


def source(binding: Binding, declared: Stored) -> StoredSource:
    """Return the source of a table's stored default.

    Raises:
        TTLConfigurationError: The type of the scopes' column has no form as text.
    """
    if declared.by is not None and binding.origin is None:
        column = binding.discriminator
        assert column is not None  # noqa: S101 (it is what `by` names)
        is_odd = isinstance(column.type, (Enum, TypeDecorator))
        if is_odd or not isinstance(column.type, (String, Integer, Uuid)):
            raise TTLConfigurationError(
                f"{binding.name}.__ttl__: column {column.name!r} is {column.type!r}; scopes of "
                "stored defaults are text, so by= needs a column of text, whole numbers or UUIDs."
            )
    return StoredSource(binding, has_scopes=declared.by is not None)

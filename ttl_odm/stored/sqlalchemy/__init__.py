"""Stored defaults on SQLAlchemy; imported when the first model declares one.

- `source`: all that the base asks: `StoredSource` of a table.
- `tables`: the tables that keep the defaults and their changes.
- `lookup`: how a statement looks a default up; `one_scope`: which reads one scope only.
- `default_cache`: what a process knows of them, for rows in memory.
- `locks`: no default changes while a transaction deletes by it.
- `stored_default`: which default somebody means.
- `changes`: reading and changing one; `previews`: a change, previewed and made as approved.
- `scopes`, `scope_ranges`: the way of a sweep from scope to scope.
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
    """Return the source of a table's default that the database stores.

    Raises:
        TTLConfigurationError: The column of the scopes has values of which there is no text.
    """
    if declared.by is not None and binding.origin is None:
        _check_scope(binding)
    return StoredSource(binding, has_scopes=declared.by is not None)


def _check_scope(binding: Binding) -> None:
    column = binding.discriminator
    assert column is not None  # noqa: S101 (it is what `by` names)
    is_odd = isinstance(column.type, (Enum, TypeDecorator))
    if is_odd or not isinstance(column.type, (String, Integer, Uuid)):
        raise TTLConfigurationError(
            f"{binding.name}.__ttl__: column {column.name!r} is {column.type!r}; scopes of stored "
            "defaults are text, so by= needs a column of text, whole numbers or UUIDs."
        )

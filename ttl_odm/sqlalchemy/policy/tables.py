"""Tables, as SQLAlchemy hands them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, Table


Element = TypeVar("Element")


def original(element: Element) -> Element:
    """A FROM element without the ORM's wrapping, or the element itself where it has none.

    Inside ORM statements a `Table` comes wrapped ("annotated"). The wrapping has a ``__dict__``
    and an identity of its own, so whatever is kept on the Table or compared with it is asked of
    the original.
    """
    found: Any = getattr(element, "_Annotated__element", element)
    return found  # type: ignore[no-any-return]


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

"""Tables, as SQLAlchemy hands them out."""

from __future__ import annotations

from typing import Any, TypeVar

Element = TypeVar("Element")


def original(element: Element) -> Element:
    """A FROM element without the ORM's wrapping, or the element itself where it has none.

    Inside ORM statements a `Table` comes wrapped ("annotated"). The wrapping has a ``__dict__``
    and an identity of its own, so whatever is kept on the Table or compared with it is asked of
    the original.
    """
    found: Any = getattr(element, "_Annotated__element", element)
    return found  # type: ignore[no-any-return]

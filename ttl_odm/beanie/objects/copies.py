"""What a document in memory knows of the stored one that it is a copy of: its key, and its end.

Beanie's `save()` is an upsert: it inserts what it doesn't find. For a document that was read or
written before, and has expired since, that would bring the old content back; for one that was never
stored it is right. So a document remembers that it was stored, under which key, and with which
values that say when it expires: a changed date must not hide that the old one has passed.

Beanie calls `_save_state` after each read and each write, which has to be quick. What is kept is a
private attribute of pydantic's, so that copies and pickles have it; it is equal to any other, so
that documents are compared as before. This module must not know how the gate works.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pydantic import BaseModel
from pydantic.fields import ModelPrivateAttr

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beanie import Document

_NAME: Final = "_ttl_copy"
_NAMES: Final = "_ttl_deciding"
"""The attribute of a class with the fields that say when its documents expire."""


@dataclass(frozen=True, slots=True, eq=False)
class Copy:
    """The key that a stored document had, and the values of the fields by which it expires.

    It is not certain of a write in a transaction, which may not have been committed, or of one that
    was left to a bulk writer.
    """

    key: object
    held: Mapping[str, object]
    is_certain: bool = True

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Copy)

    __hash__ = None  # type: ignore[assignment]


_NOWHERE: Final = Copy(None, {})
"""What a document has of which nobody knows whether it is stored."""


def prepare(model: Any, paths: Sequence[str]) -> None:
    """Have the documents of a class remember, by the paths of the fields that decide."""
    setattr(model, _NAMES, tuple(tuple(path.split(".")) for path in paths))
    attribute = ModelPrivateAttr(default_factory=lambda: _NOWHERE)
    model.__private_attributes__.setdefault(_NAME, attribute)


def remember(document: Any, *, is_certain: bool = True, **known: object) -> None:
    """Take note that a document is stored as it is now, but for the fields that are known better.

    What wasn't certain isn't by being noted once more.
    """
    names = getattr(type(document), _NAMES, None)
    private = document.__pydantic_private__
    if names is None or private is None or (key := document.id) is None:
        return
    held = {name: _held(document, path) for path in names for name in (".".join(path),)} | known

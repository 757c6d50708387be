"""The models of kinds of documents of their own: those that may be deleted softly.

They are made as those of `tests.leaks_mongo.models` are, of which they know nothing.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from beanie import Document, Link

from tests.leaks.data import HOUR

if TYPE_CHECKING:
    from tests.leaks_mongo.worlds import Bases


def make_kinds(bases: Bases) -> SimpleNamespace:
    """Make all models; they are the attributes of what is returned."""
    soft: Any = bases.soft

    class Memo(*soft):
        __ttl__ = HOUR
        id: int
        name: str
        size: int = 0

        class Settings:
            name = "Memo"

    class Folder(Document):
        id: int
        memos: list[Link[Memo]] = []

        class Settings:
            name = "Folder"

    return SimpleNamespace(**{name: made for name, made in locals().items() if name[0].isupper()})

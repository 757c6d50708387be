"""The registry of the paths on MongoDB; what a path is stands in `tests.leaks.registry`.

A path is an asynchronous function of a world (the models, see `tests.leaks_mongo.worlds`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.leaks.registry import Registry
from tests.mongo.scratch import BEANIE

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterable

LINE = "2" if BEANIE >= 2 else "1.30"
"""Which line of Beanie this is, as `Path.without` names it."""

_MONGO = Registry("tests.leaks_mongo")
path = _MONGO.path
all_paths = _MONGO.all_paths


def keys(documents: Iterable[Any]) -> list[Any]:
    """The keys of documents (of Beanie's, or raw ones), in an order that is the same everywhere."""
    return sorted(key(each) for each in documents)


def key(document: Any) -> Any:
    """The key of one document; None of none."""
    if document is None:
        return None
    return document["_id"] if isinstance(document, dict) else document.id


async def failure(doing: Awaitable[Any]) -> str | None:
    """The kind of error that comes out, if one does."""
    try:
        await doing
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return type(error).__name__
    return None


async def refused(doing: Awaitable[Any]) -> bool:
    """Whether Beanie says that the document isn't there.

    Beanie says that in many ways: in `update()` it is an AttributeError, because it takes the
    document for granted that the server didn't return.
    """
    from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged

    try:
        await doing
    except (DocumentNotFound, RevisionIdWasChanged, AttributeError):
        return True
    return False

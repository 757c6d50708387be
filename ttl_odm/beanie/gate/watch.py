"""How the gate tells a document's own write whether it found the document.

Beanie's instance methods go through queries, and make of "nothing matched" whatever they make of
it (`instance.set()` ends in an AttributeError). So the mixin leaves a `WriteWatch` in the context,
and the gate notes in it what became of the document.

This module must not know Beanie, nor what is done about a document that is gone.
"""

from __future__ import annotations

from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


@dataclass(slots=True)
class WriteWatch:
    """One write of one document.

    Attributes:
        collection: The full name of its collection.
        key: Its ``_id``, None if it has none yet.
        found: Whether there was such a document; None as long as nobody has looked.
        inserted: What was inserted, as it was stamped.
    """

    collection: str
    key: object
    found: bool | None = None
    inserted: Mapping[str, Any] | None = None


_watch: ContextVar[WriteWatch | None] = ContextVar("ttl_odm_watch", default=None)


@contextmanager
def watching(collection: str, key: object) -> Iterator[WriteWatch]:
    """WriteWatch the write inside."""
    watch = WriteWatch(collection, key)
    token = _watch.set(watch)
    try:
        yield watch
    finally:
        _watch.reset(token)


def note_found(collection: str, given: Any, *, found: bool) -> None:
    """Note whether a write by this filter found its document."""
    watch = _watch.get()
    if watch is not None and watch.collection == collection and given.get("_id") == watch.key:
        watch.found = found


def note_inserted(collection: str, document: Mapping[str, Any]) -> None:
    """Note what was inserted."""
    watch = _watch.get()
    if (
        watch is not None
        and watch.collection == collection
        and watch.key in (None, document.get("_id"))
    ):
        watch.inserted = document

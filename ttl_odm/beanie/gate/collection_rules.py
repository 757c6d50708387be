"""The half of a `Rule` that reads and writes ask: `CollectionRule`.

This module must not know which extensions exist, nor which driver is used.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Protocol

from ttl_odm.beanie.policy.rules import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pymongo.asynchronous.cursor import AsyncCursor
    from pymongo.results import (
        BulkWriteResult,
        DeleteResult,
        InsertManyResult,
        InsertOneResult,
        UpdateResult,
    )

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.bulk import Request
    from ttl_odm.beanie.gate.cursors import Judging
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.rewrite.stamps import Update


class Methods(Protocol):
    """The methods of a collection whose calls go to the gate; a `Gate` has them."""

    async def count_documents(self, filter: Filter, **options: object) -> int:
        """Count live documents."""
        ...

    async def estimated_document_count(self, **options: object) -> int:
        """Count live documents, one by one."""
        ...

    async def distinct(
        self, key: str, filter: Filter | None = None, **options: object
    ) -> list[object]:
        """Return the values of a field in live documents."""
        ...

    async def insert_one(self, document: Document, **options: object) -> InsertOneResult:
        """Insert a document."""
        ...

    async def insert_many(
        self, documents: Iterable[Document], *, ordered: bool = True, **options: object
    ) -> InsertManyResult:
        """Insert documents."""
        ...

    async def delete_one(self, filter: Filter, **options: object) -> DeleteResult:
        """Delete a live document."""
        ...

    async def delete_many(self, filter: Filter, **options: object) -> DeleteResult:
        """Delete live documents."""
        ...

    async def update_one(self, filter: Filter, update: Update, **options: object) -> UpdateResult:
        """Update a live document."""
        ...

    async def update_many(self, filter: Filter, update: Update, **options: object) -> UpdateResult:
        """Update live documents."""
        ...

    async def replace_one(
        self, filter: Filter, replacement: Filter, **options: object
    ) -> UpdateResult:
        """Replace a live document."""
        ...

    async def find_one_and_delete(self, filter: Filter, **options: object) -> Document | None:
        """Delete a live document and return it."""
        ...

    async def find_one_and_update(
        self, filter: Filter, update: Update, **options: object
    ) -> Document | None:
        """Update a live document and return it."""
        ...

    async def find_one_and_replace(
        self, filter: Filter, replacement: Filter, **options: object
    ) -> Document | None:
        """Replace a live document and return it."""
        ...

    async def bulk_write(
        self, requests: Sequence[Request], *, ordered: bool = True, **options: object
    ) -> BulkWriteResult:
        """Send many writes, each of which does what its own method would do."""
        ...


class CollectionRule(Rule):
    """A rule for reads and writes."""

    @abstractmethod
    def methods(self, handle: Handle) -> Methods:
        """Return the methods of its collection, for one call."""

    @abstractmethod
    def finds(self, handle: Handle, cursor: AsyncCursor[Document]) -> Judging:
        """Make a cursor find live documents only, before it has sent its command.

        The cursor is PyMongo's, synchronous or not. Returns how its documents are judged when they
        are read.
        """


def rule_of(handle: Handle) -> CollectionRule | None:
    """Return the rule of a collection, None if it has none, or nothing enforces it."""
    if not handle.registry.has_rules:  # as in most applications
        return None
    entry = handle.entry
    return entry if isinstance(entry, CollectionRule) and not entry.enforced_by_others else None

"""What a rule makes of reads and writes: `CollectionRule`, the half of `Rule` that the gate asks.

This module must not know which extensions there are, nor which driver it is.
"""

# ruff: noqa: A002 - `filter` is the drivers' own name for it

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Protocol

from ttl_odm.beanie.policy.rules import Rule

if TYPE_CHECKING:
    from pymongo.asynchronous.cursor import AsyncCursor
    from pymongo.results import BulkWriteResult, DeleteResult, InsertManyResult, InsertOneResult

    from ttl_odm.beanie.drivers import Document, Filter
    from ttl_odm.beanie.gate.cursors import Judging
    from ttl_odm.beanie.gate.handle import Handle
    from ttl_odm.beanie.rewrite.stamps import Update


class Methods(Protocol):
    """The methods of a collection that are handed over: a `Gate` has them, for a policy or none."""

    async def count_documents(self, filter: Filter, **options: Any) -> int:
        """Count live documents."""
        ...

    async def estimated_document_count(self, **options: Any) -> int:
        """Count live documents, one by one."""
        ...

    async def distinct(self, key: str, filter: Filter | None = None, **options: Any) -> list[Any]:
        """Return the values of a field in live documents."""
        ...

    async def insert_one(self, document: Filter, **options: Any) -> InsertOneResult:
        """Insert a document."""
        ...

    async def insert_many(
        self, documents: Any, *, ordered: bool = True, **options: Any
    ) -> InsertManyResult:
        """Insert documents."""
        ...

    async def delete_one(self, filter: Filter, **options: Any) -> DeleteResult:
        """Delete a live document."""
        ...

    async def delete_many(self, filter: Filter, **options: Any) -> DeleteResult:
        """Delete live documents."""
        ...

    async def update_one(self, filter: Filter, update: Update, **options: Any) -> Any:
        """Update a live document."""
        ...

    async def update_many(self, filter: Filter, update: Update, **options: Any) -> Any:
        """Update live documents."""
        ...

    async def replace_one(self, filter: Filter, replacement: Filter, **options: Any) -> Any:
        """Replace a live document."""
        ...

    async def find_one_and_delete(self, filter: Filter, **options: Any) -> Document | None:
        """Delete a live document and return it."""
        ...

    async def find_one_and_update(
        self, filter: Filter, update: Update, **options: Any
    ) -> Document | None:
        """Update a live document and return it."""
        ...

    async def find_one_and_replace(
        self, filter: Filter, replacement: Filter, **options: Any
    ) -> Document | None:
        """Replace a live document and return it."""
        ...

    async def bulk_write(
        self, requests: Any, *, ordered: bool = True, **options: Any
    ) -> BulkWriteResult:
        """Write many things, each as its own method does."""
        ...


class CollectionRule(Rule):
    """A rule, as reads and writes meet it."""

    @abstractmethod
    def methods(self, handle: Handle) -> Methods:
        """Return the methods of its collection, for one call."""

    @abstractmethod
    def finds(self, handle: Handle, cursor: AsyncCursor[Document]) -> Judging:
        """Have a cursor find live documents, before it has asked anything.

        The cursor is PyMongo's, of either kind. Returns how its documents are judged when they are
        read.
        """


def rule_of(handle: Handle) -> CollectionRule | None:
    """The rule of a collection, None where it has none, or where nobody enforces it."""
    if not handle.registry.has_rules:  # for nearly everybody that is all
        return None
    entry = handle.entry
    return entry if isinstance(entry, CollectionRule) and not entry.enforced_by_others else None

"""The types of documents, backends and the two drivers, which all rooms of this adapter share.

PyMongo's asynchronous classes and Motor's have no common base, but the same methods. A value that
may be of either driver is annotated as PyMongo's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar

from pymongo import ReadPreference

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

Document: TypeAlias = dict[str, Any]
"""A BSON document, also one in a command or a pipeline; or the options of a call."""
Filter: TypeAlias = Mapping[str, Any]
"""A document that is only read."""
Projection: TypeAlias = Filter | Sequence[str]
Pipeline: TypeAlias = list[Document]

Collection: TypeAlias = "AsyncCollection[Document]"
Database: TypeAlias = "AsyncDatabase[Document]"
Session: TypeAlias = Any
"""An AsyncClientSession, or Motor's AsyncIOMotorClientSession."""

Result = TypeVar("Result")
Method: TypeAlias = Callable[..., Awaitable[Result]]
"""A method of a driver's or of Beanie's, which is called with the user's own arguments."""

Backend: TypeAlias = Literal["mongodb", "documentdb", "cosmos", "migrations"]
"""What enforces a policy: the gate on MongoDB or on documentdb (the engine of Azure Cosmos DB for
MongoDB vCore), the service Azure Cosmos DB (RU), or, in a migration of Beanie's, nothing."""


def on_primary(collection: Collection) -> Collection:
    """Return a collection, gated or not, for reads that must see all earlier writes.

    An application may send its own reads to secondaries, which lag behind.
    """
    return collection.with_options(read_preference=ReadPreference.PRIMARY)

"""Documents, and what this adapter uses of the two drivers: the types that all its rooms share.

PyMongo's asynchronous classes and Motor's have no base in common, but the same methods. Where a
value may be of either, it is annotated as PyMongo's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from pymongo import ReadPreference

if TYPE_CHECKING:
    from pymongo.asynchronous.collection import AsyncCollection
    from pymongo.asynchronous.database import AsyncDatabase

Document: TypeAlias = dict[str, Any]
"""A document as BSON has it: also a part of a command, of a pipeline, or a call's options."""
Filter: TypeAlias = Mapping[str, Any]
"""A document that is only read."""
Projection: TypeAlias = Filter | Sequence[str]
Pipeline: TypeAlias = list[Document]

Collection: TypeAlias = "AsyncCollection[Document]"
Database: TypeAlias = "AsyncDatabase[Document]"
Session: TypeAlias = Any
"""An AsyncClientSession, or Motor's AsyncIOMotorClientSession: callers pass it as what it is."""


def on_primary(collection: Collection) -> Collection:
    """Return a collection, gated or not, for reads that must know of all writes before them.

    An application may send its own reads to secondaries, which lag behind.
    """
    return collection.with_options(read_preference=ReadPreference.PRIMARY)

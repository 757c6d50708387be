"""Database commands on one collection, the same for PyMongo's asynchronous driver and Motor.

They go past the gate on purpose: who manages indexes or repairs documents must see what is
stored, and must not stamp it. Answers are plain dicts with aware dates, whatever the client was
configured with, so that they can be compared with what we would send.

This module must not know policies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from pymongo.errors import OperationFailure, WriteError

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from bson.codec_options import CodecOptions

Document = dict[str, Any]

NAMESPACE_NOT_FOUND = 26


class Database(Protocol):
    """What `AsyncDatabase` and `AsyncIOMotorDatabase` share, as far as it is used here."""

    def command(self, command: Any, *, codec_options: Any) -> Awaitable[Any]:
        """Run a command."""
        ...


class Collection(Protocol):
    """What `AsyncCollection` and `AsyncIOMotorCollection` share, as far as it is used here."""

    @property
    def name(self) -> str:
        """The name in its database."""
        ...

    @property
    def full_name(self) -> str:
        """The name with the database's."""
        ...

    @property
    def database(self) -> Any:
        """Its `Database`."""
        ...

    @property
    def codec_options(self) -> CodecOptions[Any]:
        """How the application reads and writes BSON: UUIDs, types of its own."""
        ...


async def run(collection: Collection, command: Document) -> Document:
    """Run a command in the collection's database, on the primary.

    Raises:
        OperationFailure: The server refused; also where it refused to write a document only.
    """
    plain = collection.codec_options.with_options(document_class=dict, tz_aware=True, tzinfo=None)
    database: Database = collection.database
    reply: Document = await database.command(command, codec_options=plain)
    if errors := reply.get("writeErrors"):
        first = errors[0]
        raise WriteError(first["errmsg"], first["code"], first)
    return reply


async def first_batch(collection: Collection, command: Document) -> list[Document]:
    """Run a command that answers with a cursor, and return its first batch."""
    reply = await run(collection, command)
    batch: list[Document] = reply["cursor"]["firstBatch"]
    return batch


async def details_of(collection: Collection) -> Document:
    """Return what listCollections says: type and options; empty if it does not exist."""
    listing = {"listCollections": 1, "filter": {"name": collection.name}}
    found = await first_batch(collection, listing)
    return found[0] if found else {}


async def indexes_of(collection: Collection) -> list[Document]:
    """Return what listIndexes says, ours included; a collection has 64 indexes at most."""
    try:
        return await first_batch(collection, {"listIndexes": collection.name})
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return []
        raise

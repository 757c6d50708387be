"""`ttl_database`: the database that `init_beanie` is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from ttl_odm.beanie.gate.pymongo import TTLCollection, TTLDatabase
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.policy.entries import Backend


def ttl_database(
    database: Any,
    *,
    backend: Literal["mongodb", "documentdb", "cosmos"] = "mongodb",
    guard: bool = False,
) -> Any:
    """Return the same database, but with collections that read and change live documents only.

    ``await init_beanie(database=ttl_database(client.app), document_models=[...])``

    Args:
        database: PyMongo's AsyncDatabase, or Motor's AsyncIOMotorDatabase for Beanie 1.
        backend: "documentdb" for the DocumentDB engine, which also runs Azure Cosmos DB for
            MongoDB (vCore); "cosmos" for Azure Cosmos DB for MongoDB (RU), which expires documents
            itself.
        guard: Whether to refuse access, with a TTLConfigurationError, to a collection whose
            documents expire but whose class was not passed to `init_beanie`. Queries the indexes
            of each collection without a policy once.

    Returns:
        An instance of a subclass of the same class.

    Raises:
        TTLConfigurationError: The database is neither of these.
    """
    if backend not in ("mongodb", "documentdb", "cosmos"):
        raise TTLConfigurationError(
            f"ttl_database(backend={backend!r}): give 'mongodb', 'documentdb' or 'cosmos'."
        )
    return gated_database(database, backend, guard=guard)


def gated_database(database: Any, backend: Backend, *, guard: bool = False) -> Any:
    """Return what `ttl_database` does, whoever enforces the policies of its collections."""
    if isinstance(database, AsyncDatabase):
        return TTLDatabase(database, backend, guard=guard)
    if _is_motor(database):
        from motor.motor_asyncio import AsyncIOMotorDatabase  # noqa: PLC0415 - Beanie 2 has none

        from ttl_odm.beanie.gate.motor import TTLMotorDatabase  # noqa: PLC0415 - as above

        if isinstance(database, AsyncIOMotorDatabase):
            return TTLMotorDatabase(database, backend, guard=guard)
    raise TTLConfigurationError(
        f"ttl_database({database!r}): pass an AsyncDatabase of PyMongo, or for Beanie 1 an "
        "AsyncIOMotorDatabase of Motor."
    )


def gated(collection: Any, backend: Backend = "mongodb") -> Any:
    """Return a collection as `ttl_database` gives it, the same one if it is gated already."""
    if isinstance(collection, AsyncCollection):
        if isinstance(collection, TTLCollection):
            return collection
        return TTLCollection(gated_database(collection.database, backend), collection)
    if _is_motor(collection):
        from ttl_odm.beanie.gate.motor import TTLMotorCollection  # noqa: PLC0415 - the same

        if isinstance(collection, TTLMotorCollection):
            return collection
        database = gated_database(collection.database, backend)
        return TTLMotorCollection(database, collection.name, _delegate=collection.delegate)
    raise TTLConfigurationError(
        f"{collection!r} is neither a collection of PyMongo's asynchronous API nor of Motor."
    )


def _is_motor(value: object) -> bool:
    return any(base.__module__.startswith("motor.") for base in type(value).__mro__)

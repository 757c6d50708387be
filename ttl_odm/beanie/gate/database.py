"""The gated databases: `ttl_database` for `init_beanie`, `keep_lifetimes` for migrations.

``beanie migrate`` opens its own client, and its iterative migrations replace whole documents: with
classes that don't know of lifetimes, or with classes of which each write restarts the lifetime. So
a migration gets a gated database whose collections keep lifetimes as they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from beanie.migrations.database import DBHandler
from pymongo.asynchronous.collection import AsyncCollection
from pymongo.asynchronous.database import AsyncDatabase

from ttl_odm.beanie.gate.pymongo import TTLCollection, TTLDatabase
from ttl_odm.beanie.policy.bindings import collection_name, declaration, registry_of
from ttl_odm.core.extension import Extension
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from beanie import Document

    from ttl_odm.beanie.drivers import Backend


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
    return _gated_database(database, backend, guard=guard)


def keep_lifetimes(*models: type[Document]) -> None:
    """Make the running Beanie migrations keep the lifetimes of documents.

    Call it at the top of a migration; ``beanie migrate`` imports all migrations before it runs the
    first one. Whichever classes the migrations use to write these collections, ``_ts`` and
    ``_exp`` stay, as does the ttl unless the migration writes it. New documents are stamped, and
    the TTL indexes stay even if a migration drops indexes. Nothing is hidden: expired documents
    that are not deleted yet are migrated like the others. Outside a migration this does nothing.

    Args:
        models: The application's own classes, with their policies.

    Raises:
        TTLConfigurationError: One of them has no policy, or its documents follow others.
    """
    for model in models:
        declared = declaration(model)
        if isinstance(declared, Extension):
            raise TTLConfigurationError(
                f"keep_lifetimes({model.__name__}): its documents have no lifetime of their own, "
                "but expire with others. Leave it out, and pass the class of those."
            )
        if declared is None:
            raise TTLConfigurationError(
                f"keep_lifetimes({model.__name__}): it has no lifetime. Pass the application's "
                "own class, which has __ttl__."
            )
    handler: Any = DBHandler
    database = handler.get_db()
    if database is None:
        return
    handler.database = _gated_database(database, "migrations")
    registry = registry_of(database.client)
    for model in models:
        registry.bind(model, database.name, collection_name(model), "migrations")


def gated(collection: Any, backend: Backend = "mongodb") -> Any:
    """Return a collection as `ttl_database` gives it; one that is gated already is returned as is.

    Raises:
        TTLConfigurationError: It belongs to neither driver.
    """
    if isinstance(collection, AsyncCollection):
        if isinstance(collection, TTLCollection):
            return collection
        return TTLCollection(_gated_database(collection.database, backend), collection)
    if _is_motor(collection):
        from ttl_odm.beanie.gate.motor import TTLMotorCollection  # noqa: PLC0415 - Beanie 1 only

        if isinstance(collection, TTLMotorCollection):
            return collection
        database = _gated_database(collection.database, backend)
        return TTLMotorCollection(database, collection.name, _delegate=collection.delegate)
    raise TTLConfigurationError(
        f"{collection!r} is neither a collection of PyMongo's asynchronous API nor of Motor."
    )


def _gated_database(database: Any, backend: Backend, *, guard: bool = False) -> Any:
    """Return a driver's database with gated collections, whichever backend enforces policies."""
    if isinstance(database, AsyncDatabase):
        return TTLDatabase(database, backend, guard=guard)
    if _is_motor(database):
        from motor.motor_asyncio import AsyncIOMotorDatabase  # noqa: PLC0415 - Beanie 1 only

        from ttl_odm.beanie.gate.motor import TTLMotorDatabase  # noqa: PLC0415 - as above

        if isinstance(database, AsyncIOMotorDatabase):
            return TTLMotorDatabase(database, backend, guard=guard)
    raise TTLConfigurationError(
        f"ttl_database({database!r}): pass an AsyncDatabase of PyMongo, or for Beanie 1 an "
        "AsyncIOMotorDatabase of Motor."
    )


def _is_motor(value: object) -> bool:
    return any(base.__module__.startswith("motor.") for base in type(value).__mro__)

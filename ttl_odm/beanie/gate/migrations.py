"""The gate in Beanie's migrations, which keeps lifetimes as they are.

``beanie migrate`` opens a client of its own, and its iterative migrations replace whole documents:
by classes that know nothing of a lifetime, or by those of which every write begins it anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie.migrations.database import DBHandler

from ttl_odm.beanie.gate.database import gated_database
from ttl_odm.beanie.policy.bindings import collection_name, declaration, registry_of
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from beanie import Document


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
        TTLConfigurationError: One of them has no policy.
    """
    for model in models:
        if declaration(model) is None:
            raise TTLConfigurationError(
                f"keep_lifetimes({model.__name__}): it has no lifetime. Pass the application's "
                "own class, which has __ttl__."
            )
    handler: Any = DBHandler
    database = handler.get_db()
    if database is None:
        return
    handler.database = gated_database(database, "migrations")
    registry = registry_of(database.client)
    for model in models:
        registry.bind(model, database.name, collection_name(model), "migrations")

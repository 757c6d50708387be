"""Documents on Azure Cosmos DB for MongoDB (RU), whose last modification is the service's own.

No command sets ``_ts`` there, or reads it. What the service documents is that any modification of a
document starts its lifetime again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from beanie.exceptions import DocumentNotFound
from pymongo import UpdateOne

from ttl_odm.beanie.policy.bindings import binding_of, collection_of
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from beanie import Document

    from ttl_odm.beanie.drivers import Session

_TOUCHED: Final = "__ttl_touched"
"""The field that a document has for a moment, while it is touched."""


def holds(model: type[Document]) -> bool:
    """Say whether the documents of a class are there."""
    binding = binding_of(model)
    return binding is not None and binding.is_left_to_service


def refusal(model: type[Document], what: str, *, instead: str) -> TTLConfigurationError:
    """Return the error for what needs ``_ts``."""
    return TTLConfigurationError(
        f"{model.__name__}: {what} is not available on Azure Cosmos DB, which manages '_ts' "
        f"itself: {instead}."
    )


async def touch(document: Document, session: Session) -> bool:
    """Change a document and change it back, in one command; `DocumentNotFound` if it is gone.

    Whether the service takes a ``$set`` of what is there already for a modification is written
    nowhere, and MongoDB doesn't. A field more and a field less are modifications, each by itself:
    if the second is lost, the next touch makes it.
    """
    if type(document).model_config.get("extra") == "forbid":
        what, instead = "touch() of a class with extra='forbid'", "write a field of its own"
        raise refusal(type(document), what, instead=instead)
    own = {"_id": document.id}
    add, take_away = {"$set": {_TOUCHED: True}}, {"$unset": {_TOUCHED: ""}}
    requests = [UpdateOne(own, add), UpdateOne(own, take_away)]
    result = await collection_of(document).bulk_write(requests, session=session)
    if result.matched_count < len(requests):
        raise DocumentNotFound
    return True

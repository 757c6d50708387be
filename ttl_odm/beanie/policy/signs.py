"""Signs that the documents of a collection expire, though no class with a policy has it here.

Its class was not among the `document_models` of `init_beanie`, or another application has it. No
gate knows of it: reads show what has expired, and nothing is stamped. This module must not know who
reaches it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized
from pymongo.errors import OperationFailure

from ttl_odm.beanie.policy.bindings import (
    collection_name,
    collection_of,
    declaration,
    subclasses_of,
)
from ttl_odm.beanie.policy.commands import indexes_of
from ttl_odm.beanie.policy.ttl_indexes import is_ours

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection

_UNTOLD: Final = {13, 166}
"""The codes of Unauthorized, and of CommandNotSupportedOnView."""


async def sign_of_ttl(collection: Collection) -> str | None:
    """Say how one knows that the documents of a collection without a policy expire.

    None if nothing says so. A class tells that this process has imported, or an index of ours.
    """
    model = _forgotten_class(collection.name)
    if model is not None:
        return f"{model.__module__}.{model.__qualname__} was not given to init_beanie()"
    try:
        names = [index["name"] for index in await indexes_of(collection)]
    except OperationFailure as error:
        if error.code in _UNTOLD:
            return None
        raise
    ours = ", ".join(sorted(filter(is_ours, names)))
    return f"no document class with a ttl has it here, but it has {ours}" if ours else None


def _forgotten_class(collection: str) -> type | None:
    """Return a class with a policy whose collection has this name, and which Beanie hasn't seen."""
    for model in subclasses_of(Document):
        if collection_name(model) != collection or declaration(model) is None:
            continue
        try:
            collection_of(model)
        except (CollectionWasNotInitialized, AttributeError):
            return model
    return None

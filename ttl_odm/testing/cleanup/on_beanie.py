"""Emptying Beanie's collections. See `ttl_odm.testing.cleanup`."""

from __future__ import annotations

from ttl_odm.beanie.policy.bindings import collection_of
from ttl_odm.beanie.policy.commands import RawCollection


async def empty(models: tuple[object, ...]) -> None:
    """Empty the collections of some document classes."""
    for model in models:
        place = RawCollection(collection_of(model))
        await place.run({"delete": place.collection.name, "deletes": [{"q": {}, "limit": 0}]})

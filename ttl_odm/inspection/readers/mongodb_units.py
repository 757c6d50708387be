"""Documents whose own ttl is in another unit than seconds; see `ttl_odm.sweeper.units`.

It reads that field of the first and the last documents by ``_id``. Instants are dates here, which
have no unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.policy.commands import first_batch
from ttl_odm.core.policy import TTL
from ttl_odm.inspection.readers.mongodb import SAMPLE
from ttl_odm.sweeper.units import misread_lifetimes

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper.units import Misread


async def misread(collection: Any, policy: Policy) -> Misread | None:
    """Return what is wrong with the ttls of documents; None if nothing seems to be.

    The collection is PyMongo's asynchronous one or Motor's, gated or not.
    """
    if not isinstance(policy, TTL) or policy.override is None:
        return None
    documents: dict[str, Any] = {}
    for direction in (1, -1):
        # Past the gate: expired documents count.
        command = {
            "find": collection.name,
            "sort": {"_id": direction},
            "limit": SAMPLE,
            "batchSize": SAMPLE,
            "projection": {policy.override: 1},
            "maxTimeMS": 10_000,
        }
        for document in await first_batch(collection, command):
            documents[repr(document["_id"])] = _value(document, policy.override)
    lifetimes = [value for value in documents.values() if value not in policy.never]
    return misread_lifetimes(policy.override, lifetimes)


def _value(document: Any, path: str) -> object:
    for name in path.split("."):
        document = document.get(name) if isinstance(document, dict) else None
    return document

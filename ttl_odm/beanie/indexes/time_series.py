"""Time-series collections: MongoDB deletes from them by one number of seconds, without an index.

So the one policy they can have is `ExpireAfter` on their time field. MongoDB deletes a bucket of
measurements when its last one has expired: never early, and late by up to the bucket's span.

This module must not know ordinary collections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pymongo.errors import OperationFailure

from ttl_odm.beanie.policy.commands import run
from ttl_odm.core.policy import ExpireAfter
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.policy.commands import Collection
    from ttl_odm.beanie.policy.ttl_indexes import Purge
    from ttl_odm.core.policy import Policy

SECONDS = "expireAfterSeconds"
_INVALID_OPTIONS = 72


async def ensure(
    collection: Collection, options: dict[str, Any], policy: Policy | None, purge: Purge
) -> bool:
    """Set the collection's expireAfterSeconds to the policy's.

    Args:
        collection: PyMongo's or Motor's.
        options: Those of the collection, as listCollections gives them.
        policy: None leaves everything as it is: nobody can tell who has set it.
        purge: Must be "native"; MongoDB deletes no single measurement by its date.

    Returns:
        Whether it was changed.

    Raises:
        TTLConfigurationError: For any other policy, or seconds that the server refuses.
    """
    if policy is None:
        return False
    field = options["timeseries"]["timeField"]
    if not isinstance(policy, ExpireAfter) or policy.field != field or purge != "native":
        message = (
            f"{collection.full_name!r} is a time-series collection, whose measurements cannot "
            "have a ttl of their own nor be deleted one by one: declare "
            f"ExpireAfter({field!r}, seconds) and __ttl_purge__ = 'native'."
        )
        raise TTLConfigurationError(message)
    if options.get(SECONDS) == policy.seconds:
        return False
    try:
        await run(collection, {"collMod": collection.name, SECONDS: policy.seconds})
    except OperationFailure as error:
        if error.code != _INVALID_OPTIONS:
            raise
        message = f"MongoDB refuses {policy!r} for {collection.full_name!r}: {error}"
        raise TTLConfigurationError(message) from error
    return True

"""The one index by which Azure Cosmos DB for MongoDB (RU) expires documents itself.

There the service keeps ``_ts`` (no write of ours may set it), reads a root-level ``ttl``, and
knows a single TTL index, on ``_ts``. It has no partial indexes and no collMod, so another default
means dropping that index and creating it again. Documents are out of sight from their expiry on,
by the service's own doing.

Pure functions, as in `ttl_odm.beanie.policy.ttl_indexes`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.ttl_indexes import Index, check
from ttl_odm.core.policy import TTL
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.policy.ttl_indexes import Purge
    from ttl_odm.core.policy import Policy


def wanted_indexes(policy: Policy, purge: Purge) -> tuple[Index, ...]:
    """Return the indexes that a collection with this policy needs on Azure Cosmos DB.

    Args:
        policy: How its documents expire.
        purge: "native" for `TTL`, which only the service can follow; "sweeper" for the others.

    Raises:
        TTLConfigurationError: When the service cannot follow the policy.
    """
    check(policy)
    if not isinstance(policy, TTL):
        if purge == "native":
            message = (
                f"{policy!r}: Azure Cosmos DB has TTL indexes on '_ts' only, so it cannot delete "
                f"by {policy.field!r}: declare __ttl_purge__ = 'sweeper'."
            )
            raise TTLConfigurationError(message)
        return (Index("__ttl_sweep_date", policy.field, None, None),)
    _check_service(policy, purge)
    return () if policy.default is None else (Index("__ttl_default", "_ts", None, policy.default),)


def _check_service(policy: TTL, purge: Purge) -> None:
    if purge == "sweeper":
        message = (
            "On Azure Cosmos DB documents with a TTL expire by the service's own '_ts', which a "
            "sweeper cannot see: declare __ttl_purge__ = 'native'."
        )
    elif (policy.last_modified, policy.override) != ("_ts", "ttl"):
        message = (
            f"TTL(last_modified={policy.last_modified!r}, override={policy.override!r}): Azure "
            "Cosmos DB always counts from '_ts' and always heeds a root-level 'ttl': leave both "
            "out of the declaration."
        )
    elif policy.by is not None or policy.unit is not None or policy.limit is not None:
        message = f"{policy!r}: Azure Cosmos DB knows one default, and counts from its own '_ts'."
    elif policy.never:
        message = (
            f"TTL(never={policy.never!r}): on Azure Cosmos DB only -1 means never: leave it out."
        )
    else:
        return
    raise TTLConfigurationError(message)

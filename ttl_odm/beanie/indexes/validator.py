"""A validator that keeps other programs from making MongoDB delete too early.

``_exp`` follows from ``_ts`` and ``ttl``, and the gate maintains it. If mongosh or a program in
another language gives a document more time but doesn't change ``_exp``, MongoDB deletes the
document at the old instant. With this guard the server rejects such a write (code 121,
DocumentValidationFailure). A program passes it by setting ``_exp`` to ``_ts + ttl`` or later, or by
removing it.

This module must not know indexes, nor touch a validator that it did not create.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.commands import alter
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, has_own_number, own_expiry
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Backend, Collection, Document
    from ttl_odm.core.policy import TTL

GUARD = "__ttl_guard"


def too_early(policy: TTL) -> Document:
    """Return the expression that is true for documents that ``_exp`` would delete while live.

    It fails on no document, and uses only operators that a validator may use.
    """
    expiry, right = f"${EXPIRY}", own_expiry(policy)
    is_date = {"$eq": [{"$type": expiry}, "date"]}
    is_dangerous = {
        "$or": [
            {"$isArray": [expiry]},  # its earliest date would count
            {"$and": [is_date, {"$ne": [{"$type": right}, "date"]}]},
            {"$and": [is_date, {"$lt": [expiry, right]}]},
        ]
    }
    return {"$and": [has_own_number(policy), is_dangerous]}


def validator(policy: TTL) -> Document:
    """Return the collection's validator."""
    # With an array a document never expires, but MongoDB would delete by its earliest date.
    several_dates = {"$isArray": [f"${policy.last_modified}"]}
    return {"$comment": GUARD, "$expr": {"$not": [{"$or": [several_dates, too_early(policy)]}]}}


async def ensure_guard(
    collection: Collection,
    existing: Document,
    policy: TTL | None,
    *,
    guard: bool | None,
    backend: Backend,
) -> str | None:
    """Create, change or remove the guard of a collection; return which, None for nothing.

    Without a policy there is no TTL index on ``_exp``, so nothing to guard. With `guard` None the
    guard stays as it is.
    """
    is_ours = existing.get("$comment") == GUARD
    if guard is None:
        guard = is_ours
    needed = validator(policy) if policy is not None and guard else {}
    if existing == needed or not (is_ours or needed):
        return None
    if existing and not is_ours:
        raise TTLConfigurationError(
            f"{collection.full_name!r} already has a validator, which ttl_odm doesn't change: "
            "combine it with ttl_odm.beanie.indexes.validator.validator(policy) by $and, and "
            "leave guard out."
        )
    await alter(collection, {"collMod": collection.name, "validator": needed}, backend)
    if not needed:
        return "removed"
    return "changed" if is_ours else "created"

"""A validator that keeps other writers from making MongoDB delete a document too early.

``_exp`` follows from ``_ts`` and ``ttl``. The gate keeps it right; mongosh, or a program in
another language, that gives a document more time and knows nothing of ``_exp`` leaves the old one
behind, and MongoDB deletes the document at the old instant. With the guard the server refuses
such a write (code 121, DocumentValidationFailure). A writer passes it by setting ``_exp`` to
``_ts + ttl`` or later, or by removing it.

This module must not know indexes, nor touch a validator that it did not make.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.commands import alter
from ttl_odm.beanie.policy.ttl_indexes import EXPIRY, has_own_number, own_expiry
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection, Document
    from ttl_odm.beanie.policy.entries import Backend
    from ttl_odm.core.policy import TTL

GUARD = "__ttl_guard"


def too_early(policy: TTL) -> Document:
    """Return the expression that is true where ``_exp`` would delete what still lives.

    It fails on no document, and uses nothing that a validator may not use.
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
    # An array has no life to end, but MongoDB would delete by the earliest date in it.
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
    """Add, correct or remove the guard of a collection, and say which; None if nothing was done.

    Without a policy there is no TTL index on ``_exp``, so nothing to guard. `guard` None leaves it
    as it is.
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

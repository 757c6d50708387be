"""A change of a default that MongoDB stores: previewed, and made as the preview said.

As `sqlalchemy` does it. This module must not know how a preview is shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.policy.commands import first_batch
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.sources import completed
from ttl_odm.forecast import mongodb
from ttl_odm.forecast.text import Forecast
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.stored.approval import Change, NotApprovedError, PolicyPreview, keys_of
from ttl_odm.stored.beanie.changes import change, checked, scope_of, stored_of
from ttl_odm.stored.beanie.default_cache import WHOLE_COLLECTION
from ttl_odm.stored.beanie.lookup import beside, key_of
from ttl_odm.stored.rows import POLICIES, StoredNow

if TYPE_CHECKING:
    from ttl_odm.core.policy import Policy
    from ttl_odm.stored import StoredTTL
    from ttl_odm.stored.beanie.lookup import StoredDefault


async def preview_policy(
    target: type,
    ttl: StoredTTL,
    *,
    scope: object = None,
    deep: bool = False,
    secret: str | bytes | None = None,
) -> PolicyPreview:
    """Count what a change of a stored default would do; arguments as for `set_policy`.

    Args:
        target: A document class that `init_beanie` has seen.
        ttl: The planned default.
        scope: As for `set_policy`.
        deep: Count all documents; otherwise a sample is taken of more than 100,000.
        secret: A secret of the application's server, with which the token is signed: then only a
            preview can make one.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the class isn't stored.
    """
    own = scope_of(target, scope)
    after = checked(target, ttl, own)
    collection, default = stored_of(target)
    asked = await _change(target, own, after, secret)
    current, planned = default.policy, _planned(default, own, after)
    big = math.inf if deep else SMALL
    measured = await mongodb.measure(collection, current, planned, big)
    forecast = Forecast(collection.name, target.__name__, current, planned, measured)
    return asked.preview(forecast, measured)


async def approve_policy(  # noqa: PLR0913 (all but the first two by keyword)
    target: type,
    ttl: StoredTTL,
    *,
    token: str,
    scope: object = None,
    by: str,
    reason: str | None = None,
    secret: str | bytes | None = None,
) -> None:
    """Change a stored default to the value that a preview has shown.

    Args:
        target: A document class.
        ttl: The new default.
        token: That of the preview of this change.
        scope: As in the preview.
        by: Who changes it.
        reason: Why.
        secret: As in the preview.

    Raises:
        NotApprovedError: It would expire more documents by now than the preview said, or the
            default has been changed since, or the token is another preview's. Nothing is changed.
    """
    own = scope_of(target, scope)
    after = checked(target, ttl, own)
    collection, default = stored_of(target)

    async def check(stored: int | None) -> None:
        del stored  # of a scope without a default of its own the collection's counts
        asked = await _change(target, own, after, secret)
        at_most, planned = asked.approved(token), _planned(default, own, after)
        lost = await _count_lost(collection, default.policy, planned, at_most + 1)
        asked.check(lost, at_most)

    await change(target, after, scope=own, by=by, reason=reason, check=check)


async def _change(
    target: type, scope: Any, after: int | None, secret: str | bytes | None
) -> Change:
    """What is asked for, by what is stored now."""
    collection, default = stored_of(target)
    await default.see(collection, anew=True)
    # What `own` is for documents without one of their own is that of all others, as is meant.
    row = await beside(collection, POLICIES).find_one({"_id": key_of(collection)}, {"version": 1})
    version = (row or {}).get("version")  # which each change of one of them increments
    own, others = map(default.notes.default_of, (scope, WHOLE_COLLECTION))
    now = StoredNow(own, others, last=str(version))
    named, where = None if scope == WHOLE_COLLECTION else str(scope), f"{target.__name__}.__ttl__"
    has_scopes = default.declared.by is not None
    where = f"{where} = {after}"
    return Change(collection.name, named, now, after, where, keys_of(secret), has_scopes)


def _planned(default: StoredDefault, scope: Any, after: int | None) -> Policy:
    """The policy as it would be."""
    ttl, scopes = default.notes.changed(scope, after)
    return completed(default.binding.declared, ttl, scopes)


async def _count_lost(collection: Any, current: Policy, planned: Policy, limit: int) -> int:
    """Count what lives by one policy and not by another, up to a limit."""
    lost = {"$and": [expired_expr(planned), {"$not": [expired_expr(current)]}]}
    pipeline = [{"$match": {"$expr": lost}}, {"$limit": limit}, {"$count": "n"}]
    command = {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}}
    counted = await first_batch(collection, command)
    return int(counted[0]["n"]) if counted else 0


__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]

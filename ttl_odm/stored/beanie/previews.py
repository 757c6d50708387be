"""Previews of a change of a stored default, and the change that a preview's token approves.

`ttl_odm.stored.sqlalchemy.previews` says what a token stands for. This module must not know how a
preview is shown.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ttl_odm.beanie.policy.commands import first_batch
from ttl_odm.beanie.policy.predicate import expired_expr
from ttl_odm.beanie.policy.sources import completed
from ttl_odm.forecast import mongodb
from ttl_odm.inspection.evidence import SMALL
from ttl_odm.stored.approval import Change, NotApprovedError, PolicyPreview, keys_of
from ttl_odm.stored.beanie.changes import change, named_default, scope_of, stored_of
from ttl_odm.stored.beanie.default_cache import WHOLE_COLLECTION
from ttl_odm.stored.beanie.lookup import key_of, sibling
from ttl_odm.stored.rows import POLICIES, StoredNow

__all__ = ["NotApprovedError", "PolicyPreview", "approve_policy", "preview_policy"]

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection
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
    """Preview the effect of changing a stored default; arguments as for `set_policy`.

    Args:
        target: A document class that `init_beanie` has seen.
        ttl: The planned default.
        scope: See `set_policy`.
        deep: Count all documents; otherwise collections of more than 100,000 are sampled.
        secret: A secret of the application's server, with which the token is signed: then only a
            preview can make one.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the class isn't stored.
    """
    own = scope_of(target, scope)
    after = named_default(target, own).checked(ttl)
    collection, default = stored_of(target)
    planned = await _change(target, own, after, secret)
    policies = {"current": default.policy, "planned": _planned_policy(default, own, after)}
    big = math.inf if deep else SMALL
    measured = await mongodb.measure(collection, policies["current"], policies["planned"], big)
    return planned.preview(policies, measured)


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
    """Make the change of a stored default that a preview has shown.

    Args:
        target: A document class.
        ttl: The new default.
        token: The token of this change's preview.
        scope: See `preview_policy`.
        by: Who changes it.
        reason: Why.
        secret: See `preview_policy`.

    Raises:
        NotApprovedError: It would now expire more documents than the preview showed, the default
            has changed since, or the token belongs to another preview. Nothing is changed.
    """
    own = scope_of(target, scope)
    after = named_default(target, own).checked(ttl)
    collection, default = stored_of(target)

    async def check(before: int | None) -> None:
        del before  # `_change` reads it, and the collection's for a scope without its own
        planned = await _change(target, own, after, secret)
        at_most, policy = planned.approved(token), _planned_policy(default, own, after)
        lost = await _count_lost(collection, default.policy, policy, at_most + 1)
        planned.check(lost, at_most)

    await change(target, after, scope=own, by=by, reason=reason, check=check)


async def _change(
    target: type, scope: object, after: int | None, secret: str | bytes | None
) -> Change:
    """Read what is stored now, and return the change."""
    collection, default = stored_of(target)
    await default.see(collection, anew=True)
    policies, key = sibling(collection, POLICIES), {"_id": key_of(collection)}
    row = await policies.find_one(key, {"version": 1})
    version = (row or {}).get("version")  # each change of any default increments it
    # A scope without a default of its own has that of all others, also as `own`.
    own, others = map(default.cache.default_of, (scope, WHOLE_COLLECTION))
    now = StoredNow(own, others, last=str(version))
    return Change(named_default(target, scope), now, after, keys_of(secret))


def _planned_policy(default: StoredDefault, scope: object, after: int | None) -> Policy:
    """The policy after the change."""
    ttl, scopes = default.cache.changed(scope, after)
    return completed(default.binding.declared, ttl, scopes)


async def _count_lost(collection: Collection, current: Policy, planned: Policy, limit: int) -> int:
    """Count the documents that live by one policy and not by the other, up to a limit."""
    lost = {"$and": [expired_expr(planned), {"$not": [expired_expr(current)]}]}
    pipeline = [{"$match": {"$expr": lost}}, {"$limit": limit}, {"$count": "n"}]
    command = {"aggregate": collection.name, "pipeline": pipeline, "cursor": {}}
    counted = await first_batch(collection, command)
    return int(counted[0]["n"]) if counted else 0

"""Rows that follow nothing: their parent was deleted behind the gate's back, or never was.

They are expired, unless ``orphan="live"``, and no sweep of parents meets them. A foreign key that
the database enforces keeps them away, so with one nothing but NULLs is looked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.purge.errors import UndeletedError
from ttl_odm.django.purge.removal import expired_rows, take_file
from ttl_odm.django.sweep.transactions import under_origin
from ttl_odm.follows.django.following import all_followings
from ttl_odm.follows.django.removal import FollowersRemoval
from ttl_odm.sweeper import BatchResult, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.follows.django.following import Following
    from ttl_odm.sweeper import BatchRequest


def has_orphans(binding: Binding, using: str) -> bool:
    """Whether a sweep of a table has orphans to delete."""
    return any(
        expired_rows(following.model, using).filter(orphaned).exists()
        for following, orphaned in _orphans(binding, using)
    )


def purge_orphans(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Delete a batch of them, and what follows them."""
    undeleted: dict[Model, set[Any]] = {}
    removal = FollowersRemoval(using, request.size, request.hooks, undeleted=undeleted)
    with transaction.atomic(using=using, durable=True):
        take_file(binding.model, using)
        with under_origin(using, replicate=request.replicate):
            for following, orphaned in _orphans(binding, using):
                removal.of_rows(following.model, orphaned)
            if connections[using].vendor == "postgresql":
                connections[using].check_constraints()
    before = request.resume if isinstance(request.resume, int) else 0
    resume = None if removal.is_done else before + removal.removed.total()
    # Every batch meets those that survive; the last one meets all of them.
    left = sum(map(len, undeleted.values())) if removal.is_done else 0
    return BatchResult(
        0,
        resume,
        skipped={Skip.REFUSED: left} if left else {},
        notes=[str(UndeletedError(model)) for model in undeleted],
        referring=removal.removed,
        purged=removal.purged,
    )


def _orphans(binding: Binding, using: str) -> Iterator[tuple[Following, Q]]:
    """The models that follow one, each with the condition for rows without a parent."""
    for following in all_followings(binding.model):
        if following.declared.orphan == "live":
            continue
        orphaned: Any = Q(pk__in=[])
        links = following.links
        for own in links.own:
            if own.null:
                orphaned |= Q((f"{own.attname}__isnull", True))
        if not following.is_enforced(using):
            parents: Any = include_expired(QuerySet(model=links.parent, using=using))
            ties = {theirs.attname: OuterRef(own.attname) for own, theirs in links.pairs}
            orphaned |= ~Exists(parents.filter(**ties))
        if orphaned != Q(pk__in=[]):
            yield following, orphaned

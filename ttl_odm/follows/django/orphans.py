"""Orphans: rows whose parent is missing, as it was deleted past the gate or never existed.

They are expired, unless ``orphan="live"``, but no sweep of their parents finds them. If the
database enforces a foreign key for the link, the only orphans are rows with a NULL in it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.db import connections, transaction
from django.db.models import Exists, OuterRef, Q, QuerySet

from ttl_odm.django.policy.options import include_expired
from ttl_odm.django.purge.errors import UndeletedError
from ttl_odm.django.purge.removal import expired_rows, take_file
from ttl_odm.django.sweep.transactions import under_origin
from ttl_odm.follows.django.follower import all_followers
from ttl_odm.follows.django.removal import FollowersRemoval
from ttl_odm.sweeper import BatchResult, Skip

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.django.policy.bindings import Binding, Model
    from ttl_odm.follows.django.follower import Following
    from ttl_odm.sweeper import BatchRequest


def has_orphans(binding: Binding, using: str) -> bool:
    """Whether the models that follow a model have orphans."""
    return any(
        expired_rows(following.model, using).filter(orphaned).exists()
        for following, orphaned in _orphans(binding, using)
    )


def purge_orphans(binding: Binding, using: str, request: BatchRequest) -> BatchResult:
    """Delete a batch of orphans and their followers."""
    undeleted: dict[Model, set[Any]] = {}
    removal = FollowersRemoval(using, request.size, request.hooks, undeleted=undeleted)
    with transaction.atomic(using=using, durable=True):
        take_file(binding.model, using)
        with under_origin(using, replicate=request.replicate):
            for following, orphaned in _orphans(binding, using):
                removal.of_rows(following.model, orphaned)
            if connections[using].vendor == "postgresql":
                connections[using].check_constraints()
    # Every batch finds rows that survive; the last one finds all of them.
    survivors = sum(map(len, undeleted.values())) if removal.is_done else 0
    return BatchResult(
        0,
        removal.resume(request),
        skipped={Skip.REFUSED: survivors} if survivors else {},
        notes=[str(UndeletedError(model)) for model in undeleted],
        referring=removal.removed,
        purged=removal.purged,
    )


def _orphans(binding: Binding, using: str) -> Iterator[tuple[Following, Q]]:
    """The models that follow a model, each with the condition for its orphans."""
    for following in all_followers(binding.model):
        if following.declared.orphan == "live":
            continue
        orphaned: Any = Q(pk__in=[])
        links = following.links
        for own in links.own:
            if own.null:
                orphaned |= Q((f"{own.attname}__isnull", True))
        if not following.is_enforced(using):
            parents: Any = include_expired(QuerySet(model=links.parent, using=using))
            same_key = {theirs.attname: OuterRef(own.attname) for own, theirs in links.pairs}
            orphaned |= ~Exists(parents.filter(**same_key))
        if orphaned != Q(pk__in=[]):
            yield following, orphaned

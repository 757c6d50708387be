"""What a document class declares with `Follows`, and how its rule gets on its collection.

It is checked when the class is made, and when it gets its collection. The parent may be declared
later, so it is checked when it is looked up (`ttl_odm.follows.beanie.follower`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.beanie.objects.copies import prepare
from ttl_odm.beanie.policy.bindings import is_same_class, registry_of
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.beanie.follower import (
    Following,
    check_field,
    check_options,
    check_orphans,
    check_same_kind,
)
from ttl_odm.follows.beanie.rule import FollowsRule

if TYPE_CHECKING:
    from beanie import Document

    from ttl_odm.beanie.drivers import Backend, Collection
    from ttl_odm.follows import Follows


def check(model: type[Document], declared: Follows) -> None:
    """Check the declaration of a class, and its options.

    Raises:
        TTLConfigurationError: It names no field that leads to one parent, or there is an option
            that a class that follows another can't have.
    """
    where = f"{model.__name__}.__ttl__ = {declared!r}"
    check_options(model)
    if isinstance(declared.parent, str):
        if declared.parent not in model.model_fields:
            check_field(model, declared.parent, where)
            raise TTLConfigurationError(
                f"{where}: name a field of {model.__name__} that is a Link to the parent."
            )
        check_field(model, declared.parent, where)
        return
    for own, _ in declared.on:
        check_field(model, own, where)


def check_collection(model: type[Document], declared: Follows) -> None:
    """Reject a time-series collection."""
    if model.get_settings().timeseries is not None:
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {declared!r}: it has a time-series collection, from "
            "which MongoDB deletes whole buckets; declare ExpireAfter on its time field."
        )


def bind(
    model: type[Document], declared: Follows, collection: Collection, backend: Backend
) -> None:
    """Put the rule of a class on its collection."""
    database = collection.database
    if backend not in ("mongodb", "migrations"):
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {declared!r}: documents can follow others only in "
            f"MongoDB itself, and this is backend={backend!r}; give it a lifetime of its own."
        )
    registry = registry_of(database.client)
    rule = FollowsRule(model, declared, backend, registry, database.name, collection.name)
    check_orphans(rule)
    if not _is_bound(rule):
        registry.bind_rule(database.name, collection.name, rule)
    parent = declared.parent
    fields = [parent] if isinstance(parent, str) else [own for own, _ in declared.on]
    prepare(model, fields, stamp=None)


def _is_bound(rule: FollowsRule) -> bool:
    """Say whether the collection already has a rule that covers the class, too."""
    entry = rule.registry.entry(rule.database, rule.collection)
    if isinstance(entry, Following):
        if entry.backend == "migrations":
            return True  # as for a policy
        if is_same_class(entry.model, rule.model):
            return False
        if entry.declared != rule.declared:
            raise TTLConfigurationError(
                f"{entry.model.__name__} and {rule.model.__name__} share the collection "
                f"{rule.collection!r}, so they follow one parent, but declare "
                f"{entry.declared!r} and {rule.declared!r}."
            )
        entry.share(rule.model)
        return True
    if entry is not None:
        declared = rule.model, rule.declared
        check_same_kind((entry.model, entry.declared), declared, rule.collection)
    return False

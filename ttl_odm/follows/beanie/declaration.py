"""What a document class may declare that follows another: `Follows`.

Checked when the class is made, and when it gets its collection; the parent may come later, so what
is about it is checked when it is looked up (`ttl_odm.follows.beanie.following`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.objects.copies import prepare
from ttl_odm.beanie.policy.bindings import is_same_class, registry_of
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.follows.beanie.following import Following, check_field
from ttl_odm.follows.beanie.options import check_options
from ttl_odm.follows.beanie.rule import FollowsRule
from ttl_odm.follows.beanie.sharing import check_following, check_kind

if TYPE_CHECKING:
    from beanie import Document

    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.beanie.policy.entries import Backend
    from ttl_odm.follows import Follows


def check(model: Any, declared: Follows) -> None:
    """Refuse what a class that follows another can't have."""
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
    """Refuse a time-series collection."""
    if model.get_settings().timeseries is not None:
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {declared!r}: it has a time-series collection, from "
            "which MongoDB deletes whole buckets; declare ExpireAfter on its time field."
        )


def bind(
    model: type[Document], declared: Follows, collection: Collection, backend: Backend
) -> None:
    """Have the documents of a collection follow others."""
    database = collection.database
    if backend not in ("mongodb", "migrations"):
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {declared!r}: documents can follow others only in "
            f"MongoDB itself, and this is backend={backend!r}; give it a lifetime of its own."
        )
    registry = registry_of(database.client)
    rule = FollowsRule(model, declared, backend, registry, database.name, collection.name)
    check_following(rule)
    if not _is_known(rule):
        registry.bind_rule(database.name, collection.name, rule)
    named = isinstance(declared.parent, str)
    prepare(model, [declared.parent] if named else [own for own, _ in declared.on], stamp=None)


def _is_known(rule: FollowsRule) -> bool:
    """Say whether what is on the collection already stands for the class, too."""
    known = rule.registry.entry(rule.database, rule.collection)
    if isinstance(known, Following):
        if known.backend == "migrations":
            return True  # as for a policy
        if is_same_class(known.model, rule.model):
            return False
        if known.declared != rule.declared:
            raise TTLConfigurationError(
                f"{known.model.__name__} and {rule.model.__name__} share the collection "
                f"{rule.collection!r}, so they follow one parent, but declare "
                f"{known.declared!r} and {rule.declared!r}."
            )
        known.share(rule.model)  # the first of the classes tells
        return True
    if known is not None:
        mine = rule.model, rule.declared
        check_kind((known.model, known.declared), mine, rule.collection)
    return False

"""Document classes that share a collection: which they are, and which of them can't.

Beanie has several ways to that: `UnionDoc`, `is_root`, the same `Settings.name`. Documents that
follow others live by their parents only, so that those of a class which knows no parent would be
orphans. This module must not know how a policy gets on a collection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.bindings import (
    collection_of,
    declaration,
    is_same_class,
    registry_of,
    subclasses_of,
)
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.follows.beanie.following import Following

_NOTHING: Final = object()


def check_kind(one: tuple[type, object], other: tuple[type, object], collection: str) -> None:
    """Reject a collection for documents with a lifetime and for others that follow."""
    if not is_same_class(one[0], other[0]):
        raise TTLConfigurationError(
            f"{one[0].__name__} and {other[0].__name__} share the collection {collection!r}, so "
            "all of its documents must have a lifetime, or follow one parent, but they declare "
            f"{one[1]!r} and {other[1]!r}."
        )


def check_plain(following: Following, model: type) -> None:
    """Reject the collection for a class without a policy, if its documents would be orphans."""
    if _makes_orphans(following):
        _check(following, model)


def check_following(following: Following) -> None:
    """Reject classes without a policy whose documents would be orphans in a collection."""
    if not _makes_orphans(following):
        return
    for model in subclasses_of(Document):
        if declaration(model, default=_NOTHING) is _NOTHING and _is_in(model, following):
            _check(following, model)


def _makes_orphans(following: Following) -> bool:
    return following.declared.orphan == "expired" and not following.enforced_by_others


def _is_in(model: Any, following: Following) -> bool:
    try:
        collection = collection_of(model)
        database = collection.database
    except (CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen it yet
        return False
    place = database.name, collection.name
    is_same_client = registry_of(database.client) is following.registry
    return is_same_client and place == (following.database, following.collection)


def _check(following: Following, model: type) -> None:
    follower = following.model
    if is_same_class(follower, model):  # of a notebook's cell that ran again
        return
    raise TTLConfigurationError(
        f"{model.__name__} declares no __ttl__, but shares the collection "
        f"{following.collection!r} with {follower.__name__}, whose documents expire if they have "
        f"no parent ({following.declared!r}): documents of {model.__name__} would be hidden at "
        f"once, and deleted by the next sweep. Declare __ttl__ = Follows(...) on {model.__name__}, "
        "too, or give it a collection of its own."
    )

"""What is asked of every document class as Beanie gives it a collection, also without `TTLMixin`.

A class that declares a lifetime has to have it in force, or nobody would notice before the disk is
full. And the documents of a class that declares none must not get among those that expire with a
parent: without one they would be hidden at once, and deleted by the next sweep.

Beanie has no hook for that, so `Document.set_collection` is replaced when ttl_odm is imported. It
runs once for each class in `init_beanie`; nothing that reads or writes documents is slower.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from beanie import Document

from ttl_odm.beanie.policy.bindings import backend_of, declaration, subclasses_of
from ttl_odm.beanie.policy.rules import rule_on
from ttl_odm.core.declaration import unenforced

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection

_NOTHING: Final = object()
_ENFORCED: Final = "enforces_ttl"
"""The attribute of the `set_collection` that puts the policy of a class on its collection."""


def enforcing(set_collection: Any) -> Any:
    """Mark a `set_collection` by which a class has its policy in force."""
    setattr(set_collection, _ENFORCED, True)
    return set_collection


def is_enforced(model: type[Document]) -> bool:
    """Say whether a class has its policy in force: by `TTLMixin`, or by `enable`."""
    return any(_is_enforcing(vars(base).get("set_collection")) for base in model.__mro__)


def _is_enforcing(method: Any) -> bool:
    return hasattr(getattr(method, "__func__", None), _ENFORCED)


def check(model: type[Document], collection: Collection) -> None:
    """Reject a class without a policy in force that declares one, or that a `Rule` would harm.

    In a database that isn't gated, `ensure_indexes` and sweepers reject what is declared in vain.
    """
    backend = backend_of(collection)
    if is_enforced(model) or backend == "migrations":  # where the application's own classes count
        return
    declared = declaration(model, default=_NOTHING)
    if declared is _NOTHING:
        rule = rule_on(collection)
        if rule is not None:
            rule.check_shared(model, None)
    elif backend is not None and not any(map(is_enforced, subclasses_of(model))):
        raise unenforced(model, declared, "TTLMixin", base="Document")  # no base class of others


def _watch_document_classes() -> None:
    plain: Any = vars(Document).get("set_collection", Document.set_collection)
    plain = getattr(plain, "__func__", plain)

    @wraps(plain)
    def set_collection(cls: type[Document], collection: Collection) -> None:
        check(cls, collection)
        plain(cls, collection)

    Document.set_collection = classmethod(set_collection)  # type: ignore[method-assign,assignment]


_watch_document_classes()

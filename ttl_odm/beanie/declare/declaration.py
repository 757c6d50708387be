"""What a document class may declare, and how its policy gets on its collection.

A class is checked when it is made, and when it gets its collection. A class without `TTLMixin` is
checked too: if it declares a lifetime, that has to be in force, or the mistake would go unnoticed
until the disk is full. If it declares none, its documents must not share a collection with
documents that expire with a parent: they have no parent, so they would be hidden at once and
deleted by the next sweep.

Beanie has no hook for that, so `Document.set_collection` is replaced when ttl_odm is imported. It
runs once for each class in `init_beanie`; reads and writes of documents are not slower.

This module must not know how the policy is enforced.
"""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final

from beanie import Document, View

from ttl_odm.beanie.gate.database import gated
from ttl_odm.beanie.objects.copies import prepare
from ttl_odm.beanie.policy.bindings import (
    backend_of,
    declaration,
    declared_policy,
    expires_itself,
    extension_of,
    purge_of,
    registry_of,
    reject_partitions,
    subclasses_of,
)
from ttl_odm.beanie.policy.predicate import deciding_fields
from ttl_odm.beanie.policy.rules import package_of, rule_on
from ttl_odm.beanie.policy.sources import outline, scope_of
from ttl_odm.beanie.policy.ttl_indexes import azure_indexes, check_purge
from ttl_odm.beanie.policy.ttl_indexes import check as check_policy
from ttl_odm.beanie.purge.removal import mode_of
from ttl_odm.beanie.time.formats import mark_durations
from ttl_odm.core.class_attributes import annotations_of
from ttl_odm.core.declaration import undeclared, unenforced
from ttl_odm.core.policy import TTL, default_extension, instant_field
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from ttl_odm.beanie.drivers import Collection
    from ttl_odm.core.policy import Policy

_NOTHING: Final = object()
_ENFORCED: Final = "enforces_ttl"
"""The attribute that marks a `set_collection` which puts the policy of a class in force."""


def check(model: type) -> None:
    """Reject a class with the mixin that can't have a policy, or not this one."""
    if issubclass(model, View):
        raise TTLConfigurationError(
            f"{model.__name__} is a view: declare the ttl on the document class that it reads."
        )
    if not issubclass(model, Document):
        return  # another mixin, a base of a document class
    order = [base.__name__ for base in model.__mro__]
    if order.index("TTLMixin") > order.index("Document"):
        raise TTLConfigurationError(f"class {model.__name__}: put TTLMixin before Document.")
    extension = extension_of(model)
    if extension is None:
        checked_policy(model)
    elif model.model_fields:  # Beanie makes classes of its own on the way, without fields
        package_of(extension).check(model, extension)


def checked_policy(model: type) -> Policy:
    """Return the policy that a class declares, with -1 for a default that isn't in code."""
    policy = declared_policy(model)
    check_policy(policy)
    check_purge(policy, purge_of(model))
    reject_partitions(model)
    return outline(policy)


def check_collection(model: type[Document]) -> None:
    """Reject a class without a declaration, and a `TTL` on a time-series collection."""
    if declaration(model, default=...) is ...:
        raise undeclared(model, "TTLMixin")
    extension = extension_of(model)
    if extension is not None:
        package_of(extension).check_collection(model, extension)
        return
    series = model.get_settings().timeseries
    if series is not None and isinstance(declared_policy(model), TTL):
        raise TTLConfigurationError(
            f"{model.__name__} has a time-series collection, whose measurements can't be changed "
            "individually, so they have neither a last modification nor a ttl of their own: "
            f"declare __ttl__ = ExpireAfter({series.time_field!r}, seconds)."
        )


def check_fields(model: type[Document], mixin: type[Document]) -> None:
    """Reject a class whose own field replaces a field of the mixin that its policy reads."""
    if extension_of(model) is not None:
        return
    deciding, annotated = deciding_fields(declared_policy(model)), _annotated(model, mixin)
    for name, field in mixin.model_fields.items():
        stored, own = field.alias or name, model.model_fields.get(name)
        if stored not in deciding or own is None or (own.alias or name) == stored:
            continue
        if name not in annotated:  # init_beanie() changed the base before the class was derived
            continue
        raise TTLConfigurationError(
            f"{model.__name__}.{name} is stored as {own.alias or name!r}, which replaces "
            f"TTLMixin's field {stored!r} that determines when documents expire: rename it, or "
            "name it in the policy: TTL(seconds, last_modified=..., override=...)."
        )


def bind(model: type[Document], collection: Collection) -> Any:
    """Put a class's policy on the collection that Beanie gives it; return that, gated."""
    ours = gated(collection)
    database = ours.database
    registry = registry_of(database.client)
    extension = extension_of(model)
    if extension is not None:
        package_of(extension).bind(model, extension, ours, database.ttl_backend)
        return ours
    policy, backend = declared_policy(model), database.ttl_backend
    if expires_itself(backend) and default_extension(policy) is None:
        azure_indexes(policy, purge_of(model))  # rejects a policy that the service can't enforce
    binding = registry.bind(model, database.name, ours.name, backend)
    mode_of(binding, ours.name)  # report a mistake now, not at the first write that meets it
    mark_durations(model)
    scope = scope_of(policy)
    fields = (*deciding_fields(policy), *(() if scope is None else (scope,)))
    own = model.model_fields.get("last_modified")
    # The mixin's field, which only the server sets, if lifetimes start there.
    is_stamp = own is not None and own.alias == "_ts" == instant_field(policy)
    prepare(model, fields, stamp="last_modified" if is_stamp else None)
    return ours


def enforcing(set_collection: Any) -> Any:
    """Mark a `set_collection` that puts the policy of a class in force."""
    setattr(set_collection, _ENFORCED, True)
    return set_collection


def is_enforced(model: type[Document]) -> bool:
    """Return whether a class has its policy in force: by `TTLMixin`, or by `enable`."""
    methods = (vars(base).get("set_collection") for base in model.__mro__)
    return any(hasattr(getattr(method, "__func__", None), _ENFORCED) for method in methods)


def drop_unused_fields(model: type[Document], mixin: type[Document]) -> None:
    """Remove `last_modified` and `ttl` from a class whose policy reads other fields."""
    policy = None if extension_of(model) is not None else declared_policy(model)
    used = {policy.last_modified, policy.override} if isinstance(policy, TTL) else set()
    annotated = _annotated(model, mixin)
    unused = [
        name
        for name, field in mixin.model_fields.items()
        if (field.alias or name) not in used and name not in annotated
    ]
    for name in unused:
        model.model_fields.pop(name, None)
    if unused:
        model.model_rebuild(force=True)


def _annotated(model: type[Document], mixin: type[Document]) -> set[str]:
    """Return the names of the fields that the user's own classes declare."""
    return {
        name
        for base in model.__mro__
        if base is not mixin and issubclass(base, Document) and base is not Document
        for name in annotations_of(base)
    }


def _check_enforced(model: type[Document], collection: Collection) -> None:
    """Reject a class whose declaration isn't in force, or whose documents a `Rule` would harm.

    In a database that isn't gated, `ensure_indexes` and sweepers reject such a declaration.
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
        _check_enforced(cls, collection)
        plain(cls, collection)

    Document.set_collection = classmethod(set_collection)  # type: ignore[method-assign,assignment]


_watch_document_classes()

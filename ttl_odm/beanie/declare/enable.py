"""`enable` and `disable`: policies for document classes whose source can't be changed.

A class gets ``__ttl__`` and similar attributes as if it had declared them. A class without
`TTLMixin` also gets what the mixin does for Beanie: a `set_collection` that puts the policy on the
collection; query classes that know when to bypass Beanie's cache; and a `save` that doesn't insert
an expired document again, for which reads and writes remember what was stored. If the class uses
Beanie's soft delete, its `delete` doesn't insert one either, and its `hard_delete` reports expired
documents as `delete` does. The class doesn't get the mixin's fields and methods.
"""

from __future__ import annotations

from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Final

from beanie import Document
from beanie.exceptions import CollectionWasNotInitialized
from beanie.odm.documents import DocumentWithSoftDelete
from beanie.odm.queries.find import FindMany, FindOne

from ttl_odm.beanie.declare import declaration
from ttl_odm.beanie.objects import document_writes
from ttl_odm.beanie.objects.cache import TTLFindMany, TTLFindOne
from ttl_odm.beanie.objects.copies import remember
from ttl_odm.beanie.policy.bindings import collection_of, registry_of, subclasses_of
from ttl_odm.beanie.policy.predicate import deciding_fields
from ttl_odm.core.class_attributes import Overlay
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper.hooks import declarations

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import timedelta

    from ttl_odm.beanie.drivers import Collection, Method
    from ttl_odm.core.extension import DefaultExtension
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import ArchiveSink
    from ttl_odm.sweeper.hooks import Archive

_overlay: Final = Overlay()


def enable(  # noqa: PLR0913 (what a class may declare)
    target: object,
    policy: Policy | DefaultExtension | float | timedelta | None,
    *,
    purge: str | None = None,
    archive: Archive | ArchiveSink | None = None,
    on_purged: object = None,
    sweep: str | None = None,
) -> None:
    """Give a document class a lifetime, even one from another package.

    From then on the class behaves as if it had declared ``__ttl__ = policy``. Call it when the
    application starts, before or after `init_beanie`. A second call with another policy replaces
    the first. The database isn't changed: `ensure_indexes` creates the indexes.

    Args:
        target: A Beanie document class, with or without `TTLMixin`.
        policy: Any value of ``__ttl__``: seconds, -1, None, `Stored`, `TTL`, `ExpireAfter`,
            `ExpireAt`.
        purge: Any value of ``__ttl_purge__``: who deletes, "native" or "sweeper". For this and the
            next three arguments, None keeps what the class declares or was given before.
        archive: Any value of ``__ttl_archive__``: where expired documents are kept.
        on_purged: Any value of ``__ttl_on_purged__``: the hook to call for them.
        sweep: Any value of ``__ttl_sweep__``: how the sweeper finds them, "index" or "scan".

    Raises:
        InvalidTTL: The policy is a number that is not a ttl.
        TTLConfigurationError: The target is not a document class, lacks a field that the policy
            names, or could no longer read its documents.
    """
    if not (isinstance(target, type) and issubclass(target, Document)):
        raise TTLConfigurationError(f"enable({target!r}): pass a Beanie document class.")
    declared = declarations(purge=purge, archive=archive, on_purged=on_purged, sweep=sweep)
    attributes = {**declared, "__ttl__": policy, **_machinery(target)}
    with _overlay.put(target, attributes, undone=lambda: _bind_again(target)):
        _check(target)
        _bind_again(target)


def disable(target: Any) -> None:
    """Undo `enable`: the class's own declaration, if any, applies again.

    MongoDB keeps deleting by its existing indexes until a later `ensure_indexes` for the class
    removes them.

    Raises:
        TTLConfigurationError: The target was not enabled.
    """
    _overlay.remove(target, name=getattr(target, "__name__", repr(target)))
    _bind_again(target)


def _machinery(target: type[Document]) -> dict[str, object]:
    """Return the methods that a class needs; none if it has `TTLMixin` or was enabled before."""
    if declaration.is_enforced(target):
        return {}
    plain: Any = getattr(target.set_collection, "__func__")  # noqa: B009 (typed as a function)

    @declaration.enforcing
    def set_collection(cls: type[Document], collection: Collection) -> None:
        """Gate the collection that Beanie gives, and put the policy on it."""
        declaration.check_collection(cls)
        plain(cls, declaration.bind(cls, collection))

    attributes: dict[str, object] = {
        "set_collection": classmethod(set_collection),
        "_save_state": _remembering(target._save_state),
        "save": document_writes.run_as(document_writes.save, target.save),
        "insert": document_writes.run_as(document_writes.insert, target.insert),
        "insert_one": _inserting(document_writes.insert_one, target.insert_one),
        "insert_many": _inserting(document_writes.insert_many, target.insert_many),
    }
    if issubclass(target, DocumentWithSoftDelete):
        for name in ("delete", "hard_delete"):  # `delete` saves the document
            attributes[name] = document_writes.run_as(document_writes.delete, getattr(target, name))
    if target._find_one_query_class is FindOne:
        attributes["_find_one_query_class"] = TTLFindOne
    if target._find_many_query_class is FindMany:
        attributes["_find_many_query_class"] = TTLFindMany
    return attributes


def _inserting(runs: Method[object], method: Any) -> object:
    plain = method.__func__

    @wraps(plain)
    async def run(cls: type[Document], *args: Any, **kwargs: Any) -> object:
        return await runs(partial(plain, cls), *args, **kwargs)

    return classmethod(run)


def _remembering(save_state: Callable[[Document], None]) -> Callable[[Document], None]:
    @wraps(save_state)
    def run(document: Document) -> None:
        save_state(document)
        remember(document)

    return run


def _check(target: type[Document]) -> None:
    """Reject a policy that the class declares wrongly, or whose fields it doesn't have."""
    policy = declaration.checked_policy(target)
    if target.model_config.get("extra") == "allow":
        return
    own = {info.alias or name for name, info in target.model_fields.items()}
    missing = [name for name in deciding_fields(policy) if name.partition(".")[0] not in own]
    if unknown := [name for name in missing if name not in ("_ts", "ttl")]:
        raise TTLConfigurationError(
            f"enable({target.__name__}): it has no field {', '.join(map(repr, unknown))}. It has "
            f"{', '.join(map(repr, sorted(own)))}."
        )
    if missing and target.model_config.get("extra") == "forbid":
        raise TTLConfigurationError(
            f"enable({target.__name__}): it forbids undeclared fields, so it couldn't read "
            f"documents with {missing[0]!r}. Name fields of this class in the policy."
        )


def _bind_again(target: type[Document]) -> None:
    """Put the policy on the collections of a class and its subclasses, if Beanie made any."""
    for model in (target, *subclasses_of(target)):
        try:
            collection = collection_of(model)
        except (CollectionWasNotInitialized, AttributeError):  # before init_beanie()
            continue
        if declaration.is_enforced(model):
            model.set_collection(collection)  # type: ignore[no-untyped-call]
        else:
            database = collection.database
            registry_of(database.client).unbind(database.name, collection.name)

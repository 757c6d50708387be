"""Reading stored defaults and their history, and changing them."""

from __future__ import annotations

from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any

from bson import ObjectId
from pydantic import TypeAdapter, ValidationError

from ttl_odm.beanie.indexes.ensure import ensure_collection
from ttl_odm.beanie.policy.bindings import binding_of, collection_of
from ttl_odm.core.values import lenient_ttl, short_repr
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.stored.beanie import turns
from ttl_odm.stored.beanie.default_cache import WHOLE_COLLECTION
from ttl_odm.stored.beanie.lookup import all_of, is_scope, sibling
from ttl_odm.stored.beanie.source import StoredSource
from ttl_odm.stored.rows import (
    CHANGES,
    POLICIES,
    NamedDefault,
    PolicyChange,
    StoredPolicy,
    not_stored,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ttl_odm.beanie.drivers import Collection, Document, Filter
    from ttl_odm.stored import StoredTTL
    from ttl_odm.stored.beanie.lookup import StoredDefault


async def stored_policies(model: type, *models: type) -> list[StoredPolicy]:
    """Read the stored defaults, ordered by name.

    Args:
        model: A document class that `init_beanie` has seen.
        models: More classes.

    Raises:
        TTLConfigurationError: The default of one of them isn't stored.
    """
    policies: list[StoredPolicy] = []
    for collection in _collections(model, *models):
        own = {**all_of(collection), "ttl": {"$exists": True}}
        policies += [
            StoredPolicy(ttl=lenient_ttl(row["ttl"]), **_common_fields(row["_id"], row))
            async for row in sibling(collection, POLICIES).find(own)
        ]
    return sorted(policies, key=lambda policy: (policy.name, policy.scope or ""))


async def policy_changes(model: type, *models: type) -> list[PolicyChange]:
    """Read the changes of stored defaults, newest first; arguments as for `stored_policies`."""
    changes: list[PolicyChange] = []
    for collection in _collections(model, *models):
        rows = sibling(collection, CHANGES).find({"name": collection.name}).sort("_id", -1)
        changes += [
            PolicyChange(
                ttl_before=row["ttl_before"],
                ttl_after=row["ttl_after"],
                **_common_fields(row, row),
            )
            async for row in rows
        ]
    return sorted(changes, key=lambda change: change.changed_at, reverse=True)


async def set_policy(
    model: type,
    ttl: StoredTTL,
    *,
    scope: object = None,
    by: str,
    reason: str | None = None,
) -> int | None:
    """Change a stored default, and the indexes by which MongoDB deletes.

    It takes effect with the next operation of each process, on every document that inherits it,
    unless the class allows stale values (`Stored.max_staleness`). If MongoDB itself deletes, and
    would now do so sooner, this function waits for that time.

    Args:
        model: A document class that `init_beanie` has seen.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose documents then have the collection's.
        scope: A value of `Stored.by`, for the documents that have it: a str, an int or an
            ObjectId. None for all documents without their own default.
        by: Who changes it.
        reason: Why.

    Returns:
        The previous default; 0 if the scope had none of its own.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the class isn't stored, or has no scopes, or there
            are already 1,000 of them; or the server is not a replica set; or `ensure_indexes` must
            be called first. Nothing is changed.
        TTLError: Others keep changing it. `policy_changes` shows whether this change was made.
    """
    value = scope_of(model, scope)
    after = named_default(model, value).checked(ttl)
    return await change(model, after, scope=value, by=by, reason=reason)


async def change(  # noqa: PLR0913 (all but two by keyword)
    model: type,
    ttl: int | None,
    *,
    scope: object,
    by: str,
    reason: str | None,
    check: Callable[[int | None], Awaitable[None]] | None = None,
) -> int | None:
    """Change a default to a value that was checked; see `set_policy`.

    `check` is called with the old value, once no other client can change that and before anything
    is changed; it may raise an error.
    """
    collection, default = stored_of(model)
    binding = default.binding
    ensure = partial(
        ensure_collection,
        collection,
        purge=binding.purge,
        backend=binding.backend,
        scope=binding.scope,
    )
    make = partial(turns.change, collection, default, ensure)
    return await make(ttl, scope=scope, by=by, reason=reason, check=check)


def named_default(model: type, scope: object) -> NamedDefault:
    """Return the default of a class, or of a scope as it is stored; see `scope_of`."""
    collection, default = stored_of(model)
    text = None if scope == WHOLE_COLLECTION else str(scope)
    return NamedDefault(collection.name, model.__name__, default.declared, text)


def scope_of(model: type, scope: object) -> object:
    """Return a scope as it is stored; a command line's text is converted.

    Raises:
        TTLConfigurationError: The class has no scopes, or can't have this one.
    """
    if scope is None:
        return WHOLE_COLLECTION
    _, default = stored_of(model)
    stored = default.declared
    if stored.by is None:
        raise stored.without_scopes(model.__name__, scope, "documents")
    value: Any = scope
    fields: Any = getattr(model, "model_fields", {})
    for name, info in fields.items():
        if (info.alias or name) == stored.by:
            try:  # True would be 1
                is_bool = isinstance(scope, bool)
                value = None if is_bool else TypeAdapter(info.annotation).validate_python(scope)
            except ValidationError:
                raise TTLConfigurationError(
                    f"{model.__name__}.{stored.by} = {short_repr(scope)}: no document can have "
                    "this value, because the field doesn't accept it."
                ) from None
    value = value.value if isinstance(value, Enum) else value
    if not is_scope(value):
        raise TTLConfigurationError(
            f"{model.__name__}.{stored.by} = {short_repr(scope)}: on MongoDB, a value can have a "
            "stored default of its own if it is a str (not empty), a 64-bit int or an ObjectId."
        )
    return ObjectId(value) if isinstance(value, ObjectId) else value


def stored_of(model: type) -> tuple[Collection, StoredDefault]:
    """Return a class's collection and its default.

    Raises:
        TTLConfigurationError: The default isn't stored.
    """
    binding = binding_of(model)
    source = None if binding is None else binding.source
    if not isinstance(source, StoredSource):
        raise not_stored(model.__name__)
    return collection_of(model), source.default


def _collections(*models: type) -> list[Collection]:
    """Return each collection once."""
    collections = (stored_of(model)[0] for model in models)
    return list({collection.full_name: collection for collection in collections}.values())


def _common_fields(key: Filter, row: Filter) -> Document:
    scope = key["scope"]
    return {
        "name": key["name"],
        "scope": None if scope == WHOLE_COLLECTION else str(scope),
        "changed_at": row["changed_at"],
        "changed_by": row["changed_by"],
        "reason": row["reason"],
    }

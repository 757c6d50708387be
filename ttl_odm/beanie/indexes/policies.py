"""Reading and changing the defaults that the database stores, and what became of them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ttl_odm.beanie.indexes import stored_default
from ttl_odm.beanie.indexes.ensure import ensure_collection
from ttl_odm.beanie.policy.binding import binding_of, collection_of
from ttl_odm.beanie.policy.stored import CHANGES, POLICIES, WHOLE_COLLECTION, beside
from ttl_odm.core.stored import PolicyChange, StoredPolicy
from ttl_odm.core.values import lenient_ttl
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import timedelta

    from ttl_odm.beanie.drivers import Collection, Document
    from ttl_odm.beanie.policy.binding import Binding


async def stored_policies(model: type, *models: type) -> list[StoredPolicy]:
    """Read the defaults that are stored, ordered by their names.

    Args:
        model: A document class that `init_beanie` has seen.
        models: More of them.

    Raises:
        TTLConfigurationError: The default of one of them isn't stored.
    """
    found: list[StoredPolicy] = []
    for collection in _collections(model, *models):
        own = {"_id.name": collection.name, "ttl": {"$exists": True}}
        found += [
            StoredPolicy(ttl=lenient_ttl(row["ttl"]), **_told(row["_id"], row))
            async for row in beside(collection, POLICIES).find(own)
        ]
    return sorted(found, key=lambda policy: policy.name)


async def policy_changes(model: type, *models: type) -> list[PolicyChange]:
    """Read how stored defaults were changed, the last change first; arguments as before."""
    found: list[PolicyChange] = []
    for collection in _collections(model, *models):
        found += [
            PolicyChange(
                ttl_before=row["ttl_before"], ttl_after=row["ttl_after"], **_told(row, row)
            )
            async for row in beside(collection, CHANGES)
            .find({"name": collection.name})
            .sort("_id", -1)
        ]
    return sorted(found, key=lambda change: change.changed_at, reverse=True)


async def set_policy(
    model: type,
    ttl: float | timedelta | None,
    *,
    scope: object = None,
    by: str,
    reason: str | None = None,
) -> int | None:
    """Change a default that is stored, and what MongoDB deletes by.

    It acts on every document that inherits it, in the next operation of each process, but for
    those whose class lets them go by what they have read (`Stored.max_staleness`). Where MongoDB
    itself deletes, and is to do so sooner, this waits for so long.

    Args:
        model: A document class that `init_beanie` has seen.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
        scope: None; here all documents have one default.
        by: Who changes it.
        reason: Why.

    Returns:
        What the default was; None also where nothing was stored.

    Raises:
        InvalidTTL: It is no ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the class isn't stored, the server is no replica set,
            or `ensure_indexes` is needed first. Nothing is changed.
        TTLError: Others keep changing it. Whether it was changed, `policy_changes` says.
    """
    return await change(model, checked(model, ttl, scope), by=by, reason=reason)


async def change(
    model: type,
    ttl: int | None,
    *,
    by: str,
    reason: str | None,
    check: Callable[[int | None], Awaitable[None]] | None = None,
) -> int | None:
    """Change a default to a value that was checked; see `set_policy`.

    `check` gets what it was while nobody else can change it, and may raise before anything is.
    """
    collection, binding = stored_of(model)
    ensure = partial(ensure_collection, collection, purge=binding.purge, backend=binding.backend)
    make = partial(stored_default.change, collection, binding, ensure)
    return await make(ttl, by=by, reason=reason, check=check)


def checked(model: type, ttl: float | timedelta | None, scope: object) -> int | None:
    """Return a default that it is to be; raises as `set_policy` does."""
    stored = stored_of(model)[1].stored
    assert stored is not None  # noqa: S101 (stored_of has looked)
    if scope is not None:
        raise TTLConfigurationError(
            f"{model.__name__}.__ttl__ = {stored!r}: all its documents have one default, so there "
            f"is none for scope={scope!r}."
        )
    return stored.checked(ttl, where=f"{model.__name__}.__ttl__")


def stored_of(model: type) -> tuple[Collection, Binding]:
    """Return a class's collection and its policy; raises where its default isn't stored."""
    binding = binding_of(model)
    if binding is None or binding.stored is None:
        raise TTLConfigurationError(
            f"The default ttl of {model.__name__} isn't stored in the database: declare it as in "
            "__ttl__ = Stored(3600)."
        )
    return collection_of(model), binding


def _collections(*models: type) -> list[Collection]:
    """Return each collection once."""
    collections = (stored_of(model)[0] for model in models)
    return list({collection.full_name: collection for collection in collections}.values())


def _told(named: Document, row: Document) -> dict[str, Any]:
    scope = named["scope"]
    return {
        "name": named["name"],
        "scope": None if scope == WHOLE_COLLECTION else scope,
        "changed_at": row["changed_at"],
        "changed_by": row["changed_by"],
        "reason": row["reason"],
    }

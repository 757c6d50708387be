"""A view of a collection's live documents, for readers that bypass the gate.

mongosh, BI tools and programs in other languages read it instead of the collection. At each read
the server judges the documents by its own clock (``$$NOW``) and the gate's condition. A comment in
the pipeline marks the view as ours; a view without it is never touched.

The view contains the default as a number, so each call of `ensure_indexes` updates it, like the TTL
indexes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import bson
from bson.codec_options import CodecOptions
from pymongo.errors import OperationFailure

from ttl_odm.beanie.policy.commands import NAMESPACE_NOT_FOUND, alter, details_of, first_batch
from ttl_odm.beanie.policy.predicate import live_expr, never_expires
from ttl_odm.errors import TTLConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from ttl_odm.beanie.drivers import Backend, Collection, Document, Pipeline
    from ttl_odm.core.policy import Policy

LIVE_VIEW: Final = "__ttl_view"
_NAMESPACE_EXISTS: Final = 48
_AS_STORED: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True)


async def details_and_views(collection: Collection) -> tuple[Document, list[Document]]:
    """Return listCollections' entries for a collection and for all its views, by one command."""
    name = collection.name
    either = {"$or": [{"name": name}, {"options.viewOn": name}]}
    listing = {"listCollections": 1, "filter": either, "cursor": {"batchSize": 10_000}}
    entries = await first_batch(collection, listing)
    views = [entry for entry in entries if entry["name"] != name]
    return next((entry for entry in entries if entry["name"] == name), {}), views


async def ensure_view(  # noqa: PLR0913 (all but three by keyword)
    collection: Collection,
    views: Iterable[Document],
    policy: Policy | None,
    *,
    view: str | bool | None,
    begin: Callable[[], Awaitable[None]],
    backend: Backend,
) -> list[tuple[str, str]]:
    """Create, change and drop our views of a collection; return what was done to which.

    Args:
        collection: The collection, gated or not.
        views: listCollections' entries for its views.
        policy: Its policy. Without one, or if TTL is off, our views are dropped.
        view: The name of a view to have, True for the usual name, False for no view, None to keep
            the existing ones.
        begin: Called before the first change.
        backend: What the collection is on.
    """
    # Bypasses the gate, which would add its condition to the view's pipeline.
    plain = collection.database.client[collection.database.name][collection.name]
    is_over = policy is None or never_expires(policy) or view is False
    needed = None if policy is None or is_over else _pipeline(policy)
    ours = {entry["name"]: entry["options"]["pipeline"] for entry in views if _is_ours(entry)}
    target = f"{plain.name}_live" if view is True else view
    is_new = needed is not None and bool(target) and target not in ours
    if is_new or any(pipeline != needed for pipeline in ours.values()):
        await begin()
    done = []
    for name, pipeline in ours.items():
        if needed is None:
            await _drop(plain, name, backend)
            done.append(("removed", name))
        elif pipeline == needed:
            done.append(("unchanged", name))
        else:
            await alter(plain, {"collMod": name, "viewOn": plain.name, "pipeline": needed}, backend)
            done.append(("changed", name))
    if needed is not None and target and target not in ours:
        await _create(plain, target, needed, backend)
        done.append(("created", target))
    return done


def _pipeline(policy: Policy) -> Pipeline:
    """Return the view's pipeline as listCollections returns it."""
    stages = [{"$match": {"$comment": LIVE_VIEW, "$expr": live_expr(policy)}}]
    stored: Pipeline = bson.decode(bson.encode({"stages": stages}), _AS_STORED)["stages"]
    return stored


def _is_ours(view: Document) -> bool:
    stages: Pipeline = view["options"].get("pipeline", [])
    return any(stage.get("$match", {}).get("$comment") == LIVE_VIEW for stage in stages[:1])


async def _create(plain: Collection, name: str, pipeline: Pipeline, backend: Backend) -> None:
    try:
        await alter(plain, {"create": name, "viewOn": plain.name, "pipeline": pipeline}, backend)
    except OperationFailure as error:
        if error.code != _NAMESPACE_EXISTS:
            raise
        options = (await details_of(plain.database[name])).get("options", {})
        if (options.get("viewOn"), options.get("pipeline")) != (plain.name, pipeline):
            raise TTLConfigurationError(
                f"view={name!r}: {plain.database.name!r} already has a collection or view of that "
                f"name, which ttl_odm didn't create for {plain.name!r}. Choose another name."
            ) from error


async def _drop(plain: Collection, name: str, backend: Backend) -> None:
    try:
        await alter(plain, {"drop": name}, backend)
    except OperationFailure as error:
        if error.code != NAMESPACE_NOT_FOUND:  # else another client was faster
            raise

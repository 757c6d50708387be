"""Views of collections whose documents expire: the predicate is in their definition.

A reader of a view can't add the predicate, because the view's pipeline may have changed the
documents. So the definition on the server gets it: when Beanie creates the view, and when a view is
read whose definition lacks it or has that of an earlier policy.

This module must not know how views are read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import bson
from beanie import View

from ttl_odm.beanie.policy.bindings import subclasses_of
from ttl_odm.beanie.policy.commands import alter, details_of
from ttl_odm.beanie.rewrite.pipelines import live_pipeline

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from ttl_odm.beanie.drivers import Backend, Collection, Filter, Pipeline
    from ttl_odm.beanie.policy.bindings import Registry
    from ttl_odm.beanie.rewrite.pipelines import Policies


@dataclass(slots=True)
class _Known:
    """The views that one client has checked, by database and name, and their pipelines there."""

    models: dict[tuple[str, str], type[View] | None] = field(default_factory=dict)
    defined: dict[tuple[str, str], Pipeline] = field(default_factory=dict)


_known: WeakKeyDictionary[Registry, _Known] = WeakKeyDictionary()


def as_pipeline(source: str, pipeline: Sequence[Filter]) -> Pipeline:
    """Return a pipeline that reaches the same collections as a view."""
    return [{"$unionWith": source}, *map(dict, pipeline)]


def read_by(command: object) -> Pipeline:
    """Return such a pipeline for the view that a database command creates, empty for no view."""
    if not isinstance(command, Mapping) or "viewOn" not in command:
        return []
    return as_pipeline(command["viewOn"], command.get("pipeline", ()))


async def ensure(
    collection: Collection,
    registry: Registry,
    policies: Policies,
    read_defaults: Callable[[Pipeline], Awaitable[None]],
    backend: Backend,
) -> None:
    """Correct the definition of a view, if the collection is a view of Beanie's.

    `read_defaults` reads the defaults that aren't in code, for all collections of a pipeline.
    """
    known = _known.setdefault(registry, _Known())
    key = collection.database.name, collection.name
    if key not in known.models:
        known.models[key] = _model_of(*key)
    model = known.models[key]
    if model is None:
        return
    settings = model.get_settings()
    source = str(settings.source)  # Beanie has replaced a class by its collection's name
    await read_defaults(as_pipeline(source, settings.pipeline))
    pipeline = live_pipeline(settings.pipeline, policies.judge_named(None, source), policies)
    if pipeline == settings.pipeline and key not in known.defined:
        return
    if known.defined.get(key) == pipeline:
        return
    defined = bson.decode(bson.encode({"viewOn": source, "pipeline": pipeline}))
    options = (await details_of(collection)).get("options", {})
    if any(options.get(name) != value for name, value in defined.items()):
        await alter(collection, {"collMod": collection.name, **defined}, backend)
    known.defined[key] = pipeline


def _model_of(database: str, name: str) -> type[View] | None:
    """Return Beanie's class for a view, None if there is none."""
    for model in subclasses_of(View):
        settings = getattr(model, "_settings", None)
        if getattr(settings, "name", None) != name:
            continue
        db = getattr(settings, "pymongo_db", None)
        db = getattr(settings, "motor_db", None) if db is None else db
        if db is not None and db.name == database:
            return model
    return None

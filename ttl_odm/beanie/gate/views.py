"""Views over collections whose documents expire: the predicate stands in the view itself.

A reader of a view cannot add it, as a view shows whatever its pipeline makes of the documents. So
it is put into the definition on the server: when Beanie creates the view, and again when a view is
read that was defined without it, or before the policy changed.

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

    from ttl_odm.beanie.drivers import Collection, Filter, Pipeline
    from ttl_odm.beanie.policy.bindings import Registry
    from ttl_odm.beanie.policy.entries import Backend
    from ttl_odm.beanie.rewrite.pipelines import Policies


@dataclass(slots=True)
class _Known:
    """The views that one client has seen to, by database and name, and their pipelines there."""

    models: dict[tuple[str, str], type[View] | None] = field(default_factory=dict)
    defined: dict[tuple[str, str], Pipeline] = field(default_factory=dict)


_known: WeakKeyDictionary[Registry, _Known] = WeakKeyDictionary()


def as_pipeline(source: str, pipeline: Sequence[Filter]) -> Pipeline:
    """Return a pipeline that reaches the collections that a view reads."""
    return [{"$unionWith": source}, *map(dict, pipeline)]


def read_by(command: object) -> Pipeline:
    """Return such a pipeline for the view that a database command makes; empty if it makes none."""
    if not isinstance(command, Mapping) or "viewOn" not in command:
        return []
    return as_pipeline(command["viewOn"], command.get("pipeline", ()))


async def ensure(
    collection: Collection,
    registry: Registry,
    policies: Policies,
    know: Callable[[Pipeline], Awaitable[None]],
    backend: Backend,
) -> None:
    """Define a view as it should be, if a collection is one of Beanie's.

    `know` reads the defaults that aren't in code, of what a pipeline reaches.
    """
    known = _known.setdefault(registry, _Known())
    key = collection.database.name, collection.name
    if key not in known.models:
        known.models[key] = _model_of(*key)
    model = known.models[key]
    if model is None:
        return
    settings = model.get_settings()
    source = str(settings.source)  # Beanie has made a class the name of its collection
    await know(as_pipeline(source, settings.pipeline))
    pipeline = live_pipeline(settings.pipeline, policies.own_named(None, source), policies)
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
        its = getattr(settings, "pymongo_db", None)
        its = getattr(settings, "motor_db", None) if its is None else its
        if its is not None and its.name == database:
            return model
    return None

"""Views over collections whose documents expire: the predicate stands in the view itself.

A reader of a view cannot add it, as a view shows whatever its pipeline makes of the documents. So
it is put into the definition on the server: when Beanie creates the view, and again when a view is
read that was defined without it, or before the policy changed.

This module must not know how views are read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import bson
from beanie import View

from ttl_odm.beanie.policy.commands import details_of, run
from ttl_odm.beanie.rewrite import filters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ttl_odm.beanie.gate.gate import Gate

Pipeline = list[dict[str, Any]]


class Views:
    """The views that one client has seen to."""

    def __init__(self) -> None:
        """Know of none."""
        self._models: dict[tuple[str, str], Any] = {}
        self._defined: dict[tuple[str, str], Pipeline] = {}

    async def ensure(self, gate: Gate) -> None:
        """Define a view as it should be, if the gate's collection is one of Beanie's."""
        key = gate.database, gate.plain.name
        if key not in self._models:
            self._models[key] = _model_of(*key)
        model = self._models[key]
        if model is None:
            return
        settings = model.get_settings()
        wanted = filters.live_pipeline(
            settings.pipeline, gate.policy_named(None, settings.source), gate
        )
        if wanted == settings.pipeline and key not in self._defined:
            return
        if self._defined.get(key) != wanted:
            await _define(gate.plain, settings.source, wanted)
            self._defined[key] = wanted


async def _define(collection: Any, source: str, pipeline: Pipeline) -> None:
    found = (await details_of(collection)).get("options", {})
    if (found.get("viewOn"), found.get("pipeline")) != (source, _as_stored(pipeline)):
        await run(collection, {"collMod": collection.name, "viewOn": source, "pipeline": pipeline})


def _as_stored(pipeline: Pipeline) -> Pipeline:
    stored: Pipeline = bson.decode(bson.encode({"pipeline": pipeline}))["pipeline"]
    return stored


def _model_of(database: str, name: str) -> Any:
    """Return Beanie's class for a view, None if there is none."""
    for model in _all_views(View):
        settings = getattr(model, "_settings", None)
        if getattr(settings, "name", None) != name:
            continue
        its = getattr(settings, "pymongo_db", None)
        its = getattr(settings, "motor_db", None) if its is None else its
        if its is not None and its.name == database:
            return model
    return None


def _all_views(model: Any) -> Iterator[Any]:
    for each in model.__subclasses__():
        yield each
        yield from _all_views(each)

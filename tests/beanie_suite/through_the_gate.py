"""A pytest plugin for Beanie's own tests: what `init_beanie` is given passes the gate.

Loaded with ``-p through_the_gate`` into a run of Beanie's suite, which knows nothing of it. The
environment says which collections get a policy: none (``TTL_ODM_POLICY=none``) or every one
(``TTL_ODM_POLICY=hour``), an hour being longer than any test.
"""

from __future__ import annotations

import os
from typing import Any

from beanie.odm.utils.init import Initializer

from ttl_odm.beanie import ttl_database
from ttl_odm.beanie.policy.bindings import registry_of

_every_collection = os.environ["TTL_ODM_POLICY"] == "hour"


class Hourly:
    """Stands for the model of a collection that gets a policy."""

    __ttl__ = 3600


_make: Any = Initializer.__init__
_init_collection: Any = Initializer.init_document_collection


def _gated(self: Any, *args: Any, **options: Any) -> None:
    _make(self, *args, **options)
    self.database = ttl_database(self.database)


async def _bound(self: Any, model: Any) -> None:
    await _init_collection(self, model)
    settings = model.get_settings()
    if _every_collection and settings.timeseries is None:
        name = getattr(settings, "name", None) or model.__name__
        database = self.database
        registry_of(database.client).bind(Hourly, database.name, name, "mongodb")


initializer: Any = Initializer
initializer.__init__ = _gated
initializer.init_document_collection = _bound

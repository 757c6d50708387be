"""The sweeper's store for MongoDB: `MongoStore`, over PyMongo's asynchronous driver or Motor.

Thin: each method looks a target up, and hands it to the functions of `ttl_odm.beanie.sweeping`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pymongo.asynchronous.database import AsyncDatabase

from ttl_odm.beanie.purge.errors import store_errors
from ttl_odm.beanie.purge.raw_collection import RawCollection
from ttl_odm.beanie.sweep.batch import purge
from ttl_odm.beanie.sweep.due import count, find_due, now
from ttl_odm.beanie.sweep.leases import CollectionLeases
from ttl_odm.beanie.sweep.stages import layout_of
from ttl_odm.beanie.sweep.targets import targets_of
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Hooks, Pace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from ttl_odm.beanie.sweep.stages import Layout
    from ttl_odm.beanie.sweep.targets import Target
    from ttl_odm.sweeper import BatchRequest, BatchResult, Counted, Due

_PACE: Final = Pace(start=1_000, lowest=50, highest=5_000, target=0.1)


def open_store(database: Any, targets: Any) -> MongoStore:
    """Make the store of a database; the entry points of ``ttl_odm.stores`` for both drivers.

    Args:
        database: What `ttl_odm.beanie.ttl_database` gave, or what it was given.
        targets: A document class that `init_beanie` has seen, or a list of them.

    Raises:
        TTLConfigurationError: One of them isn't.
    """
    is_motor = any(each.__name__ == "AsyncIOMotorDatabase" for each in type(database).__mro__)
    if isinstance(database, AsyncDatabase) or is_motor:
        return MongoStore(database, targets)
    raise TTLConfigurationError(
        f"A sweeper needs an AsyncDatabase of PyMongo, or an AsyncIOMotorDatabase of Motor, not "
        f"{type(database).__name__}."
    )


class MongoStore:
    """A `ttl_odm.sweeper.AsyncStore`, with all that a store may offer."""

    def __init__(self, database: Any, targets: Any) -> None:
        """Look at the targets; see `open_store`."""
        self._database = database
        self._given = targets
        self._targets: dict[str, Target] = {}
        self._layouts: dict[str, Layout] = {}
        for name in self.targets():
            target = self._targets[name]
            _ = target.mode, target.is_walked  # a slip is found now, not at three in the morning

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit MongoDB."""
        return _PACE

    @property
    def backend(self) -> str:
        """MongoDB."""
        return "mongodb"

    @property
    def leases(self) -> CollectionLeases:
        """In a collection of the same database."""
        return CollectionLeases(self._database)

    @property
    def hooks(self) -> Hooks:
        """What the classes declare as ``__ttl_on_purged__``."""
        return sum((each.mode.hooks for each in self._targets.values()), Hooks())

    def targets(self) -> Sequence[str]:
        """Name the collections; looked for each time, since a list may have grown."""
        self._targets = targets_of(self._database, self._given)
        return list(self._targets)

    async def due(self, target: str) -> Due | None:
        """Find what has expired in a collection; None while its TTL is off.

        None as well for a time series, of which MongoDB deletes whole buckets.
        """
        found = self._targets[target]
        with store_errors():
            layout = self._layouts[target] = await layout_of(found)
            return await find_due(RawCollection(found.collection), found.policy, layout)

    async def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired documents, and commit."""
        target = self._targets[request.target]
        place = RawCollection(target.collection, timeout=request.timeout)
        with store_errors():
            layout = self._layouts.get(request.target) or await layout_of(target)
            self._layouts[request.target] = layout
            return await purge(place, target, layout, request)

    async def count(self, target: str) -> Counted:
        """Count what has expired in a collection, and estimate how many documents it has."""
        found = self._targets[target]
        with store_errors():
            return await count(
                RawCollection(found.collection), found.policy, await layout_of(found)
            )

    async def now(self) -> datetime:
        """Return the server's present instant."""
        with store_errors():
            return await now(self._database)

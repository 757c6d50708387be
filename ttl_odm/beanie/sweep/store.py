"""`MongoStore`, the sweeper's store over PyMongo's asynchronous driver or Motor.

Its targets are the collections of Beanie's document classes in one database. Each method looks up a
target and passes it to functions of `due` and `batch`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import beanie
from pymongo.asynchronous.database import AsyncDatabase

from ttl_odm.beanie.policy.bindings import binding_of, check_enforced, collection_of
from ttl_odm.beanie.policy.commands import RawCollection, command_in
from ttl_odm.beanie.policy.rules import rule_of
from ttl_odm.beanie.purge.errors import store_errors
from ttl_odm.beanie.purge.removal import mode_of
from ttl_odm.beanie.sweep.batch import purge
from ttl_odm.beanie.sweep.due import (
    count,
    count_facts,
    find_due,
    layout_of,
    now,
    with_dependents,
)
from ttl_odm.beanie.sweep.leases import CollectionLeases
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sweeper import Hooks, Pace, Server
from ttl_odm.sweeper.hooks import sweep_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from ttl_odm.beanie.drivers import Collection, Database
    from ttl_odm.beanie.policy.bindings import Binding
    from ttl_odm.beanie.policy.rules import Rule
    from ttl_odm.beanie.purge.removal import Mode
    from ttl_odm.beanie.sweep.due import Layout
    from ttl_odm.core.policy import Policy
    from ttl_odm.sweeper import BatchRequest, BatchResult, Counted, Due, Fact

_PACE: Final = Pace(start=1_000, lowest=50, highest=5_000, target=0.1)


def open_store(database: Any, targets: object) -> MongoStore:
    """Return the store of a database, of either driver; an entry point of ``ttl_odm.stores``."""
    is_motor = any(base.__name__ == "AsyncIOMotorDatabase" for base in type(database).__mro__)
    if isinstance(database, AsyncDatabase) or is_motor:
        return MongoStore(database, targets)
    raise TTLConfigurationError(
        f"A sweeper needs an AsyncDatabase of PyMongo, or an AsyncIOMotorDatabase of Motor, not "
        f"{type(database).__name__}."
    )


@dataclass(frozen=True, slots=True)
class _Target:
    """A collection to sweep, and its policy."""

    collection: Collection
    binding: Binding

    async def policy(self) -> Policy:
        """Return the policy, with a default that was read just now."""
        await self.binding.source.see(self.collection, anew=True)
        return self.binding.policy

    @property
    def mode(self) -> Mode:
        """The archive and the hooks that the class declares."""
        return mode_of(self.binding, self.collection.name)

    def place(self, timeout: float | None = None) -> RawCollection:
        """Return the collection for commands, each of which may take so many seconds."""
        has_ranges = self.binding.has_ranges
        return RawCollection(self.collection, timeout=timeout, has_ranges=has_ranges)

    async def layout(self) -> Layout:
        """Read the layout of the collection; without its indexes if it will be walked."""
        is_walked = sweep_of(self.binding.model) == "scan" or not self.binding.has_ranges
        return await layout_of(self.collection, self.binding, is_walked=is_walked)


class MongoStore:
    """A `ttl_odm.sweeper.AsyncStore` with all optional methods."""

    def __init__(self, database: Database, models: object) -> None:
        """Check the targets; see `open_store`."""
        self._database = database
        self._models = models
        self._targets: dict[str, _Target] = {}
        self._layouts: dict[str, Layout] = {}
        self.targets()
        for target in self._targets.values():  # report mistakes now, not at 3 a.m.
            _ = target.mode, sweep_of(target.binding.model)

    @property
    def database(self) -> Database:
        """The database that it was created with."""
        return self._database

    @property
    def pace(self) -> Pace:
        """The batch sizes that suit MongoDB."""
        return _PACE

    @property
    def backend(self) -> str:
        """The name of the database system."""
        return "mongodb"

    @property
    def leases(self) -> CollectionLeases:
        """The leases in a collection of the same database."""
        return CollectionLeases(self._database)

    @property
    def hooks(self) -> Hooks:
        """The hooks that the classes declare as ``__ttl_on_purged__``."""
        return sum((target.mode.hooks for target in self._targets.values()), Hooks())

    def targets(self) -> Sequence[str]:
        """Return the names of the collections, each time anew, since the list may have grown."""
        targets: dict[str, _Target] = {}
        rules = []
        for model in _classes(self._models):
            rule = _rule_of(model)
            if rule is not None:
                rules.append(rule)
                continue
            target = _target_of(model)
            name = target.collection.database.name
            if name != self._database.name:
                raise TTLConfigurationError(
                    f"{model.__name__} is in the database {name!r}, but this sweeper works in "
                    f"{self._database.name!r}: create a sweeper for each database."
                )
            targets[target.collection.name] = target
        for rule in rules:
            if all(target.binding is not rule.root for target in targets.values()):
                raise rule.rejected("sweep", rule.model.__name__)
        self._targets = targets
        return list(targets)

    async def due(self, target: str) -> Due | None:
        """Find the expired documents of a collection; None if its TTL is off.

        Also None for a time series, from which MongoDB deletes whole buckets.
        """
        swept = self._targets[target]
        with store_errors():
            layout = self._layouts[target] = await swept.layout()
            policy = await swept.policy()
            due = await find_due(swept.place(), policy, layout)
            due = due and await with_dependents(swept.place(), policy, due)
        mode = swept.mode
        loads_rows = mode.archive is not None or mode.sink is not None
        return due and replace(due, loads_rows=loads_rows)

    async def purge(self, request: BatchRequest) -> BatchResult:
        """Delete a batch of expired documents, and commit."""
        target = self._targets[request.target]
        place = target.place(request.timeout)
        with store_errors():
            layout = self._layouts.get(request.target) or await target.layout()
            self._layouts[request.target] = layout
            return await purge(place, target.binding, target.mode, layout, request)

    async def count(self, target: str) -> Counted:
        """Count the expired documents of a collection, and all its documents."""
        swept = self._targets[target]
        with store_errors():
            layout = await swept.layout()
            policy = await swept.policy()
            return await count(swept.place(), policy, layout, swept.binding.source)

    async def count_facts(self, target: str) -> dict[str, Fact]:
        """Count the dependents of the expired documents of a collection."""
        swept = self._targets[target]
        with store_errors():
            place, policy, layout = swept.place(), await swept.policy(), await swept.layout()
            return await count_facts(place, policy, layout)

    async def now(self) -> datetime:
        """Return the server's present instant."""
        with store_errors():
            return await now(self._database)

    async def server(self) -> Server:
        """Return the server that the database's reads go to."""
        with store_errors():
            reply = await command_in(self._database, {"hello": 1})
        return Server(reply.get("me"), bool(reply.get("isWritablePrimary")))


def _classes(models: object) -> Iterator[type]:
    if isinstance(models, type):
        yield models
    elif isinstance(models, Iterable) and not isinstance(models, (str, bytes)):
        for model in models:
            yield from _classes(model)
    else:
        raise TTLConfigurationError(
            f"{models!r} can't be swept: pass a document class, or a list of them."
        )


def _rule_of(model: type) -> Rule | None:
    """Return the rule of a class whose documents are deleted with their parents."""
    if not issubclass(model, beanie.Document):
        raise TTLConfigurationError(f"{model.__name__} is not a Beanie document class.")
    check_enforced(model)
    rule = rule_of(model)
    if rule is not None:
        rule.check()  # reports a mistake in the declaration before the first batch
    return rule


def _target_of(model: type) -> _Target:
    """Return the target that a class declares."""
    binding = binding_of(model)
    if binding is None:
        raise TTLConfigurationError(
            f"{model.__name__} has no TTL, so there is nothing to sweep: make it a TTLMixin and "
            "declare __ttl__, enable() it, or leave it out."
        )
    if binding.is_left_to_service:
        raise TTLConfigurationError(
            f"{model.__name__} is on Azure Cosmos DB, which deletes expired documents itself: "
            "don't sweep it."
        )
    collection = collection_of(model)
    api = collection.database.client.options.pool_options.server_api
    if api is not None and api.strict:
        raise TTLConfigurationError(
            f"{model.__name__} is on a client with a strict server API. A sweeper finds expired "
            "documents by index ranges (min and max), which that API doesn't include: use a "
            "client without strict in the sweeping process."
        )
    return _Target(collection, binding)

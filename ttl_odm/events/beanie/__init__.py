"""Events of Beanie document classes; imported when the first one has events.

- `collections`: the collections that keep events and deliveries.
- `recorder`: the event of a document, and a hook that records it in the deleting transaction.
- `warnings`: documents that are about to expire.
- `outbox`: the outbox in these collections, for workers and readers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.bindings import binding_of, collection_of
from ttl_odm.beanie.sweep.store import open_store
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.beanie.outbox import CollectionOutbox
from ttl_odm.events.beanie.recorder import record, recorder_among, recorders
from ttl_odm.events.beanie.warnings import CollectionWarnings, Warned, all_warned, warn
from ttl_odm.events.expiry import EXPIRING
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beanie import Document

    from ttl_odm.beanie.drivers import Database
    from ttl_odm.events.beanie.recorder import DocumentEvents

__all__ = ["EventSource", "read_from", "record", "recorded_in", "source_of", "warn"]


class EventSource:
    """The events of a worker, or of a reader.

    Attributes:
        engine: The database.
        targets: The classes that a worker sweeps: those whose events, or warnings, are recorded.
            MongoDB itself deletes what the outbox no longer needs.
        tables: The names of their collections.
        is_async: True, for both drivers.
    """

    is_async = True

    def __init__(self, database: Database, known: Sequence[DocumentEvents]) -> None:
        self._warned = [events for events in known if isinstance(events, Warned)]
        self.engine = database
        models = {events.table: events.model for events in known}
        self.targets: list[type[Document]] = [*models.values()]
        self.tables = [*models]

    def outbox(self) -> CollectionOutbox:
        """Open the outbox."""
        return CollectionOutbox(self.engine)

    def warnings(self) -> CollectionWarnings | None:
        """Open the warnings; None if no collection has any."""
        return CollectionWarnings(self.engine, self._warned) if self._warned else None

    def leave_thread(self) -> None:
        """Do nothing: an asynchronous worker sweeps in the thread that delivers."""


def source_of(database: Database, targets: object) -> EventSource:
    """Return the source of a worker's events; see `ttl_odm.events.AsyncEventWorker`.

    Raises:
        TTLConfigurationError: None of the targets has events.
    """
    known = _known(database, targets)
    if not known:
        raise TTLConfigurationError(
            "No document class here has events: register a handler with on_expired(Model), or call "
            "record_expired(Model), and await init_beanie(), before the worker is created."
        )
    return EventSource(database, known)


def read_from(database: Database, targets: object) -> EventSource:
    """Return the source of a reader's events; see `ttl_odm.events.events`.

    Raises:
        TTLConfigurationError: There are targets, and none of them has events.
    """
    if targets is not None:
        return source_of(database, targets)
    return EventSource(database, _known(database, None))


def recorded_in(database: Database) -> list[Subscription]:
    """Return which events of which collections of a database are recorded."""
    recorded: list[Subscription] = []
    for events in _known(database, None):
        if isinstance(events, Warned):
            befores = events.befores
            recorded += [Subscription(events.table, EXPIRING, before) for before in befores]
        else:
            recorded.append(Subscription(events.table))
    return recorded


def _known(database: Database, targets: object) -> list[DocumentEvents]:
    """The events and warnings of targets, or of all classes in a database, by collection."""
    names = open_store(database, [] if targets is None else targets).targets()
    known = [
        events
        for events in (*recorders, *all_warned)
        if _is_in(events, database) and (targets is None or events.table in names)
    ]
    return sorted(known, key=lambda events: events.table)


def _is_in(events: DocumentEvents, database: Database) -> bool:
    """Whether a collection is in a database, and belongs to its class there."""
    try:
        place = collection_of(events.model).database
    except (CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen it yet
        return False
    binding = binding_of(events.model) if place.name == database.name else None
    if binding is None:
        return False
    if isinstance(events, Warned):
        return issubclass(binding.model, events.model)
    hooks = Hooks.of(getattr(binding.model, "__ttl_on_purged__", None))
    return recorder_among(hooks) is events

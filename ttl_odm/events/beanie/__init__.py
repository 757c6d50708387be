"""Events of Beanie document classes; imported when the first one has events.

- `collections`: the collections that keep events and deliveries.
- `recording`: a hook that records events in the deleting transaction.
- `outbox`: what workers and readers ask of these collections.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie.exceptions import CollectionWasNotInitialized

from ttl_odm.beanie.policy.binding import binding_of, collection_of
from ttl_odm.beanie.sweep.store import open_store
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.beanie.outbox import CollectionOutbox
from ttl_odm.events.beanie.recording import Recorder, record, recorder_among, recorders
from ttl_odm.sweeper import Hooks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from beanie import Document

__all__ = ["EventSource", "read_from", "record", "source_of"]


class EventSource:
    """Where events come from.

    Attributes:
        engine: The database.
        targets: What a worker sweeps: the classes whose events are recorded. MongoDB itself deletes
            what the outbox no longer needs.
        tables: The names of their collections.
        is_async: True, of both drivers.
    """

    is_async = True

    def __init__(self, database: Any, recorded: Sequence[Recorder]) -> None:
        self.engine = database
        self.targets: list[type[Document]] = [recorder.model for recorder in recorded]
        self.tables = [recorder.table for recorder in recorded]

    def outbox(self) -> CollectionOutbox:
        """Open the outbox."""
        return CollectionOutbox(self.engine)

    def warnings(self) -> None:
        """None: no collection has warnings."""


def source_of(database: Any, targets: Any) -> EventSource:
    """Return where a worker's events come from; see `ttl_odm.events.AsyncEventWorker`.

    Raises:
        TTLConfigurationError: None of the targets has events.
    """
    recorded = _recorded(database, targets)
    if not recorded:
        raise TTLConfigurationError(
            "No document class here has events: register a handler with on_expired(Model), or call "
            "record_expired(Model), and await init_beanie(), before the worker is created."
        )
    return EventSource(database, recorded)


def read_from(database: Any, targets: Any) -> EventSource:
    """Return where a reader's events come from; see `ttl_odm.events.events`.

    Raises:
        TTLConfigurationError: As for `source_of`; only where there are targets.
    """
    if targets is not None:
        return source_of(database, targets)
    return EventSource(database, _recorded(database, None))


def _recorded(database: Any, targets: Any) -> list[Recorder]:
    """Return the recorders of the targets, or of all classes in a database, by collection."""
    names = open_store(database, [] if targets is None else targets).targets()
    recorded = [
        recorder
        for recorder in recorders
        if _is_in(recorder, database) and (targets is None or recorder.table in names)
    ]
    return sorted(recorded, key=lambda recorder: recorder.table)


def _is_in(recorder: Recorder, database: Any) -> bool:
    """Whether a recorder's collection is in a database, and its hook is called there."""
    try:
        place = collection_of(recorder.model).database
    except (CollectionWasNotInitialized, AttributeError):  # Beanie hasn't seen it yet
        return False
    if place.name != database.name:
        return False
    binding = binding_of(recorder.model)
    hooks = None if binding is None else getattr(binding.model, "__ttl_on_purged__", None)
    return recorder_among(Hooks.of(hooks)) is recorder

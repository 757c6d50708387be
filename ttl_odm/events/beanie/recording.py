"""Recording events: a hook of the document classes, in the transaction that deletes documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from ttl_odm.beanie.policy.bindings import collection_of, purge_of
from ttl_odm.beanie.policy.predicate import end_of
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.events.beanie.collections import (
    collections_of,
    document_of,
    insert_events,
    prepare,
)
from ttl_odm.events.beanie.documents import DocumentEvents, model_of, readable, root_of
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import Hook, Hooks, Purged

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from beanie import Document

    from ttl_odm.beanie.drivers import Filter
    from ttl_odm.beanie.policy.bindings import Binding

recorders: WeakSet[Recorder] = WeakSet()
"""Those of all classes that have events."""


class Recorder(DocumentEvents):
    """Records the events of one collection; a hook that runs in the deleting transaction."""

    def __init__(self, model: type[Document]) -> None:
        super().__init__(model)
        recorders.add(self)

    async def __call__(self, purged: Purged) -> None:
        """Record the events of a batch.

        A document that was put back as it was, and has expired again, has no second one.
        """
        if purged.table != self.table:
            return  # that of a class which inherits the hooks, but has a collection of its own
        assert purged.rows is not None  # noqa: S101 (the hook asks for them)
        collections = collections_of(collection_of(self.model).database)
        binding, now = self.binding, purged.as_of
        rows = [readable(row) for row in purged.rows]
        events = [self.event(row, _ended(binding, row, now)) for row in rows]
        documents = [document_of(event, now) for event in events]
        await insert_events(collections, documents, Subscription(self.table), purged.transaction)

    async def prepare(self, purged: Purged) -> None:
        """Create the indexes after the first batch, if no worker has.

        Not before it: a transaction can create a collection, but not read what was created after it
        began.
        """
        if purged.table == self.table:
            await prepare(collections_of(collection_of(self.model).database))


def _ended(binding: Binding, document: Filter, now: datetime) -> datetime:
    """When a document has expired: not after it was deleted, whatever is known of its default."""
    try:
        end = end_of(document, binding.policy)
    except TTLError:  # a default that the database stores, and nobody has read yet
        return now
    return now if end is None else min(end, now)


def record(target: Any, include: Sequence[str]) -> str:
    """Put a recorder among a class's hooks, unless it has one; see `record_expired`."""
    model = model_of(target)
    if purge_of(model) == "native":
        raise TTLConfigurationError(
            f"{model.__name__} can't have events: MongoDB itself deletes its documents, and "
            "calls no hook. Declare __ttl_purge__ = 'sweeper' on the class."
        )
    owner = root_of(model)
    hooks = Hooks.of(getattr(owner, "__ttl_on_purged__", None))
    recorder = recorder_among(hooks)
    if recorder is None or recorder.model is not owner:
        recorder = Recorder(owner)
    recorder.include(model, include)
    if recorder_among(hooks) is not recorder:
        known = [hook for _, hook in hooks.entries]
        declared: Any = owner
        ours = [Hook(recorder, rows=True), Hook(recorder.prepare, when="commit")]
        declared.__ttl_on_purged__ = [*known, *ours]
    return recorder.table


def recorder_among(hooks: Hooks) -> Recorder | None:
    """The recorder that a class has, if it has one; the last, since others are inherited."""
    found = [hook.call for _, hook in hooks.entries if isinstance(hook.call, Recorder)]
    return found[-1] if found else None

"""`EventSource`: the events of a worker, or of a reader, in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections

from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.django import LABEL
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.django.recorder import recorder_of
from ttl_odm.events.django.warnings import TableWarnings, warned_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.django.policy.bindings import Model


class EventSource:
    """The events of a worker, or of a reader.

    Attributes:
        engine: The connection of the calling thread; other threads have their own.
        targets: The models that a worker sweeps: those whose events are recorded, and the outbox.
        tables: The names of the tables whose events, or warnings, are recorded.
        is_async: False: Django's connections are synchronous.
    """

    is_async = False

    def __init__(self, using: str, with_events: Sequence[Model]) -> None:
        recorded = [model for model in with_events if recorder_of(model)]
        self._warned = [warned for warned in map(warned_of, with_events) if warned is not None]
        self._using = using
        outbox = [apps.get_model(LABEL, name) for name in ("Delivery", "Event")]
        self.engine = connections[using]
        self.targets: list[Model] = [*recorded, *outbox]
        self.tables = [model._meta.db_table for model in with_events]

    def outbox(self) -> TableOutbox:
        """Open the outbox."""
        return TableOutbox(self._using)

    def warnings(self) -> TableWarnings | None:
        """Open the warnings; None if no table has warnings."""
        return TableWarnings(self._using, self._warned) if self._warned else None

    def leave_thread(self) -> None:
        """Close the calling thread's connection."""
        connections[self._using].close()


def source_of(using: str, targets: Any) -> EventSource:
    """Return the source of a worker's events.

    Raises:
        TTLConfigurationError: None of the targets has events.
    """
    models = _with_events(using, targets)
    if not models:
        raise TTLConfigurationError(
            f"No model in the database {using!r} has events: register a handler with "
            "on_expired(Model), or call record_expired(Model), in AppConfig.ready() or in a module "
            "that it imports."
        )
    return EventSource(using, models)


def read_from(using: str, targets: Any) -> EventSource:
    """Return the source of a reader's events; raises as `source_of` does if there are targets."""
    if targets is not None:
        return source_of(using, targets)
    return EventSource(using, _with_events(using, None))


def _with_events(using: str, targets: Any) -> list[Model]:
    """The targets, or all models, with events or warnings."""
    models = DjangoStore(using, targets).models()
    return [model for model in models if recorder_of(model) or warned_of(model)]

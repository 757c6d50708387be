"""Where the events of a worker, or of a reader, come from: `EventSource` of a database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.db import connections

from ttl_odm.django.sweep.store import DjangoStore
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events.django import LABEL
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.django.recording import recorder_of
from ttl_odm.events.django.warnings import TableWarnings, warned_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.django.policy.bindings import Model


class EventSource:
    """Where events come from.

    Attributes:
        engine: A connection of the calling thread; others have their own.
        targets: What a worker sweeps: the models whose events are recorded, and the outbox.
        tables: The names of the former's tables, and of those whose rows are warned of.
        is_async: False: Django's connections aren't.
    """

    is_async = False

    def __init__(self, using: str, with_events: Sequence[Model]) -> None:
        recorded = [model for model in with_events if recorder_of(model)]
        self._warned = [one for one in map(warned_of, with_events) if one is not None]
        self._using = using
        outbox = [apps.get_model(LABEL, name) for name in ("Delivery", "Event")]
        self.engine: Any = connections[using]
        self.targets: list[Model] = [*recorded, *outbox]
        self.tables = [model._meta.db_table for model in with_events]

    def outbox(self) -> TableOutbox:
        """Open the outbox."""
        return TableOutbox(self._using)

    def warnings(self) -> TableWarnings | None:
        """Open the warnings; None if no table has any."""
        return TableWarnings(self._using, self._warned) if self._warned else None

    def leave_thread(self) -> None:
        """Close the connection of a thread that ends."""
        connections[self._using].close()


def source_of(using: str, targets: Any) -> EventSource:
    """Return where a worker's events come from."""
    models = _with_events(using, targets)
    if not models:
        raise TTLConfigurationError(
            f"No model in the database {using!r} has events: register a handler with "
            "on_expired(Model), or call record_expired(Model), in AppConfig.ready() or in a module "
            "that it imports."
        )
    return EventSource(using, models)


def read_from(using: str, targets: Any) -> EventSource:
    """Return where a reader's events come from."""
    return (
        EventSource(using, _with_events(using, None))
        if targets is None
        else source_of(using, targets)
    )


def _with_events(using: str, targets: Any) -> list[Model]:
    """The models with events or warnings, of those that are given."""
    models = DjangoStore(using, targets).models()
    return [model for model in models if recorder_of(model) or warned_of(model)]

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

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ttl_odm.django.policy.binding import Model


class EventSource:
    """Where events come from.

    Attributes:
        engine: A connection of the calling thread; others have their own.
        targets: What a worker sweeps: the models whose events are recorded, and the outbox.
        tables: The names of the former's tables.
        is_async: False: Django's connections aren't.
    """

    is_async = False

    def __init__(self, using: str, recorded: Sequence[Model]) -> None:
        self._using = using
        outbox = [apps.get_model(LABEL, name) for name in ("Delivery", "Event")]
        self.engine: Any = connections[using]
        self.targets: list[Model] = [*recorded, *outbox]
        self.tables = [model._meta.db_table for model in recorded]

    def outbox(self) -> TableOutbox:
        """Open the outbox."""
        return TableOutbox(self._using)

    def warnings(self) -> None:
        """None: no table has warnings."""

    def leave_thread(self) -> None:
        """Close the connection of a thread that ends."""
        connections[self._using].close()


def source_of(using: str, targets: Any) -> EventSource:
    """Return where a worker's events come from."""
    recorded = _recorded(using, targets)
    if not recorded:
        raise TTLConfigurationError(
            f"No model in the database {using!r} has events: register a handler with "
            "on_expired(Model), or call record_expired(Model), in AppConfig.ready() or in a module "
            "that it imports."
        )
    return EventSource(using, recorded)


def read_from(using: str, targets: Any) -> EventSource:
    """Return where a reader's events come from."""
    return (
        EventSource(using, _recorded(using, None)) if targets is None else source_of(using, targets)
    )


def _recorded(using: str, targets: Any) -> list[Model]:
    """The models with events, of those that are given."""
    return [model for model in DjangoStore(using, targets).models() if recorder_of(model)]

"""What the tests of events share: handlers, and what the outbox has."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.core.management import call_command
from django.db import connections

from tests.django_app.shop.models import Seat
from ttl_odm.django.policy.bindings import bindings
from ttl_odm.events import EventWorker, events, on_expired
from ttl_odm.events.django.models import Delivery, Event
from ttl_odm.events.handlers import handlers

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from ttl_odm.events import Expiry
    from ttl_odm.testing import TTLClock

HOUR = 3600


@contextmanager
def no_handlers() -> Iterator[None]:
    """Have none at first, and none at the end: they and hooks are there for the whole process."""
    before = [*handlers]
    handlers.clear()
    try:
        yield
    finally:
        handlers[:] = before
        for model in [binding.model for binding in bindings()]:
            for name in ("__ttl_on_purged__", "__ttl_odm_warned__"):
                if name in vars(model):
                    delattr(model, name)


def handled(model: Any = Seat, name: str = "release", **options: Any) -> list[Expiry]:
    """Register a handler, and return the list of what it gets."""
    got: list[Expiry] = []
    on_expired(model, name=name, **options)(got.append)
    return got


def worker(*models: Any, **options: Any) -> EventWorker:
    """Make a worker for models, or for all with events."""
    return EventWorker(connections["default"], models or None, **options)


def all_of(model: Any = None) -> list[Expiry]:
    """Every event that the outbox has, for a consumer that is new."""
    return list(events(connections["default"], model, consumer="test"))


def recorded() -> int:
    """How many events the outbox has."""
    return Event.objects.count()


def waiting() -> int:
    """How many deliveries no consumer has dealt with; others may be kept for one that is new."""
    return Delivery.objects.exclude(next_at=None, error=None).count()


def seats(*numbers: int) -> None:
    """Write rows."""
    Seat.objects.bulk_create([Seat(pk=n, row="a", number=n, label=f"seat {n}") for n in numbers])


def expire(ttl_clock: TTLClock, *numbers: int) -> None:
    """Write seats, and let their time pass; the clock stops, or a rest could end too early."""
    ttl_clock.freeze()
    seats(*numbers)
    ttl_clock.advance(HOUR)


def told(*words: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What `manage.py ttl_events` prints."""
    capsys.readouterr()
    call_command("ttl_events", *words)
    return capsys.readouterr().out

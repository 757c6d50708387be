"""What the tests of events on MongoDB share: a class with events, and those that were handled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from beanie import Document

from ttl_odm.beanie import TTLMixin
from ttl_odm.events import Expiry, on_expired

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.mongo.sweeping import Swept

HOUR = 3600


def seat_hold(ttl: Any = HOUR, **settings: Any) -> Any:
    """Declare a document class on the collection ``documents``."""

    class SeatHold(TTLMixin, Document):
        __ttl__: ClassVar[Any] = ttl
        __ttl_purge__ = "sweeper"
        id: object  # type: ignore[assignment]
        person: str = "ann"
        ticket: Any = None

        Settings: ClassVar[Any] = type("Settings", (), {"name": "documents", **settings})

    return SeatHold


def handled(model: Any, name: str = "release", **options: Any) -> list[Expiry]:
    """Register a handler, and return the list of what it gets."""
    got: list[Expiry] = []
    on_expired(model, name=name, **options)(got.append)
    return got


async def expire(place: Swept, clock: Any, *seats: Any, **fields: Any) -> None:
    """Write documents, and let their time pass; the clock stops, or a rest could end too early."""
    clock.freeze()
    await place.model.insert_many([place.model(id=seat, **fields) for seat in seats])
    clock.advance(HOUR)


def outbox(place: Swept, what: str = "events") -> list[Any]:
    """Return the documents of a collection of the outbox."""
    return list(place.raw.database[f"ttl_odm_{what}"].find())


def waiting(place: Swept) -> list[Any]:
    """Return the deliveries that nobody has dealt with; others may be kept for a new consumer."""
    is_done = {"next_at": None, "error": None}
    return list(place.raw.database["ttl_odm_deliveries"].find({"$nor": [is_done]}))


def keys(events: Iterable[Expiry]) -> list[Any]:
    """Return the keys of some events, sorted."""
    return sorted(key for event in events for key in event.key)

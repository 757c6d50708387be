"""What the tests of tools share: outboxes with events that a handler has failed on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import Session

from tests.events.holds import HOUR, seat_hold
from ttl_odm.events import EventWorker, Expiry, on_expired

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from ttl_odm.testing import TTLClock


class Refuses:
    """A handler that raises on some seats."""

    def __init__(self, *seats: str) -> None:
        self.seats = seats
        self.got: list[Expiry] = []

    def __call__(self, event: Expiry) -> None:
        self.got.append(event)
        if event.key[0] in self.seats:
            raise RuntimeError(f"not {event.key[0]}")


def expire(engine: Engine, ttl_clock: TTLClock, model: Any, *seats: str) -> None:
    """Write rows, and let their time pass."""
    model.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        session.add_all(model(seat=seat, person="ann") for seat in seats)
    ttl_clock.advance(HOUR)


def died(engine: Engine, ttl_clock: TTLClock, *seats: str) -> tuple[EventWorker, Refuses]:
    """A worker whose handler has failed for good on some seats of A1, A2 and A3."""
    model, handler = seat_hold(), Refuses(*seats)
    on_expired(model, name="release", attempts=1)(handler)
    expire(engine, ttl_clock, model, "A1", "A2", "A3")
    worker = EventWorker(engine, model)
    worker.run_once()
    return worker, handler

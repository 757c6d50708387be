"""Each package of `ttl_odm.events` for a library is an `EventAdapter`, to type checkers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ttl_odm.events import beanie, django, sqlalchemy

if TYPE_CHECKING:
    from ttl_odm.events.outbox import EventAdapter

ADAPTERS: list[EventAdapter] = [beanie, django, sqlalchemy]

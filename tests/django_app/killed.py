"""Processes that tests kill: with Django they hold seats, and handle the events of their ends.

The models are the shop's: a seat's label is its life, a tag says that it was written, and a user's
name is the id of an event that was handled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.django_app import project

project.set_up()

from django.db import DatabaseError, connections, transaction  # noqa: E402 (Django is set up now)

from tests.django_app.shop.models import Seat, Tag, User  # noqa: E402
from tests.events.kills import LIFETIME, hold_seats, work  # noqa: E402
from ttl_odm.events import Expiry, on_expired  # noqa: E402

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

ID: int = User._meta.get_field("name").max_length
"""So many characters of an event's id are noted, which are enough to tell events apart."""


def run(settings: dict[str, Any], what: str, ready: Connection) -> None:
    """Write or work, for ever."""
    project.point_at("default", settings)

    @on_expired(Seat, include=["label"], name="release")
    def release(event: Expiry) -> None:
        User.objects.create(name=event.id[:ID])

    def hold(seat: int, life: str) -> None:
        with transaction.atomic():
            Seat.objects.create(pk=seat + 1, row="a", number=seat, label=life, ttl=LIFETIME)
            Tag.objects.create(name=life)

    if what == "work":
        work(connections["default"], Seat, ready)
    hold_seats(hold, (DatabaseError,), ready)

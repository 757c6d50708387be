"""Every case of events on Django's models."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from threading import Thread
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from django.db import connections, transaction

from tests.django_app.shop.models import Seat
from tests.django_app.with_events import no_handlers
from tests.events.cases import CASES
from tests.events.subject import BEFORE, EventSubject, RolledBackError
from ttl_odm.django.time.clock import database_now
from ttl_odm.django.time.fields import InstantField
from ttl_odm.events import EventWorker, Expiry, events, on_expired, on_expiring
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.outbox import Subscription
from ttl_odm.sweeper import Hook, Purged, Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from datetime import datetime

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock


@pytest.fixture(autouse=True)
def handlers_of_other_tests_are_gone() -> Iterator[None]:
    with no_handlers():
        yield


class OnDjango(EventSubject):
    """Over the connection ``default``."""

    named: ClassVar[str] = "label"

    def __init__(self, clock: TTLClock) -> None:
        self.got = []
        self.has_one_writer = connections["default"].vendor == "sqlite"
        self._meanwhile: str | None = None
        self._clock = clock
        self._connection = connections["default"]
        on_expired(Seat, include=["label"], name="expired")(self.handle)
        on_expiring(Seat, before=BEFORE, include=["label"], name="expiring")(self.handle)
        declared: Any = Seat
        declared.__ttl_on_purged__ = [*declared.__ttl_on_purged__, Hook(self._comes)]
        self._worker = EventWorker(self._connection, [Seat])

    def put(
        self, key: int, age: float = 0, *, person: str = "ann", ttl: int | None = None
    ) -> datetime:
        instant = database_now(self._connection) - timedelta(seconds=age)
        row = {"id": key, "row": "a", "number": key, "label": person, "ttl": ttl}
        row["_ts"] = InstantField().get_db_prep_value(instant, self._connection)
        names = ", ".join(map(self._connection.ops.quote_name, row))
        marks = ", ".join(["%s"] * len(row))
        with self._connection.cursor() as cursor:
            cursor.execute(f"INSERT INTO shop_seat ({names}) VALUES ({marks})", [*row.values()])  # noqa: S608
        stored: datetime = Seat.all_objects.get(pk=key).last_modified
        return stored

    def renew(self, key: int) -> None:
        Seat.objects.get(pk=key).touch()

    def set_ttl(self, key: int, ttl: int) -> None:
        with self._connection.cursor() as cursor:
            cursor.execute("UPDATE shop_seat SET ttl = %s WHERE id = %s", [ttl, key])

    def delete(self, key: int) -> None:
        Seat.objects.filter(pk=key).delete()

    def insert(self, key: int, person: str, *, fails: bool = False) -> None:
        with suppress(RolledBackError), transaction.atomic():
            Seat(pk=key, row="a", number=key, label=person).save(force_insert=True)
            if fails:
                raise RolledBackError

    def keys(self) -> set[int]:
        with self._connection.cursor() as cursor:
            cursor.execute("SELECT id FROM shop_seat")
            return {row[0] for row in cursor.fetchall()}

    def sweep(self) -> int:
        return Sweeper(self._connection, [Seat]).run_once().deleted

    def sweep_while_comes(self, consumer: str) -> bool:
        self._meanwhile = consumer
        self.sweep()
        return self._meanwhile is None

    def _comes(self, _: Purged) -> None:
        """Subscribe in a thread, since that has a connection of its own."""
        if self._meanwhile is not None:
            thread = Thread(target=self._subscribe, args=(self._meanwhile,))
            thread.start()
            thread.join()

    def _subscribe(self, consumer: str) -> None:
        theirs = connections["default"]
        if self.has_one_writer:
            theirs.settings_dict = {**theirs.settings_dict, "OPTIONS": {"timeout": 0}}
        try:
            with suppress(TransientStoreError):
                TableOutbox("default").subscribe(consumer, [Subscription("shop_seat")])
                self._meanwhile = None
        finally:
            theirs.close()

    def work(self) -> None:
        self._worker.run_once()

    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    def read(self, consumer: str) -> Sequence[Expiry]:
        kinds = ("expired", "expiring")
        return list(events(self._connection, [Seat], consumer=consumer, kinds=kinds))

    def close(self) -> None:
        """The fixture of the database does."""


@pytest.mark.parametrize("case", CASES)
def test_django(backend: Backend, ttl_clock: TTLClock, case: str) -> None:
    CASES[case](OnDjango(ttl_clock))

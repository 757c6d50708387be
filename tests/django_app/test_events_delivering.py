"""Events of Django models are delivered to each consumer at least once."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from django.db import connection, connections
from django.dispatch import receiver

from tests.django_app.shop.models import Concert, Seat, Session, User
from tests.django_app.with_events import (
    HOUR,
    expire,
    handled,
    no_handlers,
    seats,
    waiting,
    worker,
)
from tests.events.stubborn import Stubborn
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.events import Delivered, Expiry, events, on_expired, record_expired
from ttl_odm.events.django.models import Consumer, Delivery
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.django.signals import expired
from ttl_odm.events.outbox import EVERY_TABLE, Subscription
from ttl_odm.sweeper import Sweeper, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.backends import Backend
    from ttl_odm.testing import ExpiredEvents, TTLClock


@pytest.fixture(autouse=True)
def _no_handlers() -> Iterator[None]:
    with no_handlers():
        yield


def sweep() -> None:
    Sweeper(connections["default"], Seat).run_once().raise_for_failures()


def test_an_event_on_which_a_handler_raises_comes_again(
    backend: Backend, ttl_clock: TTLClock, caplog: pytest.LogCaptureFixture
) -> None:
    handler = Stubborn(1)
    on_expired(Seat, name="release")(handler)
    others = handled(name="tell")
    expire(ttl_clock, 1)
    with caplog.at_level(logging.WARNING, "ttl_odm.events"):
        assert worker(Seat).run_once() == Delivered(done=1, failed=1)
    assert "RuntimeError: no 1; it will be delivered again" in caplog.text
    assert worker().run_once() == Delivered()
    ttl_clock.advance(1)
    assert worker().run_once() == Delivered(done=1)
    assert [event.delivery for event in handler.got] == [1, 2]
    assert len({event.id for event in handler.got}) == len(others) == 1
    assert waiting() == 0


def test_an_event_that_failed_too_often_is_dead(backend: Backend, ttl_clock: TTLClock) -> None:
    on_expired(Seat, name="release", attempts=2)(Stubborn(9))
    expire(ttl_clock, 1)
    assert worker().run_once() == Delivered(failed=1)
    ttl_clock.advance(1)
    assert worker().run_once() == Delivered(dead=1)
    ttl_clock.advance(HOUR)
    assert worker().run_once() == Delivered()
    row = Delivery.objects.get()
    assert (row.deliveries, row.next_at, row.error) == (2, None, "RuntimeError: no 2")


def test_an_event_whose_worker_died_comes_again(backend: Backend, ttl_clock: TTLClock) -> None:
    class PowerCutError(BaseException):
        pass

    got: list[Expiry] = []

    def release(event: Expiry) -> None:
        got.append(event)
        if len(got) == 1:
            raise PowerCutError

    on_expired(Seat, name="release")(release)
    expire(ttl_clock, 1)
    with pytest.raises(PowerCutError):
        worker().run_once()
    ttl_clock.advance(30)
    assert worker().run_once() == Delivered()
    ttl_clock.advance(30)
    assert worker().run_once() == Delivered(done=1)
    assert [event.delivery for event in got] == [1, 2]


def test_of_two_that_want_an_event_one_takes_it(backend: Backend, ttl_clock: TTLClock) -> None:
    record_expired(Seat)
    outbox, other = TableOutbox("default"), TableOutbox("default")
    outbox.subscribe("release", [Subscription("shop_seat")])
    expire(ttl_clock, 1)
    sweep()
    hidden = timedelta(seconds=60)
    (mine,) = outbox.take("release", 10, hidden)
    assert other.take("release", 10, hidden) == []
    ttl_clock.advance(60)
    (again,) = other.take("release", 10, hidden)
    outbox.done([mine])  # too late
    outbox.failed(mine, "too late", None)
    assert Delivery.objects.get().error is None
    other.done([again])
    assert waiting() == 0


@pytest.mark.slow
def test_of_two_workers_at_once_one_gets_an_event(backend: Backend, ttl_clock: TTLClock) -> None:
    got = handled()
    worker().run_once()
    numbers = range(1, 21)
    expire(ttl_clock, *numbers)
    sweep()  # so that both have something to do at once

    def work() -> None:
        try:
            with suppress(TransientStoreError):  # SQLite has one writer at a time
                worker().run_once()
        finally:
            connections["default"].close()

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    worker().run_once()
    assert sorted(event.key for event in got) == [(number,) for number in numbers]
    assert {event.delivery for event in got} == {1}


def test_a_worker_runs_until_it_is_stopped(backend: Backend, ttl_clock: TTLClock) -> None:
    one = None

    def release(_: Expiry) -> None:
        assert one is not None
        one.stop()

    on_expired(Seat, name="release")(release)
    expire(ttl_clock, 1)
    one = worker(poll=0.01)
    one.run_forever()
    assert not Seat.all_objects.exists()
    assert waiting() == 0


def test_a_reader_deals_with_an_event_when_it_asks_for_the_next(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    record_expired(Seat)
    expire(ttl_clock, 1, 2, 3)
    sweep()
    read = []
    for event in events(connection, Seat, consumer="mailer"):
        read.append(event)
        if len(read) == 2:
            break  # in the middle of the second
    rest = events(connection, Seat, consumer="mailer")
    read += rest
    assert sorted(event.key for event in read) == [(1,), (2,), (3,)]
    assert list(rest) == []
    ttl_clock.advance(60)
    assert [event.id for event in rest] == [read[1].id]
    assert len(list(events(connection, consumer="late"))) == 3


def test_a_consumer_may_want_events_of_all_tables(backend: Backend, ttl_clock: TTLClock) -> None:
    for model in (Seat, Session):
        record_expired(model)
    assert list(events(connection, consumer="audit")) == []
    Session.objects.create(key="a")
    expire(ttl_clock, 1)
    for model in (Seat, Session):
        Sweeper(connections["default"], model).run_once().raise_for_failures()
    read = events(connection, consumer="audit")
    assert sorted(event.table for event in read) == ["shop_seat", "shop_session"]


def test_a_second_subscription_changes_how_long_before_only(backend: Backend) -> None:
    outbox = TableOutbox("default")
    for seconds in (60, 60, 90):
        before = timedelta(seconds=seconds)
        outbox.subscribe("warn", [Subscription("shop_seat", "expiring", before)])
    outbox.subscribe("warn", [Subscription("shop_seat")])
    rows = Consumer.objects.order_by("kind").values_list("kind", "before_seconds")
    assert list(rows) == [("expired", None), ("expiring", 90)]


def test_the_outbox_tells_what_consumers_have_not_dealt_with(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    record_expired(Seat)
    outbox = TableOutbox("default")
    outbox.subscribe("a", [Subscription("shop_seat")])
    outbox.subscribe("b", [Subscription(EVERY_TABLE)])
    outbox.subscribe("idle", [Subscription("shop_nick")])
    expire(ttl_clock, 1)
    sweep()
    ttl_clock.advance(10)
    expire(ttl_clock, 2)
    sweep()
    first, second = outbox.recorded(10)
    assert [first.event.key, second.event.key] == [(1,), (2,)]
    assert first.event.row["id"] == 1
    assert outbox.recorded(1) == [second]
    assert outbox.recorded(10, since=second.at) == [second]
    taken = outbox.take("a", 10, timedelta(seconds=60))
    for failing, rest in zip(taken, (timedelta(seconds=5), None), strict=True):
        outbox.failed(failing, f"no {failing.event.key}", rest)
    a, b, idle = outbox.states()
    assert (a.consumer, a.subscriptions) == ("a", (Subscription("shop_seat"),))
    assert (a.pending, a.retried, a.dead) == (1, 1, 1)
    assert (b.pending, b.retried, b.dead) == (2, 0, 0)
    assert a.lag == b.lag > HOUR
    assert (idle.pending, idle.dead, idle.lag) == (0, 0, 0.0)
    assert [one.consumer for one in outbox.opened(10)] == ["a", "b", "a", "b"]
    (dead,) = outbox.opened(10, consumer="a", dead=True)
    assert (dead.event.key, dead.due_at, dead.error) == ((2,), None, "no (2,)")
    assert dead.event.delivery == 1
    assert len(outbox.opened(10, dead=False)) == 3
    assert len(outbox.opened(2)) == 2


def test_events_are_retried_and_skipped(backend: Backend, ttl_clock: TTLClock) -> None:
    got: list[Expiry] = []
    handler = Stubborn(2)
    on_expired(Seat, name="dies", attempts=1)(handler)
    on_expired(Seat, name="gets")(got.append)
    expire(ttl_clock, 1, 2)
    assert worker().run_once() == Delivered(done=2, dead=2)
    outbox = TableOutbox("default")
    ids = [one.event.id for one in outbox.opened(10)]
    assert outbox.retry("gets") == 0
    assert outbox.retry(events=[ids[0], "unknown"]) == 1
    assert worker().run_once() == Delivered(done=1)
    assert outbox.retry("dies") == 1
    assert outbox.skip("gets", ids) == 0
    assert outbox.skip("dies", ids) == 1
    assert worker().run_once() == Delivered()
    assert [event.delivery for event in handler.got] == [1, 1, 2]


@pytest.fixture
def connected() -> Iterator[Callable[[Any, Any], None]]:
    """Connect receivers to `expired`, and disconnect them at the end."""
    made: list[tuple[Any, Any]] = []

    def connect(model: Any, function: Any) -> None:
        made.append((model, function))
        receiver(expired, sender=model)(function)

    yield connect
    for model, function in made:
        expired.disconnect(function, sender=model)


def test_events_are_sent_as_signals(
    backend: Backend, ttl_clock: TTLClock, connected: Callable[[Any, Any], None]
) -> None:
    got: list[tuple[str, Any, tuple[Any, ...]]] = []

    def first(sender: Any, event: Expiry, **_: Any) -> None:
        got.append(("first", sender, event.key))

    def second(sender: Any, event: Expiry, **_: Any) -> None:
        got.append(("second", sender, event.key))
        if event.delivery == 1:
            raise RuntimeError("not yet")

    connected(Seat, first)
    connected(Seat, second)
    connected(Session, first)
    Session.objects.create(pk=5, key="a")
    expire(ttl_clock, 1)
    assert worker().run_once() == Delivered(done=1, failed=1)
    ttl_clock.advance(1)
    assert worker().run_once() == Delivered(done=1)
    assert sorted(got, key=repr) == sorted(
        [("first", Session, (5,)), *[(name, Seat, (1,)) for name in ("first", "second")] * 2],
        key=repr,
    )


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("sender", "message"),
    [
        (None, "give sender=Model"),
        (User, "shop.User has no TTL"),
        (Concert, "has the policy of shop.Event: give sender=Event"),
    ],
)
def test_a_signal_needs_a_model_with_events(backend: Backend, sender: Any, message: str) -> None:
    def release(**_: Any) -> None: ...

    with pytest.raises(TTLConfigurationError, match=message):
        expired.connect(release, sender=sender)
    assert not expired.has_listeners(sender)


@pytest.mark.databases("sqlite")
def test_a_coroutine_cant_be_a_handler(backend: Backend) -> None:
    async def release(event: Expiry) -> None: ...

    on_expired(Seat, name="release")(release)
    with pytest.raises(TTLConfigurationError, match="is a coroutine function"):
        worker()


def test_a_test_has_the_events_when_its_clock_moves(
    backend: Backend, ttl_clock: TTLClock, expired_events: ExpiredEvents
) -> None:
    got = handled()
    expired_events.watch(connections["default"], [Seat])
    seats(1, 2)
    ttl_clock.advance(HOUR - 60)
    assert expired_events == []
    ttl_clock.advance(60)
    assert sorted(event.key for event in expired_events) == [(1,), (2,)]
    assert sorted(event.id for event in expired_events) == sorted(event.id for event in got)

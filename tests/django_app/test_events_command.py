"""`manage.py ttl_events` runs a worker, and shows, retries and skips events."""

from __future__ import annotations

import io
import json
import os
import signal
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest
from django.core.management import CommandError, call_command

from tests.django_app.shop.models import Seat
from tests.django_app.with_events import expire, handled, no_handlers, seats, told, waiting, worker
from tests.events.stubborn import Stubborn
from ttl_odm.events import Expiry, on_expired, record_expired
from ttl_odm.events.django.outbox import TableOutbox
from ttl_odm.events.outbox import EVERY_TABLE, Subscription

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from datetime import datetime

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock


@pytest.fixture(autouse=True)
def _no_handlers() -> Iterator[None]:
    with no_handlers():
        yield


class Reader(io.StringIO):
    """A stream whose reader does something after each line."""

    def __init__(self, *after_lines: Callable[[], object]) -> None:
        super().__init__()
        self._after_lines = iter(after_lines)

    def write(self, line: str) -> int:
        """Get a line, and do what comes next."""
        written = super().write(line)
        next(self._after_lines)()
        return written


def test_the_command_runs_a_worker(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    got = handled()
    expire(ttl_clock, 1)
    said = told("--once", capsys=capsys)
    assert said == "done: 1, failed: 0, dead: 0\n"
    assert [event.key for event in got] == [(1,)]


def test_the_command_ends_on_a_signal(backend: Backend, ttl_clock: TTLClock) -> None:
    handled_by: list[Expiry] = []

    def release(event: Expiry) -> None:
        handled_by.append(event)
        os.kill(os.getpid(), signal.SIGTERM)

    on_expired(Seat, name="release")(release)
    expire(ttl_clock, 1)
    call_command("ttl_events", "--poll", "0.01")
    assert len(handled_by) == 1
    assert waiting() == 0


def test_the_command_lists_retries_and_skips(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    on_expired(Seat, name="dies", attempts=1)(Stubborn(9))
    handled(name="waits")
    expire(ttl_clock, 1)
    assert told("list", capsys=capsys) == "No event is waiting.\n"
    assert told("--once", capsys=capsys) == "done: 1, failed: 0, dead: 1\n"
    head, row = told("list", "--dead", capsys=capsys).splitlines()
    assert head.split() == [
        "event",
        "table",
        "key",
        "consumer",
        "deliveries",
        "due",
        "(UTC)",
        "error",
    ]
    assert row.split()[1:] == ["shop_seat", "1", "dies", "1", "dead", "RuntimeError:", "no", "1"]
    (found,) = json.loads(told("list", "--json", "--consumer", "dies", capsys=capsys))
    assert (found["due_at"], found["event"]["key"]) == (None, [1])
    assert told("list", "--consumer", "waits", capsys=capsys) == "No event is waiting.\n"
    said = told("retry", "--all-dead", capsys=capsys)
    assert said == "1 event will be delivered at once.\n"
    assert "dead" not in told("list", capsys=capsys).split()
    said = told("skip", found["event"]["id"], capsys=capsys)
    assert said == "1 event won't be delivered any more.\n"
    assert waiting() == 0


def test_list_shows_no_password_of_an_error(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    def release(_: Expiry) -> None:
        raise RuntimeError("no redis://user:secret@host")

    on_expired(Seat, name="release")(release)
    expire(ttl_clock, 1)
    worker().run_once()
    shown = told("list", capsys=capsys) + told("list", "--json", capsys=capsys)
    assert shown.count("redis://user:***@host") == 2
    assert "secret" not in shown


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--once"], "No model in the database 'default' has events"),
        (["retry"], "give either the ids of events, or --all-dead"),
        (["skip", "a", "--all-dead"], "give either the ids"),
    ],
)
def test_usage_errors_of_the_command(backend: Backend, words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message) as raised:
        call_command("ttl_events", *words)
    assert raised.value.returncode == 2


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["list", "--dead", "--pending"], "not allowed with"),
        (["list", "--limit", "0"], "argument --limit: 0 isn't a number from 1 on"),
        (["tail", "-n", "some"], "argument -n/--number: invalid int value: 'some'"),
        (["tail", "--poll", "0"], "argument --poll: 0 isn't a number from 0.1 on"),
    ],
)
def test_options_have_to_make_sense(backend: Backend, words: list[str], message: str) -> None:
    with pytest.raises(CommandError, match=message):
        call_command("ttl_events", *words)


@pytest.mark.databases("sqlite")
def test_a_database_may_be_named_before_or_after_the_action(
    backend: Backend, other: str, capsys: pytest.CaptureFixture[str]
) -> None:
    record_expired(Seat)
    seats(1)
    TableOutbox(other).subscribe("a", [Subscription("shop_seat")])
    for words in (["--database", other, "list"], ["list", "--database", other]):
        assert told(*words, capsys=capsys) == "No event is waiting.\n"


def test_the_command_shows_consumers(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "The database knows no consumer" in told("consumers", capsys=capsys)
    on_expired(Seat, name="dies", attempts=1)(Stubborn(1))
    TableOutbox("default").subscribe("audit", [Subscription(EVERY_TABLE)])
    expire(ttl_clock, 1, 2)
    worker().run_once()
    ttl_clock.advance(25)
    rows = [line.split() for line in told("consumers", capsys=capsys).splitlines()]
    assert rows == [
        ["consumer", "gets", "pending", "retried", "dead", "lag"],
        ["audit", "all", "tables", "2", "0", "0", "25", "s"],
        ["dies", "shop_seat", "0", "0", "1", "-"],
    ]
    audit, dies = json.loads(told("consumers", "--json", capsys=capsys))
    assert (audit["consumer"], audit["pending"]) == ("audit", 2)
    assert (dies["consumer"], dies["dead"]) == ("dies", 1)


def test_the_command_forgets_a_consumer(
    backend: Backend,
    ttl_clock: TTLClock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("ttl_odm.events.django.outbox._CHUNK", 2)  # less than there is
    handled()
    TableOutbox("default").subscribe("audit", [Subscription(EVERY_TABLE)])
    TableOutbox("default").subscribe("mailer", [Subscription("shop_seat")])
    expire(ttl_clock, 1, 2, 3)
    worker().run_once()
    said = "audit is forgotten; 3 events won't be delivered to it any more.\n"
    assert told("forget", "audit", capsys=capsys) == said
    assert json.loads(told("forget", "mailer", "--json", capsys=capsys)) == {"deliveries": 3}
    assert waiting() == 0
    with pytest.raises(CommandError, match="There is no consumer 'audit': release") as raised:
        call_command("ttl_events", "forget", "audit")
    assert raised.value.returncode == 2


def test_the_command_lists_no_more_than_asked_for(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    on_expired(Seat, name="dies", attempts=1)(Stubborn(1))
    TableOutbox("default").subscribe("audit", [Subscription(EVERY_TABLE)])
    expire(ttl_clock, 1, 2)
    worker().run_once()
    lines = told("list", "--pending", "--limit", "1", capsys=capsys).splitlines()
    assert (len(lines), lines[-1]) == (3, "There are more than 1: --limit shows them.")
    assert "audit" in lines[1]
    assert len(told("list", "--pending", "--limit", "2", capsys=capsys).splitlines()) == 3
    assert len(json.loads(told("list", "--json", "--limit", "2", capsys=capsys))) == 2
    assert json.loads(told("skip", "--all-dead", "--json", capsys=capsys)) == {"deliveries": 1}


def test_tail_shows_the_events_recorded_last(
    backend: Backend, ttl_clock: TTLClock, capsys: pytest.CaptureFixture[str]
) -> None:
    handled()
    for number in (1, 2, 3):
        expire(ttl_clock, number)
        worker().run_once()
    lines = [line.split() for line in told("tail", "-n", "2", capsys=capsys).splitlines()]
    assert [line[3:] for line in lines] == [["expired", "shop_seat", key] for key in ("2", "3")]
    assert len(told("tail", capsys=capsys).splitlines()) == 3
    assert told("tail", "-n", "0", capsys=capsys) == ""
    shown = [json.loads(line) for line in told("tail", "--json", capsys=capsys).splitlines()]
    assert [one["event"]["key"] for one in shown] == [[1], [2], [3]]
    assert shown[0]["recorded_at"] < shown[1]["recorded_at"]


@pytest.mark.slow
def test_tail_follows_until_a_signal_and_misses_no_late_commit(
    backend: Backend, ttl_clock: TTLClock
) -> None:
    handled()
    expire(ttl_clock, 1, 2)
    worker().run_once()
    outbox = TableOutbox("default")
    (last,) = outbox.recorded(1)

    def record(name: str, at: datetime) -> None:
        event = replace(last.event, id=name, key=(name,))
        outbox.record([event], at, Subscription("no consumer gets it"))

    second = timedelta(seconds=1)
    reader = Reader(
        lambda: record("B1", last.at + second),
        lambda: record("B2", last.at - second),  # recorded before the former, committed after it
        lambda: os.kill(os.getpid(), signal.SIGINT),
    )
    call_command("ttl_events", "tail", "-f", "-n", "1", "--poll", "0.1", stdout=reader)
    keys = [line.split()[-1] for line in reader.getvalue().splitlines()]
    assert keys == [str(last.event.key[0]), "B1", "B2"]

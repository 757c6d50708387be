"""`ttl-odm events` shows the outbox of a database, and retries or skips what failed."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import MetaData, insert
from sqlalchemy.ext.asyncio import create_async_engine

from tests.cli.running import CliRunner, command, variables
from tests.events.holds import handled, seat_hold
from tests.events.outboxes import Refuses, died, expire
from tests.guard import GUARD
from ttl_odm.cli.commands import cli
from ttl_odm.events import EventWorker, Expiry, on_expired
from ttl_odm.events.outbox import Subscription
from ttl_odm.events.sqlalchemy import event_tables, read_from

if TYPE_CHECKING:
    from datetime import datetime

    from click.testing import Result
    from sqlalchemy import Engine

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock


HEAD = ["event", "table", "key", "consumer", "deliveries"]


def url_of(engine: Engine) -> str:
    return engine.url.render_as_string(hide_password=False)


def run(engine: Engine, *words: str) -> Result:
    """Run a command of the group with the database's URL alone."""
    return CliRunner().invoke(cli, ["events", *words, "--url", url_of(engine)])


def printed(engine: Engine, *words: str) -> str:
    finished = run(engine, *words)
    assert finished.exit_code == 0, finished.output
    return finished.stdout


def answered(engine: Engine, *words: str) -> Any:
    return json.loads(printed(engine, *words, "--json"))


def record(engine: Engine, model: Any, seat: str, at: datetime) -> None:
    """Record an event as if at an instant."""
    row = {
        "id": seat,
        "table_name": "seat_holds",
        "kind": "expired",
        "row_key": json.dumps([seat]),
        "row_values": "{}",
        "expires_at": at,
        "recorded_at": at,
        "kept_until": at + timedelta(days=7),
    }
    with engine.begin() as connection:
        connection.execute(insert(event_tables(model.metadata).events), [row])


@pytest.mark.slow
def test_list_shows_what_is_left(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release")(Refuses("A1"))
    on_expired(model, name="charge", attempts=1)(Refuses("A1", "A2"))
    expire(engine, ttl_clock, model, "A1", "A2")
    EventWorker(engine, model).run_once()
    head, *lines = printed(engine, "list").splitlines()
    assert head.split() == [*HEAD, "due", "(UTC)", "error"]
    assert len(lines) == 3
    (dead,) = (line for line in lines if "A2" in line)
    assert dead.split()[1:6] == ["seat_holds", "A2", "charge", "1", "dead"]
    assert dead.endswith("RuntimeError: not A2")
    assert printed(engine, "list", "--dead").count("charge") == 2
    assert "charge" not in printed(engine, "list", "--pending")
    assert "release" not in printed(engine, "list", "--consumer", "charge")
    assert "There are more than 2: --limit shows them." in printed(engine, "list", "--limit", "2")
    (resting,) = answered(engine, "list", "--pending")
    assert (resting["consumer"], resting["event"]["key"]) == ("release", ["A1"])
    assert resting["error"] == "RuntimeError: not A1"
    assert resting["due_at"] is not None


def test_list_says_that_nothing_is_left(engine: Engine, ttl_clock: TTLClock) -> None:
    died(engine, ttl_clock)
    assert printed(engine, "list") == "No event is pending or dead.\n"
    assert printed(engine, "list", "--dead") == "No event is dead.\n"
    assert answered(engine, "list") == []


def test_list_shows_no_password_of_an_error_and_its_first_line_alone(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()

    def release(_: Expiry) -> None:
        raise RuntimeError("no redis://user:secret@host\nmore" + "x" * 200)

    on_expired(model, name="release")(release)
    expire(engine, ttl_clock, model, "A1")
    EventWorker(engine, model).run_once()
    shown = printed(engine, "list")
    assert "redis://user:***@host" in shown
    assert "more" not in shown
    assert "secret" not in shown + printed(engine, "list", "--json")


def test_consumers_are_shown_with_what_they_get(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release")(Refuses("A1"))
    on_expired(model, name="charge", attempts=1)(Refuses("A1", "A2"))
    expire(engine, ttl_clock, model, "A1", "A2")
    assert "The database knows no consumer" in printed(engine, "consumers")
    EventWorker(engine, model).run_once()
    warned = [Subscription("accounts", "expiring", timedelta(days=7)), Subscription("*")]
    read_from(engine, None).outbox().subscribe("mailer", warned)
    lines = [line.split("  ") for line in printed(engine, "consumers").splitlines()]
    head, charge, mailer, release = ([cell.strip() for cell in line if cell] for line in lines)
    assert head == ["consumer", "gets", "pending", "retried", "dead", "lag"]
    assert charge == ["charge", "seat_holds", "0", "0", "2", "-"]
    assert mailer[:2] == ["mailer", "all tables, accounts (expiring 7 d 00 h before)"]
    assert release[:5] == ["release", "seat_holds", "1", "1", "0"]
    one, two, three = answered(engine, "consumers")
    assert (one["consumer"], one["dead"], three["pending"]) == ("charge", 2, 1)
    assert {"table": "accounts", "kind": "expiring", "before": 604_800.0} in two["subscriptions"]


@pytest.mark.slow
def test_tail_shows_the_events_recorded_last(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    handled(model)
    worker = EventWorker(engine, model)
    for seat in ("A1", "A2", "A3"):
        expire(engine, ttl_clock, model, seat)
        worker.run_once()
    lines = [line.split() for line in printed(engine, "tail", "-n", "2").splitlines()]
    assert [line[3:] for line in lines] == [
        ["expired", "seat_holds", seat] for seat in ("A2", "A3")
    ]
    assert len(printed(engine, "tail").splitlines()) == 3
    assert printed(engine, "tail", "-n", "0") == ""
    told = [json.loads(line) for line in printed(engine, "tail", "--json").splitlines()]
    assert [one["event"]["key"] for one in told] == [["A1"], ["A2"], ["A3"]]
    assert told[0]["recorded_at"] < told[1]["recorded_at"]


@pytest.mark.slow
def test_tail_follows_until_a_signal_and_misses_no_late_commit(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    handled(model)
    expire(engine, ttl_clock, model, "A1", "A2")
    EventWorker(engine, model).run_once()
    outbox = read_from(engine, None).outbox()
    last = outbox.recorded(1)[0].at
    words = ("events", "tail", "-f", "-n", "1", "--poll", "0.1", "--json")
    process = subprocess.Popen(
        command(*words, "--url", url_of(engine)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=variables(),
    )
    try:
        assert process.stdout is not None
        seats = [json.loads(process.stdout.readline())["event"]["key"][0]]
        for seat, second in (("B1", 1), ("B2", -1)):  # the latter was recorded before the former
            record(engine, model, seat, last + timedelta(seconds=second))
            seats += json.loads(process.stdout.readline())["event"]["key"]
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=GUARD)
    finally:
        process.kill()
        process.wait(GUARD)
    assert seats[0] in ("A1", "A2")
    assert (seats[1:], rest, errors, process.returncode) == (["B1", "B2"], "", "", 0)


@pytest.mark.slow
def test_retry_and_skip_name_events_or_all_dead(engine: Engine, ttl_clock: TTLClock) -> None:
    worker, handler = died(engine, ttl_clock, "A1", "A2", "A3")
    first, second, third = (one["event"]["id"] for one in answered(engine, "list"))
    assert printed(engine, "skip", first, "--consumer", "nobody").startswith("0 events won't")
    assert printed(engine, "skip", first) == "1 event won't be delivered any more.\n"
    assert printed(engine, "retry", second, "x") == "1 event will be delivered at once.\n"
    assert answered(engine, "retry", "--all-dead") == {"deliveries": 1}
    handler.seats = ()
    assert worker.run_once().done == 2
    assert {event.id for event in handler.got[-2:]} == {second, third}
    assert answered(engine, "skip", "--all-dead") == {"deliveries": 0}


@pytest.mark.slow
def test_forget_removes_a_consumer(engine: Engine, ttl_clock: TTLClock) -> None:
    died(engine, ttl_clock, "A1", "A2")
    said = "release is forgotten; 2 events won't be delivered to it any more.\n"
    assert printed(engine, "forget", "release") == said
    assert answered(engine, "consumers") == []
    finished = run(engine, "forget", "release")
    assert finished.exit_code == 2
    assert "There is no consumer 'release': the database knows none." in finished.stderr
    read_from(engine, None).outbox().subscribe("mailer", [Subscription("seat_holds")])
    assert "There is no consumer 'mail': mailer." in run(engine, "forget", "mail").stderr
    assert answered(engine, "forget", "mailer") == {"deliveries": 3}


@pytest.mark.parametrize("what", ["retry", "skip"])
@pytest.mark.databases("sqlite")
def test_events_have_to_be_named_in_one_way(engine: Engine, what: str) -> None:
    for words, wrong in (((), "--all-dead."), (("1", "--all-dead"), "--all-dead, not both.")):
        finished = run(engine, what, *words)
        assert finished.exit_code == 2
        assert f"events {what}: give the ids of events, or {wrong}" in finished.stderr


@pytest.mark.parametrize(
    "words", [["list"], ["consumers"], ["tail"], ["skip", "1"], ["retry", "1"], ["forget", "a"]]
)
def test_missing_tables_are_one_clear_sentence(engine: Engine, words: list[str]) -> None:
    seat_hold().metadata.create_all(engine)
    finished = run(engine, *words)
    assert finished.exit_code == 2
    assert "The database lacks one of the tables ttl_odm_events" in finished.stderr


@pytest.mark.databases("sqlite")
def test_the_database_has_to_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TTL_ODM_URL", "TTL_ODM_APP"):
        monkeypatch.delenv(name, raising=False)
    finished = CliRunner().invoke(cli, ["events", "list"])
    assert finished.exit_code == 2
    assert "Specify the database" in finished.stderr


def test_an_asynchronous_driver_does_as_well(async_backend: Backend) -> None:
    assert async_backend.async_url is not None
    engine, metadata = create_async_engine(async_backend.async_url), MetaData()
    tables = event_tables(metadata)

    async def fill() -> None:
        async with engine.begin() as connection:
            await connection.run_sync(metadata.create_all)
            row = {"consumer": "mailer", "table_name": "*", "kind": "expired"}
            await connection.execute(insert(tables.consumers), [row])
        await engine.dispose()

    asyncio.run(fill())
    words = ["consumers", "--url", async_backend.async_url, "--json"]
    finished = CliRunner().invoke(cli, ["events", *words])
    assert finished.exit_code == 0, finished.output
    assert [one["consumer"] for one in json.loads(finished.stdout)] == ["mailer"]
    assert CliRunner().invoke(cli, ["events", "retry", "1", *words[1:]]).exit_code == 0
    assert CliRunner().invoke(cli, ["events", "tail", *words[1:]]).exit_code == 0

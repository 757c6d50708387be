"""`ttl-odm check` finds events that nobody gets, and handlers that are never called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, ForeignKey, String, Table, insert
from sqlalchemy.orm import Mapped, mapped_column

from tests.cli.running import CliRunner
from tests.events.holds import HOUR, handled, seat_hold
from tests.events.outboxes import Refuses, expire
from ttl_odm import Follows
from ttl_odm.cli.commands import cli
from ttl_odm.events import (
    EventWorker,
    events,
    on_expired,
    on_expiring,
    record_expired,
    record_expiring,
)
from ttl_odm.events.sqlalchemy import event_tables
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Engine

    from ttl_odm.testing import TTLClock

CODES = {
    "dead-events",
    "late-events",
    "missing-event-tables",
    "uncalled-handler",
    "unread-events",
    "unread-warnings",
    "unreadable",
}

_apps: list[tuple[Any, Any]] = []


def app() -> tuple[Any, Any]:
    """What ``--app`` names: the engine and the models of the test."""
    return _apps[-1]


@pytest.fixture
def found(engine: Engine) -> Callable[..., list[tuple[str, str]]]:
    """Check models, and return the findings on events."""

    def check(models: Any, *words: str) -> list[tuple[str, str]]:
        return [(one["severity"], one["code"]) for one in findings(engine, models, *words)]

    return check


def findings(engine: Any, models: Any, *words: str) -> list[dict[str, Any]]:
    _apps[:] = [(engine, models)]
    finished = CliRunner().invoke(cli, ["check", "--app", f"{__name__}:app", *words, "--json"])
    assert finished.exit_code in (0, 1), finished.output
    return [one for one in json.loads(finished.stdout)["findings"] if one["code"] in CODES]


@pytest.mark.slow
def test_nothing_is_found_where_events_are_delivered(
    engine: Engine, ttl_clock: TTLClock, found: Callable[..., Any]
) -> None:
    model = seat_hold()
    handled(model)
    expire(engine, ttl_clock, model, "A1")
    EventWorker(engine, model).run_once()
    assert found(model.metadata) == []


def test_nothing_is_found_where_there_are_no_events(
    engine: Engine, found: Callable[..., Any]
) -> None:
    model = seat_hold()
    model.metadata.create_all(engine)
    assert found(model.metadata) == []
    assert not any(name.startswith("ttl_odm_event") for name in model.metadata.tables)


@pytest.mark.slow
def test_events_that_no_consumer_gets(engine: Engine, found: Callable[..., Any]) -> None:
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    assert found(model.metadata) == [("warning", "unread-events")]
    list(events(engine, consumer="mailer"))
    assert found(model.metadata) == []


def test_a_consumer_of_another_table_reads_nothing_of_this_one(
    engine: Engine, found: Callable[..., Any]
) -> None:
    model = seat_hold()
    record_expired(model)
    model.metadata.create_all(engine)
    consumers = event_tables(model.metadata).consumers
    rows = [
        {"consumer": "tell", "table_name": "other", "kind": "expired"},
        {"consumer": "warn", "table_name": "seat_holds", "kind": "expiring"},
    ]
    with engine.begin() as connection:
        connection.execute(insert(consumers), rows)
    assert found(model.metadata) == [("warning", "unread-events")]


@pytest.mark.slow
def test_warnings_that_no_consumer_gets(engine: Engine, found: Callable[..., Any]) -> None:
    model = seat_hold()
    record_expiring(model, before=60)
    record_expiring(model, before=600)
    model.metadata.create_all(engine)
    consumers = event_tables(model.metadata).consumers
    with engine.begin() as connection:  # told of what has expired, and of one kind of warnings
        for kind, before in (("expired", None), ("expiring", 60)):
            row = {"consumer": kind, "table_name": "seat_holds", "kind": kind}
            connection.execute(insert(consumers), [{**row, "before_seconds": before}])
    (finding,) = findings(engine, model.metadata)
    assert (finding["severity"], finding["code"]) == ("warning", "unread-warnings")
    assert finding["message"].startswith("warnings are recorded 10 min 00 s before its rows expire")
    assert "kinds=['expiring']" in finding["fix"]
    list(events(engine, consumer="mailer", kinds=["expiring"]))
    assert found(model.metadata) == []


def test_warnings_without_tables_for_them(engine: Engine) -> None:
    model = seat_hold()
    model.metadata.create_all(engine)
    record_expiring(model, before=60)
    (finding,) = findings(engine, model)
    assert finding["code"] == "missing-event-tables"
    assert finding["message"].startswith("no warning of its rows can be recorded: the database")


def test_a_handler_of_warnings_of_a_table_without_a_policy(engine: Engine) -> None:
    model = seat_hold()
    Table("people", model.metadata, Column("name", String(20), primary_key=True))
    on_expiring("people", before=60, name="greet")(print)
    model.metadata.create_all(engine)
    (finding,) = findings(engine, model.metadata)
    assert (finding["code"], finding["target"]) == ("uncalled-handler", "people")


@pytest.mark.slow
def test_dead_events_and_late_ones_by_consumer(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release", attempts=1)(Refuses("A1"))
    on_expired(model, name="mail it")(Refuses("A1", "A2"))
    expire(engine, ttl_clock, model, "A1", "A2")
    EventWorker(engine, model).run_once()
    (dead,) = findings(engine, model.metadata)
    assert (dead["severity"], dead["code"]) == ("warning", "dead-events")
    assert dead["target"] == "ttl_odm_deliveries"
    assert dead["message"].startswith("1 event of the consumer release will not be delivered")
    assert dead["fix"].startswith("events retry --all-dead --consumer release  (with ttl-odm")
    ttl_clock.advance(HOUR + 1)
    late, also_dead = findings(engine, model.metadata)
    assert also_dead == dead
    assert late["code"] == "late-events"
    assert "the consumer mail it has 2 events to deal with, the oldest" in late["message"]
    assert "events list --consumer 'mail it'" in late["fix"]


def status(engine: Any, models: Any, *words: str) -> str:
    _apps[:] = [(engine, models)]
    finished = CliRunner().invoke(cli, ["status", "--app", f"{__name__}:app", *words])
    assert finished.exit_code == 0, finished.output
    return finished.stdout


@pytest.mark.slow
def test_status_shows_what_waits_for_each_consumer(engine: Engine, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="mailer", attempts=1)(Refuses("A1"))
    handled(model)
    expire(engine, ttl_clock, model, "A1", "A2")
    assert "consumer" not in status(engine, model.metadata)  # nobody has come yet
    EventWorker(engine, model).run_once()
    shown = [line.split() for line in status(engine, model.metadata).splitlines()]
    assert ["mailer", "seat_holds", "0", "0", "1", "-"] in shown
    mailer, release = json.loads(status(engine, model.metadata, "--json"))["consumers"]
    assert (mailer["consumer"], mailer["dead"]) == ("mailer", 1)
    assert (release["consumer"], release["dead"]) == ("release", 0)


@pytest.mark.slow
def test_missing_tables_of_events(engine: Engine) -> None:
    model = seat_hold()
    model.metadata.create_all(engine)
    record_expired(model)
    for missing in (
        "ttl_odm_events and ttl_odm_consumers and ttl_odm_deliveries",
        "ttl_odm_consumers",
    ):
        (finding,) = findings(engine, model)
        assert (finding["severity"], finding["code"]) == ("error", "missing-event-tables")
        assert finding["message"].endswith(f"the database lacks {missing}")
        tables = event_tables(model.metadata)
        model.metadata.create_all(engine, [tables.events, tables.deliveries])


def follow(model: Any) -> None:
    """Declare a model whose rows follow those of another."""

    class Snack(TTLMixin, model.__bases__[1]):  # type: ignore[misc,name-defined]
        __tablename__ = "snacks"
        __ttl__ = Follows("seat")
        id: Mapped[int] = mapped_column(primary_key=True)
        seat: Mapped[str] = mapped_column(ForeignKey("seat_holds.seat"))


def test_a_handler_of_a_table_that_cant_have_events(engine: Engine) -> None:
    model = seat_hold()

    follow(model)
    Table("people", model.metadata, Column("name", String(20), primary_key=True))
    handled("people", "greet")
    handled("snacks", "eat")
    handled("seat_holds", "release")
    handled("elsewhere", "other")
    model.metadata.create_all(engine)
    people, snacks = findings(engine, model.metadata)
    assert (people["severity"], people["code"]) == ("error", "uncalled-handler")
    assert (people["target"], snacks["target"]) == ("people", "snacks")
    assert people["message"] == "the handler greet is never called, because it has no policy"
    assert "its rows follow their parent" in snacks["message"]

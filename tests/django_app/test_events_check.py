"""``ttl_check`` finds events that nobody gets, and handlers that are never called."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import call_command
from django.db import connection, connections

from tests.django_app.family.models import Item
from tests.django_app.shop.models import Seat, Session
from tests.django_app.with_events import HOUR, handled, no_handlers, seats, worker
from tests.events.stubborn import Stubborn
from ttl_odm.events import events, on_expired, on_expiring, record_expired, record_expiring
from ttl_odm.events.django.models import Consumer, Delivery, Event

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

CODES = {
    "dead-events",
    "late-events",
    "missing-event-tables",
    "uncalled-handler",
    "unread-events",
    "unread-warnings",
}


@pytest.fixture(autouse=True)
def _no_handlers() -> Iterator[None]:
    with no_handlers():
        yield


@pytest.fixture
def found(backend: Backend, capsys: pytest.CaptureFixture[str]) -> Any:
    """Check, and return the findings on events."""

    def check(*options: str) -> list[dict[str, Any]]:
        capsys.readouterr()
        with suppress(SystemExit):
            call_command("ttl_check", "--json", *options)
        (content,) = map(json.loads, capsys.readouterr().out.splitlines())
        return [one for one in content["findings"] if one["code"] in CODES]

    return check


def codes(findings: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["code"], one["target"]) for one in findings]


@pytest.mark.slow
def test_nothing_is_found_where_events_are_delivered(found: Any, ttl_clock: TTLClock) -> None:
    handled()
    on_expiring(Seat, before=60, name="warn")(print)
    ttl_clock.freeze()
    seats(1)
    ttl_clock.advance(HOUR)
    worker().run_once()
    assert found() == []


@pytest.mark.slow
def test_nothing_is_found_where_there_are_no_events(found: Any) -> None:
    assert found() == []


@pytest.mark.slow
def test_events_and_warnings_that_no_consumer_gets(found: Any) -> None:
    record_expired(Seat)
    record_expiring(Seat, before=60)
    table = Seat._meta.db_table
    findings = found()
    assert codes(findings) == [("unread-events", table), ("unread-warnings", table)]
    assert all(one["fix"].startswith("run python manage.py ttl_events") for one in findings)
    assert codes(found("--model", "shop.Seat")) == codes(findings)
    assert found("--model", "shop.Session") == []
    list(events(connections["default"], consumer="mailer"))
    assert codes(found()) == [("unread-warnings", table)]
    list(events(connections["default"], consumer="mailer", kinds=["expiring"]))
    assert found() == []


@pytest.mark.slow
def test_dead_events_and_late_ones_by_consumer(found: Any, ttl_clock: TTLClock) -> None:
    on_expired(Seat, name="release", attempts=1)(Stubborn(9))
    on_expired(Seat, name="mail it")(Stubborn(9))
    ttl_clock.freeze()
    seats(1)
    ttl_clock.advance(HOUR)
    worker().run_once()
    (dead,) = found()
    assert (dead["code"], dead["target"]) == ("dead-events", "ttl_odm_deliveries")
    assert dead["message"].startswith("1 event of the consumer release will not be delivered")
    command = "python manage.py ttl_events retry --all-dead --consumer release  ("
    assert dead["fix"].startswith(command)
    ttl_clock.advance(HOUR + 1)
    late, also_dead = found()
    assert also_dead == dead
    assert late["code"] == "late-events"
    assert "the consumer mail it has 1 event to deal with, the oldest" in late["message"]
    assert "python manage.py ttl_events list --consumer 'mail it' shows" in late["fix"]


def test_tables_that_were_not_migrated(found: Any) -> None:
    record_expired(Seat)
    record_expiring(Session, before=60)
    with connection.schema_editor() as editor:
        for model in (Event, Delivery):
            editor.delete_model(model)
    try:
        findings = found("--model", "shop.Seat", "--model", "shop.Session")
    finally:
        with connection.schema_editor() as editor:
            for model in (Event, Delivery):
                editor.create_model(model)
    assert [one["code"] for one in findings] == ["missing-event-tables"] * 2
    messages = {one["target"]: one["message"] for one in findings}
    lacking = "the database lacks ttl_odm_events and ttl_odm_deliveries"
    assert messages[Seat._meta.db_table].endswith(f"can't be recorded: {lacking}")
    warnings = f"no warning of its rows can be recorded: {lacking}"
    assert messages[Session._meta.db_table] == warnings
    assert {one["fix"] for one in findings} == {"python manage.py migrate ttl_odm_events"}
    assert not Consumer.objects.exists()


@pytest.mark.slow
def test_a_handler_of_a_table_that_cant_have_events(found: Any) -> None:
    on_expiring("django_content_type", before=60, name="greet")(print)
    handled(Seat._meta.db_table)
    handled("elsewhere", "other")
    handled(Item._meta.db_table, "eat")
    greet, eat = found()
    assert (greet["code"], greet["severity"]) == ("uncalled-handler", "error")
    assert greet["message"] == "the handler greet is never called, because it has no policy"
    assert (eat["code"], eat["target"]) == ("uncalled-handler", Item._meta.db_table)
    assert "its rows follow their parent" in eat["message"]

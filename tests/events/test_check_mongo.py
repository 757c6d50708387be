"""`ttl-odm check` finds documents' events that nobody gets, and handlers that are never called."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beanie import Document, init_beanie

from tests.events.mongo_holds import HOUR, expire, handled, seat_hold
from tests.events.stubborn import Stubborn
from tests.mongo.sweeping import declared, swept
from ttl_odm.cli.application import Target
from ttl_odm.cli.checks_mongodb import check
from ttl_odm.events import (
    AsyncEventWorker,
    events,
    on_expired,
    on_expiring,
    record_expired,
    record_expiring,
)

if TYPE_CHECKING:
    from tests.mongo.sweeping import Swept
    from ttl_odm.sweeper.findings import Finding
    from ttl_odm.testing import TTLClock


async def found(place: Swept) -> list[Finding]:
    """Check the collection."""
    target = Target("documents", place.model.__name__, place.model)
    return await check(place.database, [target], deep=False)


def codes(findings: list[Finding]) -> list[tuple[str, str | None]]:
    return [(one.code, one.target) for one in findings]


async def test_nothing_is_found_where_events_are_delivered(
    mongodb_url: str, ttl_clock: TTLClock
) -> None:
    model = seat_hold()
    handled(model)
    on_expiring(model, before=60, name="warn")(print)
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        await AsyncEventWorker(place.database, model).run_once()
        assert await found(place) == []


async def test_nothing_is_found_where_there_are_no_events(mongodb_url: str) -> None:
    async with swept(mongodb_url, seat_hold()) as place:
        assert await found(place) == []


async def test_events_and_warnings_that_no_consumer_gets(mongodb_url: str) -> None:
    model = seat_hold()
    record_expired(model)
    record_expiring(model, before=60)
    async with swept(mongodb_url, model) as place:
        for finding in (findings := await found(place)):
            assert finding.fix is not None
            assert finding.fix.startswith("run an AsyncEventWorker")
        assert codes(findings) == [("unread-events", "documents"), ("unread-warnings", "documents")]
        assert [event async for event in events(place.database, consumer="mailer")] == []
        assert codes(await found(place)) == [("unread-warnings", "documents")]
        warnings = events(place.database, consumer="mailer", kinds=["expiring"])
        assert [event async for event in warnings] == []
        assert await found(place) == []


async def test_dead_events_and_late_ones_by_consumer(mongodb_url: str, ttl_clock: TTLClock) -> None:
    model = seat_hold()
    on_expired(model, name="release", attempts=1)(Stubborn(9))
    on_expired(model, name="mail it")(Stubborn(9))
    async with swept(mongodb_url, model) as place:
        await expire(place, ttl_clock, "A1")
        await AsyncEventWorker(place.database, model).run_once()
        (dead,) = await found(place)
        assert (dead.code, dead.target) == ("dead-events", "ttl_odm_deliveries")
        assert dead.message.startswith("1 event of the consumer release will not be delivered")
        ttl_clock.advance(HOUR + 1)
        late, also_dead = await found(place)
        assert also_dead == dead
        assert late.code == "late-events"
        assert "the consumer mail it has 1 event to deal with, the oldest" in late.message


async def test_a_handler_of_a_collection_that_cant_have_events(mongodb_url: str) -> None:
    class Person(Document):
        class Settings:
            name = "people"

    handled("people", "greet")
    handled("documents", "release")
    handled("elsewhere", "other")
    async with swept(mongodb_url, seat_hold()) as place:
        await init_beanie(database=place.database, document_models=[Person])
        (finding,) = await found(place)
    assert codes([finding]) == [("uncalled-handler", "people")]
    assert finding.message == "the handler greet is never called, because it has no policy"


async def test_a_handler_of_documents_that_mongodb_deletes(mongodb_url: str) -> None:
    model: Any = declared(purge="native")
    handled("documents", "release")
    on_expiring("documents", before=60, name="warn")(print)
    async with swept(mongodb_url, model) as place:
        (finding,) = await found(place)
    assert "release is never called, because MongoDB itself deletes" in finding.message

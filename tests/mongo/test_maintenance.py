"""`ensure_indexes`, `find_strays` and `repair_strays` on Beanie's document classes."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document, View, init_beanie
from beanie.odm.operators.update.general import Inc, Set

from tests.mongo.scratch import Scratch, scratch
from ttl_odm import ExpireAfter, TTLConfigurationError
from ttl_odm.beanie import (
    TTLMixin,
    ensure_indexes,
    find_strays,
    repair_strays,
    ttl_database,
)
from ttl_odm.beanie.indexes.strays import Inconsistency

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

# Beanie 1.30 asks instances for what Pydantic wants their class to be asked.
pytestmark = pytest.mark.filterwarnings("ignore:Accessing the 'model_fields' attribute")

LONG_AGO = datetime(2001, 1, 1, tzinfo=timezone.utc)


class Event(TTLMixin, Document):
    __ttl__: ClassVar[Any] = 3600
    name: str = ""
    visits: int = 0

    class Settings:
        """Beanie's."""

        name = "documents"
        indexes = ["name"]


class Login(TTLMixin, Document):
    __ttl__ = 60
    __ttl_purge__ = "sweeper"


class Token(TTLMixin, Document):
    __ttl__ = ExpireAfter("issued", 600)
    issued: datetime | None = None


class Base(TTLMixin, Document):
    __ttl__ = 60

    class Settings:
        """Beanie's."""

        is_root = True


class Derived(Base):
    pass


class NoLongerExpiring(Document):
    class Settings:
        """Beanie's."""

        name = "documents"


class Names(View):
    name: str

    class Settings:
        """Beanie's."""

        source = Event
        pipeline = [{"$project": {"name": 1}}]


@pytest.fixture
async def place(mongodb_url: str, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scratch]:
    """Give the collection of `Event`, with every class ready for use."""
    monkeypatch.setattr(Event, "__ttl__", 3600)
    async with scratch(mongodb_url) as made:
        await start(made, Event, Login, Token, Base, Derived)
        yield made


async def start(place: Scratch, *models: Any, backend: Any = "mongodb", **options: Any) -> None:
    """Do what an application does when it starts."""
    database = ttl_database(place.ours.database, backend=backend)
    await init_beanie(database=database, document_models=[*models], **options)


async def test_the_indexes_of_several_classes_are_made_at_once(place: Scratch) -> None:
    reports = await ensure_indexes(Event, Login, Token, Base, Derived)

    name = place.database.name
    assert {each.collection.removeprefix(f"{name}."): each.created for each in reports} == {
        "documents": ("__ttl_default", "__ttl_own"),
        "Login": ("__ttl_sweep_default", "__ttl_sweep_own"),
        "Token": ("__ttl_date",),
        "Base": ("__ttl_default", "__ttl_own"),
    }
    again = await ensure_indexes(Event, Login, Token, Base, Derived)
    assert not any((*each.created, *each.changed, *each.removed) for each in again)


async def test_a_changed_ttl_of_a_class_acts_without_init_beanie(
    place: Scratch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await ensure_indexes(Event)
    monkeypatch.setattr(Event, "__ttl__", 60)
    assert (await ensure_indexes(Event))[0].changed == ("__ttl_default",)
    monkeypatch.setattr(Event, "__ttl__", None)

    assert (await ensure_indexes(Event))[0].removed == ("__ttl_default", "__ttl_own")


async def test_a_class_without_a_policy_any_more_loses_its_ttl_indexes(place: Scratch) -> None:
    await ensure_indexes(Event)
    async with scratch_again(place) as later:
        await start(later, NoLongerExpiring)

        report = (await ensure_indexes(NoLongerExpiring))[0]

    assert report.removed == ("__ttl_default", "__ttl_own")
    assert "name_1" in place.indexes()


@pytest.mark.parametrize("dropping", [False, True])
async def test_init_beanie_neither_drops_our_indexes_nor_fails_because_of_them(
    place: Scratch,
    monkeypatch: pytest.MonkeyPatch,
    dropping: bool,  # noqa: FBT001 (a parameter of the test)
) -> None:
    await ensure_indexes(Event)
    place.theirs.create_index("visits")
    monkeypatch.setattr(Event, "__ttl__", 60)

    await start(place, Event, allow_index_dropping=dropping)

    assert {"__ttl_default", "__ttl_own", "name_1"} <= place.indexes().keys()
    assert ("visits_1" in place.indexes()) is not dropping
    assert (await ensure_indexes(Event))[0].changed == ("__ttl_default",)


async def test_a_class_that_init_beanie_has_not_seen_is_refused() -> None:
    class Unseen(TTLMixin, Document):
        __ttl__ = 5

    with pytest.raises(TTLConfigurationError, match=r"Unseen.*init_beanie"):
        await ensure_indexes(Unseen)


async def test_a_view_is_refused(place: Scratch) -> None:
    await start(place, Event, Names)

    with pytest.raises(TTLConfigurationError, match=r"\.Names' is a view.*'documents'"):
        await ensure_indexes(Names)


async def test_azure_gets_its_one_index(place: Scratch) -> None:
    async with scratch_again(place) as cosmos:
        await start(cosmos, Event, backend="cosmos")

        report = (await ensure_indexes(Event, guard=True))[0]

        assert report.created == ("__ttl_default",)
        assert place.indexes()["__ttl_default"] == {
            "v": 2,
            "key": {"_ts": 1},
            "expireAfterSeconds": 3600,
        }
        for ask in (find_strays, repair_strays):
            with pytest.raises(TTLConfigurationError, match="Event"):
                await ask(Event)


async def test_strays_are_found_among_expired_documents_and_mended_unstamped(
    place: Scratch,
) -> None:
    old = {"_ts": LONG_AGO, "name": "x", "visits": 0}
    place.theirs.insert_many([{"_id": 1, **old, "ttl": 600}, {"_id": 2, **old, "ttl": "600"}])

    found = (await find_strays(Event)).found
    assert {each.kind: each.examples for each in found} == {
        Inconsistency.INVALID_TTL: (2,),
        Inconsistency.TOO_LATE: (1,),
    }
    assert await repair_strays(Event) == 1

    fixed = place.theirs.find_one({"_id": 1}) or {}
    assert fixed["_exp"] - fixed["_ts"] == timedelta(seconds=600)
    assert fixed["_ts"] == LONG_AGO


async def test_other_policies_have_their_own_strays(place: Scratch) -> None:
    place.database["Token"].insert_one({"issued": "yesterday"})
    place.database["Login"].insert_one({"_ts": LONG_AGO, "ttl": 600})

    assert [each.kind for each in (await find_strays(Token)).found] == [Inconsistency.UNDATED]
    assert (await find_strays(Login)).found == ()


async def test_no_write_through_the_gate_leaves_an_exp_that_is_too_early(place: Scratch) -> None:
    await ensure_indexes(Event, guard=True)  # which would refuse it
    event = await Event(name="a", ttl=600).insert()
    for ttl in (7200, None, -1, "junk", 60, 20.0, 9000):
        event.ttl = ttl
        await event.save()
    await event.update(Inc({Event.visits: 1}))
    await event.update(Set({Event.ttl: 20_000}))
    await event.set({Event.name: "b"})
    await event.expire_in(30_000)
    await event.touch()
    await event.replace()
    await Event.find(Event.name == "b").update(Set({Event.ttl: 40_000}), Inc({Event.visits: 1}))
    await Event.find_one(Event.name == "c").upsert(
        Set({Event.ttl: 5}), on_insert=Event(name="c", ttl=600)
    )
    await Event.insert_many([Event(ttl=each) for each in (5, None, -1, "x", 1.5)])

    kinds = {each.kind for each in (await find_strays(Event)).found}

    # Operators that no pipeline has take _exp away; the sweeper, or a repair, brings it back.
    assert kinds <= {Inconsistency.INVALID_TTL, Inconsistency.TOO_LATE}
    await repair_strays(Event)
    assert {each.kind for each in (await find_strays(Event)).found} == {Inconsistency.INVALID_TTL}


def scratch_again(place: Scratch) -> Any:
    """Reach the same collection through a client that knows no policies yet."""
    url = "mongodb://{}:{}/?directConnection=true".format(*place.database.client.address or ())
    return scratch(url, name=place.database.name)

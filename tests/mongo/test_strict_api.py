"""A client with ``ServerApi("1", strict=True)``: the server refuses what is not in the stable API.

Beanie itself can't be initialised on one, so that is done through another client, and each class is
then given its collection of the strict one.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, Link, View, WriteRules, init_beanie
from pymongo import InsertOne, UpdateOne
from pymongo.errors import OperationFailure
from pymongo.server_api import ServerApi

from tests.mongo.models import World, opened
from tests.mongo.scratch import connect
from ttl_odm import TTLConfigurationError
from ttl_odm.beanie import (
    ExpiredError,
    TTLMixin,
    ensure_indexes,
    find_strays,
    repair_strays,
    ttl_database,
)
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

API_STRICT = 323


class Parcel(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: str = ""
    weight: int = 0

    class Settings:
        name = "strict_parcels"


class Van(Document):
    id: int
    parcels: list[Link[Parcel]] = []

    class Settings:
        name = "strict_vans"


class ParcelNames(View):
    name: str

    class Settings:
        name = "strict_names"
        source = Parcel
        pipeline = [{"$project": {"name": 1}}]


async def _closed(client: Any) -> None:
    closing = client.close()
    if inspect.isawaitable(closing):
        await closing


@pytest.fixture
async def strict(mongodb_url: str) -> AsyncIterator[World]:
    """Give the classes collections of a strict client."""
    client = connect(mongodb_url, server_api=ServerApi("1", strict=True))
    async with opened(mongodb_url, [Parcel, Van, ParcelNames]) as loose:
        database = ttl_database(client[loose.database.name])
        for model in (Parcel, Van):
            model.set_collection(database[model.get_settings().name])
        yield World(database, loose.raw)
    await _closed(client)


async def test_beanie_itself_cannot_be_initialised(mongodb_url: str) -> None:
    client = connect(mongodb_url, server_api=ServerApi("1", strict=True))
    for database in (client["ttl_odm_strict"], ttl_database(client["ttl_odm_strict"])):
        with pytest.raises(OperationFailure, match="buildInfo") as refusal:
            await init_beanie(database=database, document_models=[Van])
        assert refusal.value.code == API_STRICT
    await _closed(client)


async def test_documents_are_written_and_read(strict: World) -> None:
    await Parcel(id=1, name="a", ttl=60).insert()
    await Parcel.insert_many([Parcel(id=2, name="b"), Parcel(id=3, name="dead")])
    strict.age(Parcel, 3)

    assert await Parcel.get(3) is None
    assert {parcel.id for parcel in await Parcel.find().to_list()} == {1, 2}
    assert [parcel.id for parcel in await Parcel.find().sort("name").limit(2).to_list()] == [1, 2]
    assert await Parcel.count() == 2
    assert await strict.database["strict_parcels"].estimated_document_count() == 2
    assert await Parcel.find(Parcel.name == "dead").exists() is False
    assert await Parcel.find().sum(Parcel.weight) == 0

    await Parcel.find().update({"$inc": {"weight": 1}})
    parcel = await Parcel.get(1)
    assert parcel is not None
    await parcel.set({"name": "c"})
    await parcel.save()
    await parcel.replace()
    await Parcel.find_one(Parcel.id == 4).upsert({"$set": {"name": "d"}}, on_insert=Parcel(id=4))
    await strict.database["strict_parcels"].bulk_write(
        [InsertOne({"_id": 5}), UpdateOne({"_id": 6}, {"$set": {"name": "f"}}, upsert=True)]
    )
    await parcel.delete()

    assert strict.keys(Parcel) == [2, 3, 4, 5, 6]


async def test_expired_keys_are_free_also_in_a_transaction(strict: World) -> None:
    await Parcel.insert_many([Parcel(id=1), Parcel(id=2)])
    for key in (1, 2):
        strict.age(Parcel, key)

    await Parcel(id=1, name="again").insert()
    started = strict.database.client.start_session()
    session = await started if inspect.isawaitable(started) else started
    async with session:
        beginning = session.start_transaction()
        async with await beginning if inspect.isawaitable(beginning) else beginning:
            await Parcel(id=2, name="again").insert(session=session)

    assert {parcel.name for parcel in await Parcel.find().to_list()} == {"again"}


async def test_links_views_and_pipelines_see_live_documents_only(strict: World) -> None:
    await Van(id=1, parcels=[Parcel(id=1, name="a"), Parcel(id=2)]).insert(
        link_rule=WriteRules.WRITE
    )
    strict.age(Parcel, 2)

    (van,) = await Van.find(fetch_links=True).to_list()
    assert [parcel.id for parcel in van.parcels] == [1]  # type: ignore[attr-defined]
    names = strict.database["strict_names"].find()
    assert [name["name"] for name in await names.to_list(None)] == ["a"]
    counted = await Parcel.aggregate([{"$count": "n"}]).to_list()
    assert counted == [{"n": 1}]


async def test_helpers_change_lifetimes(strict: World) -> None:
    parcel = await Parcel(id=1).insert()

    assert await parcel.touch(at_most_every=0.001)
    assert await parcel.expire_in(600, only_if="shorter")
    await parcel.persist()
    await parcel.inherit_ttl()
    assert await parcel.expire_in(0)
    with pytest.raises(ExpiredError):
        await parcel.touch()


@pytest.mark.slow
async def test_indexes_guard_and_repairs(strict: World, monkeypatch: pytest.MonkeyPatch) -> None:
    (made,) = await ensure_indexes(Parcel, guard=True)
    assert {"__ttl_default", "__ttl_own"} <= {*made.created}
    monkeypatch.setattr(Parcel, "__ttl__", 7200)
    (changed,) = await ensure_indexes(Parcel)
    assert changed.changed == ("__ttl_default",)

    strict.of(Parcel).insert_many(
        [{"_id": key, "_ts": strict.now(), "ttl": 60} for key in range(2500)]
    )
    (strays,) = (await find_strays(Parcel)).found
    assert strays.count == 2500
    assert await repair_strays(Parcel) == 2500

    monkeypatch.setattr(Parcel, "__ttl__", None)
    (gone,) = await ensure_indexes(Parcel)
    assert {"__ttl_default", "__ttl_own"} <= {*gone.removed}


async def test_a_sweeper_says_that_it_needs_another_client(strict: World) -> None:
    with pytest.raises(TTLConfigurationError, match="strict server API"):
        AsyncSweeper(strict.database, [Parcel])


async def test_distinct_is_in_no_version_of_the_api(strict: World) -> None:
    await Parcel(id=1).insert()
    plain = strict.database.client[strict.database.name]["strict_vans"]
    for distinct in (Parcel.distinct("name"), plain.distinct("name")):
        with pytest.raises(OperationFailure) as refusal:
            await distinct
        assert refusal.value.code == API_STRICT

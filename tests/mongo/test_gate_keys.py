"""The keys of expired documents are free, and those of live ones never are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from bson import DBRef
from pymongo import ASCENDING, DeleteOne, InsertOne, UpdateMany, UpdateOne
from pymongo.errors import BulkWriteError, DuplicateKeyError

from tests.mongo.models import LONG_AGO, Event, Plain, World, collection_of, opened
from tests.mongo.sweeping import Commands

if TYPE_CHECKING:
    from collections.abc import Iterator


OWNERS: list[Any] = [DBRef("users", number) for number in range(3)]


async def put(world: World, *, dead: tuple[int, ...] = (), live: tuple[int, ...] = ()) -> Any:
    """Store documents ``{_id: n, name: "nn"}``."""
    documents = [{"_id": key, "name": f"n{key}", "old": True} for key in (*dead, *live)]
    world.of(Event).insert_many(documents)
    for key in dead:
        world.age(Event, key)
    for key in live:
        world.age(Event, key, 0)
    return collection_of(Event)


@pytest.fixture
def unique(world: World) -> Iterator[Any]:
    """Make unique indexes, and drop them."""
    made = []

    def make(keys: Any, **options: Any) -> None:
        made.append(world.of(Event).create_index(keys, unique=True, **options))

    yield make
    for name in made:
        world.of(Event).drop_index(name)


async def test_an_insert_takes_the_key_of_an_expired_document(world: World) -> None:
    await put(world, dead=(1,))

    await Event(id=1, name="n1").insert()

    assert "old" not in world.stored(Event, 1)


async def test_an_insert_may_displace_several_documents(world: World) -> None:
    await put(world, dead=(1, 2))

    await Event(id=1, name="n2").insert()

    assert world.keys(Event) == [1]


async def test_a_live_document_is_never_displaced(world: World) -> None:
    await put(world, dead=(1,), live=(2,))

    with pytest.raises(DuplicateKeyError):
        await Event(id=2, name="n9").insert()
    with pytest.raises(DuplicateKeyError):
        await Event(id=1, name="n2").insert()
    with pytest.raises(DuplicateKeyError):
        await collection_of(Event).update_one({"_id": 3}, {"$set": {"name": "n2"}}, upsert=True)

    assert world.stored(Event, 2)["old"]


@pytest.mark.parametrize("ordered", [True, False])
async def test_many_inserts_take_the_keys_of_many(world: World, *, ordered: bool) -> None:
    await put(world, dead=tuple(range(0, 40, 2)))
    documents = [Event(id=key, name=f"n{39 - key}") for key in range(40)]

    result = await Event.insert_many(documents, ordered=ordered)

    assert result.inserted_ids == list(range(40))
    assert not world.of(Event).count_documents({"old": True})


@pytest.mark.parametrize("ordered", [True, False])
async def test_a_bulk_error_counts_what_was_done(world: World, *, ordered: bool) -> None:
    collection = await put(world, dead=(1, 4), live=(2, 3))
    requests = [
        InsertOne({"_id": 1, "name": "n1"}),
        UpdateOne({"_id": 9}, {"$set": {"name": "n9"}}, upsert=True),
        InsertOne({"_id": 2, "name": "x"}),
        UpdateOne({"_id": 8}, {"$set": {"name": "n2"}}, upsert=True),
        InsertOne({"_id": 4, "name": "n4"}),
        DeleteOne({"_id": 3}),
    ]

    with pytest.raises(BulkWriteError) as caught:
        await collection.bulk_write(requests, ordered=ordered)

    details = caught.value.details
    errors = [(error["index"], error["code"]) for error in details["writeErrors"]]
    if ordered:
        assert errors == [(2, 11000)]
        assert (details["nInserted"], details["nUpserted"], details["nRemoved"]) == (1, 1, 0)
        assert world.keys(Event) == [1, 2, 3, 4, 9]
        assert world.stored(Event, 4)["old"]
    else:
        assert errors == [(2, 11000), (3, 11000)]
        assert (details["nInserted"], details["nUpserted"], details["nRemoved"]) == (2, 1, 1)
        assert world.keys(Event) == [1, 2, 4, 9]
    assert details["upserted"] == [{"index": 1, "_id": 9}]


async def test_the_same_new_key_twice_is_a_duplicate(world: World) -> None:
    await put(world, dead=(1,))

    with pytest.raises(BulkWriteError) as caught:
        await collection_of(Event).insert_many(
            [{"_id": 1, "name": "a"}, {"_id": 1, "name": "b"}], ordered=False
        )

    assert caught.value.details["nInserted"] == 1
    assert world.stored(Event, 1)["name"] == "a"


async def test_an_update_takes_a_unique_value_of_an_expired_document(world: World) -> None:
    collection = await put(world, dead=(1, 2, 3, 4), live=(5,))
    writes = [
        lambda: collection.update_one({"_id": 5}, {"$set": {"name": "n1"}}),
        lambda: collection.update_many({"_id": 5}, {"$set": {"name": "n2"}}),
        lambda: collection.update_one({"_id": 5}, [{"$set": {"name": {"$concat": ["n", "3"]}}}]),
        lambda: collection.find_one_and_replace({"_id": 5}, {"name": "n4"}),
    ]

    for number, write in enumerate(writes, start=1):
        await write()
        assert world.stored(Event, 5)["name"] == f"n{number}"

    assert world.keys(Event) == [5]


async def test_a_bulk_update_takes_a_unique_value(world: World) -> None:
    collection = await put(world, dead=(1, 2), live=(5, 6))

    result = await collection.bulk_write(
        [
            UpdateOne({"_id": 5}, {"$set": {"name": "n1"}, "$inc": {"score": 1}}),
            UpdateMany({"_id": 6}, {"$set": {"name": "n2"}}),
        ]
    )

    assert result.matched_count == 2
    assert world.keys(Event) == [5, 6]


async def test_an_update_of_many_is_not_applied_twice_to_the_same_document(
    world: World, unique: Any
) -> None:
    unique([("slot", ASCENDING)], sparse=True)
    collection = await put(world, dead=(9,), live=(1, 2))
    world.of(Event).update_one({"_id": 9}, {"$set": {"slot": 12}})
    world.of(Event).update_one({"_id": 1}, {"$set": {"slot": 1}})
    world.of(Event).update_one({"_id": 2}, {"$set": {"slot": 2}})

    # 1 gets 11; 2 meets the expired holder of 12, after the first has been changed.
    with pytest.raises(DuplicateKeyError):
        await collection.update_many({}, {"$inc": {"slot": 10, "score": 1}})

    assert world.stored(Event, 1)["slot"] == 11


async def test_arrays_missing_values_and_odd_types_are_keys_too(world: World, unique: Any) -> None:
    unique("tags")
    values: list[Any] = [["a", "b"], [], None, {"x": 1}, "s", 5.0, [["n"]]]
    collection = collection_of(Event)
    for key, value in enumerate(values):
        world.of(Event).delete_many({})
        world.of(Event).insert_one({"_id": key, "name": f"n{key}", "tags": value, "old": True})
        world.age(Event, key)

        await collection.insert_one({"_id": key + 100, "name": "new", "tags": value})

        assert world.keys(Event) == [key + 100], value
    world.of(Event).delete_many({})
    world.of(Event).insert_one({"_id": 1, "name": "n1"})
    world.age(Event, 1)
    await collection.insert_one({"_id": 2, "name": "n2"})
    assert world.keys(Event) == [2]


async def test_compound_dotted_and_partial_indexes(world: World, unique: Any) -> None:
    unique([("where.room", ASCENDING), ("day", ASCENDING)], partialFilterExpression={"on": True})
    world.of(Event).insert_many(
        [
            {"_id": 1, "name": "n1", "where": {"room": 7}, "day": 1, "on": True},
            {"_id": 2, "name": "n2", "where": {"room": 7}, "day": 2, "on": True},
        ]
    )
    world.age(Event, 1)
    world.age(Event, 2, 0)
    collection = collection_of(Event)

    await collection.insert_one(
        {"_id": 3, "name": "n3", "where": {"room": 7}, "day": 1, "on": True}
    )
    with pytest.raises(DuplicateKeyError):
        await collection.update_one({"_id": 3}, {"$set": {"day": 2}})

    assert world.keys(Event) == [2, 3]


async def test_a_collation_makes_keys_equal_that_are_spelt_otherwise(
    world: World, unique: Any
) -> None:
    unique("email", collation={"locale": "en", "strength": 2})
    world.of(Event).insert_many(
        [{"_id": key, "name": f"n{key}", "email": f"E{key}@x"} for key in (1, 2, 3)]
    )
    for key in (1, 2, 3):
        world.age(Event, key)
    collection = collection_of(Event)

    await collection.insert_one({"_id": 11, "name": "a", "email": "e1@X"})
    await collection.insert_many([{"_id": 12, "name": "b", "email": "e2@X"}])
    await collection.update_one({"_id": 11}, {"$set": {"email": "e3@X"}})

    assert world.keys(Event) == [11, 12]


@pytest.mark.parametrize("ordered", [True, False])
async def test_missing_parts_of_many_keys_cost_one_conflict(
    mongodb_url: str, *, ordered: bool
) -> None:
    commands = Commands()
    async with opened(mongodb_url, [Event], listeners=[commands]) as world:
        stored = world.of(Event)
        stored.create_index([("day", ASCENDING), ("room", ASCENDING)], unique=True)
        stored.insert_many([{"_id": key, "name": f"n{key}", "day": key} for key in range(40)])
        stored.update_many({}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 7_200_000]}}}])
        commands.sent.clear()
        documents = [{"_id": 100 + key, "name": f"m{key}", "day": key} for key in range(40)]

        await collection_of(Event).insert_many(documents, ordered=ordered)

        assert world.keys(Event) == [*range(100, 140)]
        assert len(commands.of("insert")) == 2


async def test_many_updates_of_a_part_of_a_key_cost_one_conflict(mongodb_url: str) -> None:
    commands = Commands()
    async with opened(mongodb_url, [Event], listeners=[commands]) as world:
        stored = world.of(Event)
        stored.create_index([("day", ASCENDING), ("room", ASCENDING)], unique=True)
        stored.insert_many(
            [{"_id": key, "name": f"n{key}", "day": 1, "room": key} for key in range(40)]
        )
        stored.update_many({}, [{"$set": {"_ts": {"$subtract": ["$$NOW", 7_200_000]}}}])
        stored.insert_many(
            [{"_id": 100 + key, "name": f"m{key}", "day": 1, "room": -key - 1} for key in range(40)]
        )
        commands.sent.clear()
        updates = [UpdateOne({"_id": 100 + key}, {"$set": {"room": key}}) for key in range(40)]

        result = await collection_of(Event).bulk_write(updates, ordered=False)

        assert result.modified_count == 40
        assert world.keys(Event) == [*range(100, 140)]
        assert len(commands.of("update")) == 2


@pytest.mark.slow
async def test_many_long_keys(world: World, unique: Any) -> None:
    unique("text")
    texts = [f"{key:08}{'x' * 20_000}" for key in range(900)]
    documents = [
        {"_id": key, "name": f"n{key}", "text": text, "_ts": LONG_AGO}
        for key, text in enumerate(texts)
    ]
    world.of(Event).insert_many(documents)
    collection = collection_of(Event)

    await collection.insert_many(
        [{"_id": 1000 + key, "name": f"m{key}", "text": text} for key, text in enumerate(texts)]
    )

    assert world.keys(Event) == [*range(1000, 1900)]


async def test_places_on_a_globe(world: World, unique: Any) -> None:
    unique([("place", "2dsphere")])
    point = {"type": "Point", "coordinates": [1.5, 2.5]}
    world.of(Event).insert_one({"_id": 1, "name": "a", "place": point, "_ts": LONG_AGO})
    collection = collection_of(Event)

    await collection.insert_one({"_id": 2, "name": "b", "place": point})
    with pytest.raises(DuplicateKeyError):
        await collection.insert_one({"_id": 3, "name": "c", "place": point})

    assert world.keys(Event) == [2]


async def test_a_plain_collection_keeps_its_duplicates(world: World) -> None:
    await Plain(id=1).insert()

    with pytest.raises(DuplicateKeyError):
        await Plain(id=1).insert()


# Transactions, in which an error would be the end


async def in_transaction(world: World, work: Any) -> Any:
    client = world.database.client
    started = client.start_session()
    async with await started if asyncio.iscoroutine(started) else started as session:
        opened = session.start_transaction()
        async with await opened if asyncio.iscoroutine(opened) else opened:
            return await work(session)


async def test_keys_are_free_in_a_transaction(world: World, unique: Any) -> None:
    unique("email", collation={"locale": "en", "strength": 2}, sparse=True)
    collection = await put(world, dead=(1, 2, 3, 4, 5, 6), live=(9,))
    world.of(Event).update_one({"_id": 5}, {"$set": {"email": "A@x"}})

    async def work(session: Any) -> None:
        await Event(id=1, name="n1").insert(session=session)
        await Event.insert_many([Event(id=2, name="n2")], session=session)
        await Event(id=3, name="n3").save(session=session)
        await collection.bulk_write([InsertOne({"_id": 7, "name": "n4"})], session=session)
        update = {"$set": {"email": "a@X", "name": "n6"}}
        await collection.update_one({"_id": 9}, update, session=session)

    await in_transaction(world, work)

    assert world.keys(Event) == [1, 2, 3, 7, 9]
    assert not world.of(Event).count_documents({"old": True, "_id": {"$lt": 9}})


@pytest.mark.parametrize(
    "asked",
    [
        {"email": "a"},
        {"$and": [{"email": {"$eq": "a"}}]},
        {"$or": [{"email": "a"}]},
        {"email": {"$in": ["a"]}},
        {"email": {"$all": ["a"]}},
    ],
    ids=repr,
)
async def test_the_key_that_an_upsert_takes_from_its_filter_is_free_in_a_transaction(
    world: World, unique: Any, asked: dict[str, Any]
) -> None:
    unique("email")
    world.of(Event).insert_one({"_id": 1, "name": "a", "email": "a", "_ts": LONG_AGO})
    collection = collection_of(Event)

    async def work(session: Any) -> None:
        new = {"$set": {"score": 1}, "$setOnInsert": {"name": "b"}}
        await collection.update_one(asked, new, upsert=True, session=session)

    await in_transaction(world, work)

    (stored,) = world.of(Event).find()
    assert (stored["email"], stored["name"]) == ("a", "b")


@pytest.mark.parametrize(
    ("path", "old", "new"),
    [
        ("owner.$id", {"owner": OWNERS[1]}, {"owner": OWNERS[1]}),
        (
            "owners.$id",
            {"owners": [OWNERS[1], OWNERS[2]]},
            {"owners": [OWNERS[0], OWNERS[1]]},
        ),
        (
            "lines.serials",
            {"lines": [{"serials": [1, 2]}, {"serials": [3]}]},
            {"lines": [{"serials": [4]}, {"serials": [3, 5]}]},
        ),
    ],
)
async def test_keys_inside_others_are_free_in_a_transaction(
    world: World, unique: Any, path: str, old: dict[str, Any], new: dict[str, Any]
) -> None:
    unique(path)
    world.of(Event).insert_one({"_id": 1, "name": "a", "_ts": LONG_AGO, **old})
    collection = collection_of(Event)

    async def work(session: Any) -> None:
        await collection.insert_one({"_id": 2, "name": "b", **new}, session=session)

    await in_transaction(world, work)

    assert world.keys(Event) == [2]


async def test_what_a_transaction_displaced_comes_back_when_it_fails(world: World) -> None:
    await put(world, dead=(1,), live=(2,))

    async def work(session: Any) -> None:
        await Event(id=1, name="n1").insert(session=session)
        await Event(id=2, name="n2").insert(session=session)

    with pytest.raises(DuplicateKeyError):
        await in_transaction(world, work)

    assert world.stored(Event, 1)["old"]


UNKNOWN: dict[str, tuple[Any, Any]] = {
    "a partial index": ("email", {"$set": {"open": True}}),
    "an operator": ("score", {"$inc": {"score": 6}}),
    "an array": ("tags", {"$push": {"tags": "t"}}),
    "a pipeline": ("score", [{"$set": {"score": {"$add": ["$score", 6]}}}]),
}
"""A unique field, and an update that gives it a value which only the server knows."""
SENT: dict[str, Any] = {
    "update": lambda to, update, **own: to.update_many({"_id": 2}, update, **own),
    "upsert": lambda to, update, **own: to.update_many({"_id": 2}, update, upsert=True, **own),
    "in bulk": lambda to, update, **own: to.bulk_write([UpdateMany({"_id": 2}, update)], **own),
    "upsert in bulk": lambda to, update, **own: to.bulk_write(
        [UpdateMany({"_id": 2}, update, upsert=True)], **own
    ),
}


@pytest.mark.parametrize("is_live", [False, True], ids=["expired", "live"])
@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("way", UNKNOWN)
async def test_a_transaction_is_run_again_if_a_key_was_not_known(
    world: World,
    unique: Any,
    way: str,
    sent: str,
    is_live: bool,  # noqa: FBT001
) -> None:
    field, update = UNKNOWN[way]
    collection = await put(world, dead=() if is_live else (1,), live=(1, 2) if is_live else (2,))
    holder = {"email": "a", "open": True, "score": 7, "tags": ["t"]}
    world.of(Event).update_one({"_id": 1}, {"$set": holder})
    world.of(Event).update_one({"_id": 2}, {"$set": {"email": "a", "score": 1, "tags": ["s"]}})
    condition = {"open": True} if field == "email" else {field: {"$exists": True}}
    unique(field, partialFilterExpression=condition)
    runs: list[Any] = []

    async def work(session: Any) -> None:
        runs.append(session)
        assert len(runs) <= 2, "once more is enough"
        await SENT[sent](collection, update, session=session)

    started = world.database.client.start_session()
    async with await started if asyncio.iscoroutine(started) else started as session:
        if is_live:
            with pytest.raises((BulkWriteError, DuplicateKeyError)):
                await session.with_transaction(work)
        else:
            await session.with_transaction(work)

    assert (len(runs), world.keys(Event)) == ((1, [1, 2]) if is_live else (2, [2]))


# Races


@pytest.mark.slow
async def test_fifty_clients_and_forty_expired_keys_make_forty_inserts(world: World) -> None:
    ids = range(40)
    await put(world, dead=tuple(ids))

    async def client(number: int) -> int:
        done = 0
        for step in range(8):
            key = (5 * number + step) % 40
            try:
                await Event(id=key, name=f"n{key}", score=number).insert()
            except DuplicateKeyError:
                continue
            done += 1
        return done

    counts = await asyncio.gather(*(client(number) for number in range(50)))

    assert sum(counts) == 40
    assert world.of(Event).count_documents({"old": True}) == 0


async def test_a_race_of_upserts_makes_one_document_and_loses_no_update(world: World) -> None:
    collection = await put(world, dead=(1,))

    async def count() -> None:
        await collection.update_one(
            {"_id": 1}, {"$inc": {"score": 1}, "$setOnInsert": {"name": "n1"}}, upsert=True
        )

    await asyncio.gather(*(count() for _ in range(60)))

    stored = world.stored(Event, 1)
    assert stored["score"] == 60
    assert "old" not in stored


@pytest.mark.slow
async def test_a_race_between_renewal_and_insert_has_one_winner(world: World) -> None:
    for key in range(30):
        await put(world, live=(key,))
        results = await asyncio.gather(
            collection_of(Event).update_one({"_id": key}, {"$set": {"score": 1}}),
            asyncio.to_thread(world.age, Event, key),
            Event(id=key, name=f"n{key}").insert(),
            return_exceptions=True,
        )
        inserted = not isinstance(results[2], DuplicateKeyError)
        stored = world.stored(Event, key)
        assert inserted == ("old" not in stored)

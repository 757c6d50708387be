"""``backend="documentdb"``: what is sent there is right on MongoDB, too.

documentdb is the engine of Azure Cosmos DB for MongoDB (vCore). Where it is available, the contract
runs on it (`python tools/servers.py --only documentdb -- pytest --only mongodb tests/contract -k
test_beanie`), and so do these tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, init_beanie
from bson import ObjectId

from tests.mongo.models import collection_of
from tests.mongo.scratch import scratch
from tests.mongo.sweeping import DAY, SCHEMA, Commands, Swept, declared
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie import ensure_indexes, ttl_database
from ttl_odm.beanie.indexes.ensure import ensure_collection
from ttl_odm.beanie.keys import KeyHolders
from ttl_odm.beanie.policy import ttl_indexes
from ttl_odm.beanie.policy.bindings import binding_of
from ttl_odm.core.values import MAX_TTL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

POLICIES = [
    TTL(3600),
    TTL(-1),
    TTL(60, override=None),
    TTL(60, last_modified="issued", override="life", never=(0, -2)),
    ExpireAt("at"),
    ExpireAfter("at", 60),
]


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Swept]:
    """An empty collection of a class whose database is said to be documentdb's."""
    model = declared(TTL(3600), "sweeper")
    async with scratch(mongodb_url) as made:
        database = ttl_database(made.ours.database, backend="documentdb")
        await init_beanie(database=database, document_models=[model])
        commands: Any = None
        yield Swept(database, model, made.database[model.get_settings().name], commands)


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_each_filter_has_one_condition_for_a_field_or_all_on_one(policy: Any) -> None:
    for index in ttl_indexes.documentdb_indexes(policy, "native"):
        assert index.filter is not None
        assert not any(name.startswith("$") for name in index.filter)
        conditions = [len(each) for each in index.filter.values() if isinstance(each, dict)]
        assert len(index.filter) == 1 or set(conditions) <= {1}


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
def test_its_indexes_have_the_names_fields_and_seconds_of_mongodbs(policy: Any) -> None:
    def said(indexes: Any) -> list[Any]:
        return [(index.name, index.field, index.seconds) for index in indexes]

    assert said(ttl_indexes.documentdb_indexes(policy, "native")) == said(
        ttl_indexes.mongodb_indexes(policy, "native")
    )


@pytest.mark.parametrize("policy", POLICIES, ids=repr)
async def test_they_are_made_once_and_taken_away_with_the_policy(
    mongodb_url: str, policy: Any
) -> None:
    async with scratch(mongodb_url) as made:
        first = await ensure_collection(made.ours, policy, backend="documentdb")
        assert first.created
        again = await ensure_collection(made.ours, policy, backend="documentdb")
        assert again.unchanged == first.created
        last = await ensure_collection(made.ours, None, backend="documentdb")
        assert last.removed == tuple(sorted(first.created))


async def test_a_class_whose_policy_was_removed_gets_what_the_service_knows(
    mongodb_url: str,
) -> None:
    class Plain(Document):
        class Settings:
            name = "documents"

    commands = Commands()
    async with scratch(mongodb_url, event_listeners=[commands]) as made:
        await ensure_collection(made.ours, TTL(3600), backend="documentdb")
        database = ttl_database(made.ours.database, backend="documentdb")
        await init_beanie(database=database, document_models=[Plain])
        (report,) = await ensure_indexes(Plain)
        assert report.removed == ("__ttl_default", "__ttl_own")
        assert "majority" not in repr(commands.of("dropIndexes"))
        assert "includeBuildUUIDs" not in repr(commands.of("listIndexes"))


@pytest.mark.parametrize("service", ["documentdb", "cosmos"])
async def test_no_command_that_changes_a_schema_asks_for_a_majority(
    mongodb_url: str, service: Any
) -> None:
    commands = Commands()
    async with scratch(mongodb_url, event_listeners=[commands]) as made:
        for policy in (TTL(3600), TTL(60), None):
            await ensure_collection(made.ours, policy, backend=service, guard=policy is not None)
        sent = [command for command in commands.sent if SCHEMA & command.keys()]
        assert len(sent) > 3
        assert not any({"writeConcern", "commitQuorum"} & command.keys() for command in sent)


async def test_another_default_changes_the_index_in_place(mongodb_url: str) -> None:
    async with scratch(mongodb_url) as made:
        await ensure_collection(made.ours, TTL(3600), backend="documentdb")
        report = await ensure_collection(made.ours, TTL(-1), backend="documentdb")
        assert report.changed == ("__ttl_default",)
        assert made.indexes()["__ttl_default"]["expireAfterSeconds"] == MAX_TTL


async def test_what_is_in_no_index_is_said(mongodb_url: str) -> None:
    async with scratch(mongodb_url) as made:
        report = await ensure_collection(made.ours, TTL(3600), backend="documentdb")
        assert report.left_to_sweeper == (
            "documents whose '_ts' is before 2000-01-01",
            "documents whose 'ttl' is not a valid ttl",
        )


def test_single_numbers_that_mean_never_need_a_sweeper() -> None:
    policy = TTL(60, never=(9999,))
    with pytest.raises(TTLConfigurationError, match="'sweeper'"):
        ttl_indexes.documentdb_indexes(policy, "native")
    assert ttl_indexes.documentdb_indexes(policy, "sweeper") == ()


async def test_a_sweep_walks_keys_of_all_types_in_slices(place: Swept) -> None:
    keys = [*range(30), *(f"s{number}" for number in range(30)), True, 2.5, 2**40, ObjectId()]
    place.add(keys, age=DAY)
    place.add(["lives"], age=0)
    assert (await place.sweep(dry_run=True)).due == len(keys)

    report = await place.sweep(batch_size=2)

    assert not report.problems
    assert report.deleted == len(keys)
    assert place.keys() == {"lives"}


async def test_an_update_of_many_is_stamped_while_ttl_is_off(
    place: Swept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place.model, "__ttl__", None)
    place.add(range(3), age=DAY)
    before = place.ago(60)

    await collection_of(place.model).update_many({}, {"$set": {"name": "new"}})

    assert all(row["_ts"] >= before.replace(tzinfo=row["_ts"].tzinfo) for row in place.raw.find())


async def test_an_error_that_names_no_key_frees_those_of_every_unique_index(place: Swept) -> None:
    """As documentdb's has it; here it is told without one, since MongoDB's always names the key."""
    place.raw.create_index("name", unique=True)
    place.add([1], age=DAY, name="taken")
    place.add([2], age=DAY, name="other")
    place.add([3], age=0, name="lives")
    binding = binding_of(place.model)
    assert binding is not None
    plain = collection_of(place.model).database.client[place.raw.database.name][place.raw.name]
    conflict = {"code": 11000, "errmsg": "Duplicate key violation"}

    known = [{"_id": 2, "name": "taken"}, {"_id": 3, "name": "lives"}]
    holders = KeyHolders(plain, binding, None, known, complete=True)

    assert await holders.make_way(conflict) == 2
    assert place.keys() == {3}
    assert await holders.make_way(conflict) == 0


async def test_keys_of_expired_documents_are_free(place: Swept) -> None:
    place.raw.create_index("name", unique=True)
    place.add([1], age=DAY, name="taken")
    handle = collection_of(place.model)

    await handle.insert_one({"_id": 2, "name": "taken"})
    await handle.insert_many([{"_id": 3, "name": "new"}])

    assert place.keys() == {2, 3}


async def test_a_count_has_its_condition_in_the_filter(mongodb_url: str) -> None:
    commands, model = Commands(), declared(TTL(3600), "sweeper")
    async with scratch(mongodb_url, event_listeners=[commands]) as made:
        database = ttl_database(made.ours.database, backend="documentdb")
        await init_beanie(database=database, document_models=[model])
        place = Swept(database, model, made.database[model.get_settings().name], commands)
        place.add([1], age=DAY)
        place.add([2, 3], age=0)

        assert await collection_of(model).count_documents({}) == 2
        assert await model.find({"_id": {"$gte": 3}}).count() == 1
        assert await collection_of(model).estimated_document_count() == 2

        pipelines = [command["pipeline"] for command in commands.of("aggregate")]
        assert pipelines
        assert all("$$NOW" not in repr(pipeline[1:]) for pipeline in pipelines)

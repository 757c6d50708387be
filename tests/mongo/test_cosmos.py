"""With ``backend="cosmos"`` the service expires documents, and we send what it can run.

Nothing here talks to Azure: a real MongoDB runs what is sent, and the tests look at the commands.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, DocumentWithSoftDelete, init_beanie
from beanie.exceptions import DocumentNotFound
from pydantic import ConfigDict
from pymongo import InsertOne, ReplaceOne, UpdateOne
from pymongo.monitoring import CommandListener

from tests.mongo.models import World, opened
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.beanie import (
    TTLMixin,
    ensure_indexes,
    find_strays,
    keep_last_modified,
    repair_strays,
)
from ttl_odm.forecast.mongodb import collection_for
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Held(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: str = ""


class Checked(TTLMixin, Document):
    __ttl__ = TTL(3600, values="strict")
    id: int


class Closed(TTLMixin, Document):
    __ttl__ = 3600
    model_config = ConfigDict(extra="forbid")
    id: int


class Binned(TTLMixin, DocumentWithSoftDelete):
    __ttl__ = 3600
    id: int


class Commands(CommandListener):
    """What was sent, and how many documents each update has modified."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.modified: list[int] = []

    def started(self, event: Any) -> None:
        if event.command_name in ("find", "aggregate", "insert", "update", "delete", "distinct"):
            self.sent.append(dict(event.command))

    def succeeded(self, event: Any) -> None:
        if "nModified" in event.reply:
            self.modified.append(event.reply["nModified"])

    def failed(self, event: Any) -> None: ...


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
async def azure(mongodb_url: str, commands: Commands) -> AsyncIterator[World]:
    models: list[Any] = [Held, Checked, Closed, Binned]
    async with opened(mongodb_url, models, listeners=[commands], backend="cosmos") as made:
        commands.sent.clear()
        yield made


async def test_reads_carry_no_predicate(azure: World, commands: Commands) -> None:
    await Held.find(Held.name == "a").to_list()
    await Held.get(1)
    await Held.find().count()
    await Held.aggregate([{"$match": {"name": "a"}}]).to_list()
    await Held.distinct("name")

    assert len(commands.sent) == 5
    assert "$expr" not in repr(commands.sent)
    assert commands.sent[0]["filter"] == {"name": "a"}


async def test_writes_carry_no_stamps_of_ours(azure: World, commands: Commands) -> None:
    held = Held(id=1, name="a", ttl=60)
    await held.insert()
    await held.set({"name": "b"})
    await held.replace()
    await held.save()
    await Held.find().update({"$inc": {"n": 1}})
    await azure.database["Held"].bulk_write(
        [
            InsertOne({"_id": 2, "_ts": 1}),
            UpdateOne({"_id": 3}, {"$set": {"_ts": 5, "name": "c"}}, upsert=True),
            ReplaceOne({"_id": 2}, {"_ts": 1, "name": "d"}),
        ]
    )

    assert azure.of(Held).count_documents({"_ts": {"$exists": True}}) == 0
    assert azure.of(Held).count_documents({"_exp": {"$exists": True}}) == 0
    assert "_ts" not in repr([each for each in commands.sent if "find" not in each])
    assert azure.stored(Held, 1)["ttl"] == 60
    assert [each["name"] for each in azure.of(Held).find().sort("_id")] == ["b", "d", "c"]


async def test_values_are_checked_all_the_same(azure: World) -> None:
    with pytest.raises(InvalidTTL):
        await Checked(id=1, ttl=0).insert()
    with pytest.raises(InvalidTTL):
        await Checked.find().update({"$set": {"ttl": 1.5}})


async def test_the_index_is_the_services(azure: World) -> None:
    (report,) = await ensure_indexes(Held)

    index = azure.of(Held).index_information()[report.created[0]]
    assert (index["key"], index["expireAfterSeconds"]) == ([("_ts", 1)], 3600)
    assert "partialFilterExpression" not in index


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        (ExpireAt("ends"), "expires documents only by its own '_ts'"),
        (ExpireAfter("ends", 60), "expires documents only by its own '_ts'"),
        (TTL(60, max_lifetime=3600, created="ends"), "counts from its own '_ts'"),
        (TTL(60, override=None), "leave both out"),
    ],
)
async def test_what_the_service_does_not_enforce_is_refused(
    azure: World, policy: Any, reason: str
) -> None:
    class Refused(TTLMixin, Document):
        __ttl__ = policy
        ends: datetime | None = None

    with pytest.raises(TTLConfigurationError, match=reason):
        await init_beanie(database=azure.database, document_models=[Refused])


async def test_helpers_that_need_the_services_stamp_say_so(
    azure: World, commands: Commands
) -> None:
    held = await Held(id=1).insert()
    commands.sent.clear()

    for refused in (
        held.touch(at_most_every=60),
        held.touch(only_if="longer"),
        held.expire_in(0),
        held.expire_in(60, only_if="longer"),
        held.expire_at(datetime.now(timezone.utc)),
        Held.find().touch(),
        Held.find_one(Held.id == 1).touch(),
    ):
        with pytest.raises(TTLConfigurationError, match="Azure"):
            await refused
    assert commands.sent == []

    assert await held.expire_in(60)
    assert azure.stored(Held, 1) == {"_id": 1, "name": "", "ttl": 60}
    await held.persist()
    assert azure.stored(Held, 1)["ttl"] == -1
    await held.inherit_ttl()
    assert "ttl" not in azure.stored(Held, 1)


@pytest.mark.parametrize("own", [None, 60])
async def test_touching_is_a_change_of_the_document_and_back(
    azure: World, commands: Commands, own: int | None
) -> None:
    held = await Held(id=1, name="a", ttl=own).insert()
    before = azure.stored(Held, 1)
    commands.sent.clear()

    assert await held.touch()

    (update,) = commands.sent
    assert [each["q"] for each in update["updates"]] == [{"_id": 1}, {"_id": 1}]
    assert commands.modified == [2]  # each was one, so that either is enough
    assert azure.stored(Held, 1) == before


async def test_a_touch_that_was_cut_short_is_ended_by_the_next(
    azure: World, commands: Commands
) -> None:
    held = await Held(id=1).insert()
    azure.of(Held).update_one({"_id": 1}, {"$set": {"__ttl_touched": True}})

    assert await held.touch()

    assert commands.modified == [1]
    assert azure.stored(Held, 1) == {"_id": 1, "name": "", "ttl": None}


async def test_what_is_gone_is_not_found(azure: World) -> None:
    held = await Held(id=1).insert()
    azure.of(Held).delete_one({"_id": 1})

    for change in (held.touch(), held.expire_in(60), held.persist(), held.set({"name": "b"})):
        with pytest.raises(DocumentNotFound):
            await change


async def test_a_soft_delete_of_what_is_gone_stores_nothing(azure: World) -> None:
    binned = await Binned(id=1).insert()
    azure.of(Binned).delete_one({"_id": 1})

    with pytest.raises(DocumentNotFound):
        await binned.delete()
    result = await binned.hard_delete()
    assert result is not None
    assert result.deleted_count == 0
    assert azure.keys(Binned) == []


async def test_a_class_that_forbids_other_fields_is_not_touched(azure: World) -> None:
    closed = await Closed(id=1).insert()

    with pytest.raises(TTLConfigurationError, match="extra='forbid'"):
        await closed.touch()


async def test_a_write_that_shall_keep_the_last_modification_is_refused(
    azure: World, commands: Commands
) -> None:
    held = await Held(id=1).insert()
    commands.sent.clear()

    with pytest.raises(TTLConfigurationError, match="stamps every write"):
        await held.set({"name": "b"}, keep_last_modified=True)
    with keep_last_modified():
        for write in (held.replace(), Held(id=2).insert(), Held.find().update({"$inc": {"n": 1}})):
            with pytest.raises(TTLConfigurationError, match="stamps every write"):
                await write
    assert commands.sent == []


async def test_nothing_is_left_to_tools_that_delete_repair_or_count(azure: World) -> None:
    for tool in (find_strays, repair_strays):
        with pytest.raises(TTLConfigurationError, match="no policy that ttl_odm enforces"):
            await tool(Held)
    with pytest.raises(TTLConfigurationError, match="deletes expired documents itself"):
        AsyncSweeper(azure.database, [Held])
    with pytest.raises(TTLConfigurationError, match="last modified"):
        collection_for(azure.database, Held)
    (report,) = await ensure_indexes(Held, guard=True)
    assert report.created == ("__ttl_default",)
    assert azure.of(Held).options() == {}


async def test_what_was_read_lives(azure: World) -> None:
    azure.of(Held).insert_one({"_id": 1, "name": "a", "ttl": 1})
    held = await Held.get(1)

    assert held is not None
    assert (held.expires_at, held.is_expired, held.time_left) == (None, False, None)
    assert await Held.find({}, include_expired=True).count() == 1

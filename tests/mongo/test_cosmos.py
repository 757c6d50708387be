"""With ``backend="cosmos"`` the service expires documents, and we send what it can run.

Nothing here talks to Azure: a real MongoDB runs what is sent, and the tests look at the commands.
"""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, init_beanie
from pymongo import InsertOne, ReplaceOne, UpdateOne
from pymongo.monitoring import CommandListener

from tests.mongo.models import World, opened
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Held(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: str = ""


class Checked(TTLMixin, Document):
    __ttl__ = TTL(3600, values="strict")
    id: int


class Commands(CommandListener):
    """What was sent."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []

    def started(self, event: Any) -> None:
        if event.command_name in ("find", "aggregate", "insert", "update", "delete", "distinct"):
            self.sent.append(dict(event.command))

    def succeeded(self, event: Any) -> None: ...

    def failed(self, event: Any) -> None: ...


@pytest.fixture
def commands() -> Commands:
    return Commands()


@pytest.fixture
async def azure(
    mongodb_url: str, commands: Commands, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[World]:
    from tests.mongo import models

    real = models.connect
    monkeypatch.setattr(models, "connect", lambda url: real(url, event_listeners=[commands]))
    async with opened(mongodb_url, [Held, Checked], backend="cosmos") as made:
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
        (ExpireAt("ends"), "expires documents by its own '_ts'"),
        (ExpireAfter("ends", 60), "expires documents by its own '_ts'"),
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
        held.touch(),
        held.touch(at_most_every=60),
        held.expire_in(0),
        held.expire_in(60, only_if="longer"),
        held.expire_at(datetime.now(timezone.utc)),
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

"""Each pair of `ttl_odm.combinations` is tried on MongoDB: it works, or its reason is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document

from tests.combined import pairs, pattern
from tests.mongo.following import LONG_AGO
from tests.mongo.models import World, opened
from ttl_odm import Follows, Partitions, Stored, TTLConfigurationError
from ttl_odm.beanie import Archive, TTLMixin, ensure_indexes, set_policy
from ttl_odm.combinations import CAPABILITIES
from ttl_odm.sweeper import AsyncSweeper, SweepError

if TYPE_CHECKING:
    from ttl_odm.combinations import Combination

HOUR, LONG = 3600, 2_000_000_000
EXPIRED, LIVE = 1, 2


def document(name: str, **members: Any) -> Any:
    """Declare a document class; annotations are those of `int` fields."""
    fields = dict.fromkeys(("id", *members.pop("fields", ())), int)
    settings = type("Settings", (), {"name": f"{name.lower()}s"})
    annotations = {"Settings": ClassVar[Any], **fields}
    body = {"__module__": __name__, "__annotations__": annotations, "Settings": settings}
    return type(name, (TTLMixin, Document), {**body, **members})


class Family:
    """A document class with two capabilities, and what each has to show for itself."""

    def __init__(self, *capabilities: str) -> None:
        """Declare ``Thing``, with what it follows and what follows it."""
        self._has = {*capabilities}
        assert self._has <= CAPABILITIES.keys()
        self.hooked: list[int] = []
        self.models: list[Any] = []
        members: dict[str, Any] = {"__ttl__": Stored(LONG) if "stored" in self._has else HOUR}
        if "follows" in self._has:
            root = document("Root", __ttl__=HOUR, __ttl_purge__="sweeper")
            self.models.append(root)
            members |= {"__ttl__": Follows(root, on={"root_id": "id"}), "fields": ["root_id"]}
        elif "database_sweep" not in self._has:
            members["__ttl_purge__"] = "sweeper"
        if "database_sweep" in self._has:
            members["__ttl_purge__"] = "native"
        if "archive" in self._has:
            members["__ttl_archive__"] = Archive("old_things")
        if "hooks" in self._has:
            members["__ttl_on_purged__"] = lambda purged: self.hooked.extend(
                key for (key,) in purged.keys
            )
        self.thing = document("Thing", **members)
        self.models.append(self.thing)
        if "followed" in self._has:
            follows = Follows(self.thing, on={"thing_id": "id"})
            self.models.append(document("Item", __ttl__=follows, fields=["thing_id"]))

    async def use(self, world: World) -> None:
        """Write a document that expires, and one that doesn't; read and sweep."""
        await ensure_indexes(*self.models)
        if "view" in self._has:
            await ensure_indexes(self.thing, view=True)
        if self._has == {"follows", "stored"}:
            await set_policy(self.thing, HOUR, by="test")
        for key in (EXPIRED, LIVE):
            values = {}
            if "follows" in self._has:
                await self.models[0](id=key).insert()
                values["root_id"] = key
            await self.thing(id=key, **values).insert()
            if "followed" in self._has:
                await self.models[-1](id=10 * key, thing_id=key).insert()
        aged = "roots" if "follows" in self._has else "things"
        world.raw[aged].update_one({"_id": EXPIRED}, {"$set": {"_ts": LONG_AGO}})
        if "stored" in self._has:
            assert await self.read(world) == [EXPIRED, LIVE]
            await set_policy(self.thing, HOUR, by="test")
        assert await self.read(world) == [LIVE]
        report = await AsyncSweeper(world.database, self.models, lease=False).run_once()
        report.raise_for_failures()
        self.check_swept(world)
        assert await self.read(world) == [LIVE]

    async def read(self, world: World) -> list[int]:
        """The keys of the live documents, the same by all ways."""
        keys = [found.id for found in await self.thing.find().sort("_id").to_list()]
        if "followed" in self._has:
            items = await self.models[-1].find().sort("_id").to_list()
            assert [item.id for item in items] == [10 * key for key in keys]
        if "view" in self._has:
            assert stored(world, "things_live") == keys
        return keys

    def check_swept(self, world: World) -> None:
        """See that the expired document is gone as each capability says."""
        indexes = [*world.raw["things"].list_indexes()]
        is_native = any("expireAfterSeconds" in index for index in indexes)
        assert is_native == ("database_sweep" in self._has)
        assert stored(world, "things") == [LIVE]
        if "follows" in self._has:
            assert stored(world, "roots") == [LIVE]
        if "followed" in self._has:
            assert stored(world, "items") == [10 * LIVE]
        assert stored(world, "old_things") == [EXPIRED] * ("archive" in self._has)
        assert self.hooked == [EXPIRED] * ("hooks" in self._has)


def stored(world: World, name: str) -> list[int]:
    return [found["_id"] for found in world.raw[name].find().sort("_id")]


async def try_pair(line: Combination, url: str) -> None:
    family = Family(line.first, line.second)
    async with opened(url, family.models) as world:
        await family.use(world)


@pairs("beanie", "mongodb")
async def test_each_pair(mongodb_url: str, line: Combination) -> None:
    if line.outcome != "rejected":
        await try_pair(line, mongodb_url)
        return
    with pytest.raises(TTLConfigurationError, match=pattern(line)):
        await try_pair(line, mongodb_url)


async def test_an_archive_that_is_declared_after_a_follower_is_rejected_before_any_is_lost(
    mongodb_url: str,
) -> None:
    family = Family("follows")
    root, thing = family.models
    async with opened(mongodb_url, family.models) as world:
        await ensure_indexes(*family.models)
        await root(id=EXPIRED).insert()
        await thing(id=EXPIRED, root_id=EXPIRED).insert()
        world.raw["roots"].update_one({"_id": EXPIRED}, {"$set": {"_ts": LONG_AGO}})
        thing.__ttl_archive__ = Archive("old_things")
        report = await AsyncSweeper(world.database, [root], lease=False).run_once()
        with pytest.raises(SweepError, match="leave __ttl_archive__ out"):
            report.raise_for_failures()
        assert stored(world, "things") == stored(world, "roots") == [EXPIRED]


@pytest.mark.parametrize("capability", ["partitions", "orm"])
def test_what_only_tables_have_is_rejected(capability: str) -> None:
    assert "beanie" not in CAPABILITIES[capability].declared
    attribute = CAPABILITIES[capability].attribute
    value = {"partitions": Partitions("1 day"), "orm": "orm"}[capability]
    with pytest.raises(TTLConfigurationError, match=rf"Thing\.{attribute} = .*: "):
        document("Thing", __ttl__=HOUR, **{attribute: value})


def test_what_only_tables_have_is_rejected_in_settings_too() -> None:
    settings = type("Settings", (), {"ttl_partition": Partitions("1 day")})
    with pytest.raises(TTLConfigurationError, match="adapter partitions tables; leave"):
        document("Thing", __ttl__=HOUR, Settings=settings)

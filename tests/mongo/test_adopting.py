"""Collections that exist already: their own fields, classes of others, limits to renewing."""

from __future__ import annotations

from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta, timezone
from itertools import product
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document, init_beanie
from pymongo import InsertOne, UpdateOne

from tests.mongo.models import collection_of
from tests.mongo.scratch import scratch
from tests.mongo.sweeping import DAY, HOUR, Commands, Swept
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie import (
    Archive,
    ExpiredError,
    TTLMixin,
    disable,
    enable,
    ensure_indexes,
    find_strays,
    touch,
    ttl_database,
)
from ttl_odm.core.lifetime import grants

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    Raw = dict[str, Any]

UNITS = {"s": 1, "ms": 1_000, "us": 1_000_000}


def declared(policy: Any, **fields: Any) -> Any:
    """Declare a class on the collection ``documents``, with fields of its own."""

    class Base(Document):
        id: int  # type: ignore[assignment]
        score: int = 0

        class Settings:
            name = "documents"

    body: Raw = {"__module__": __name__, "__qualname__": "Adopted", "__annotations__": fields}
    body |= {**dict.fromkeys(fields), "__ttl__": policy, "__ttl_purge__": "sweeper"}
    return type(Base)("Adopted", (TTLMixin, Base), body)


@asynccontextmanager
async def opened(url: str, model: Any, **options: Any) -> AsyncIterator[Swept]:
    """Give a class an empty collection."""
    async with scratch(url, **options) as place:
        database = ttl_database(place.ours.database)
        await init_beanie(database=database, document_models=[model])
        yield Swept(database, model, place.database["documents"], Commands())


def kept(place: Swept, unit: str, seconds_ago: float) -> Any:
    """Return an instant in the past as a field of a unit has it."""
    instant = place.ago(seconds_ago)
    if unit == "iso":
        return instant.isoformat().replace("+00:00", "Z")
    return int(instant.timestamp() * UNITS[unit])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "iso"])
async def test_fields_of_numbers_and_strings_keep_the_contract(mongodb_url: str, unit: str) -> None:
    policy = TTL(HOUR, last_modified="changed", override="lives", unit=unit)
    model = declared(policy, changed=Any, lives=Any)
    async with opened(mongodb_url, model) as place:
        collection = collection_of(model)
        old = kept(place, unit, 2 * HOUR)

        def dead(*keys: int, **fields: Any) -> None:
            place.raw.insert_many([{"_id": key, "changed": old, **fields} for key in keys])

        dead(1, 2, 3, 4, 5)
        dead(6, lives=3 * HOUR)
        assert [each.id for each in await model.find().to_list()] == [6]
        assert await model.get(1) is None
        assert await model.find().count() == 1
        assert await collection.distinct("_id") == [6]

        # Every way of writing stamps, in the field's unit, and takes the keys of the dead.
        began = kept(place, unit, 1)
        first = await model(id=1).insert()
        await model(id=2).save()
        await model.insert_many([model(id=3)])
        await collection.bulk_write(
            [InsertOne({"_id": 4}), UpdateOne({"_id": 5}, {"$inc": {"score": 1}}, upsert=True)]
        )
        await model.find_one({"_id": 6}).update({"$inc": {"score": 1}})
        await collection.update_one({"_id": 6}, [{"$set": {"score": 7}}])
        await collection.replace_one({"_id": 4}, {"score": 9})
        await first.set({"score": 3})
        stored = {each["_id"]: each for each in place.raw.find()}
        assert stored.keys() == {1, 2, 3, 4, 5, 6}
        for each in stored.values():
            assert isinstance(each["changed"], type(began))
            assert began <= each["changed"] <= kept(place, unit, -2), each
        assert place.raw.count_documents({"_exp": {"$exists": True}}) == 0

        assert first.time_left is not None
        assert timedelta(minutes=59) < first.time_left <= timedelta(seconds=HOUR + 1)
        await first.expire_in(0)
        with pytest.raises(ExpiredError):
            await first.set({"score": 1})
        second = await model.get(2)
        soon = place.now() + timedelta(seconds=1000)
        await second.expire_at(soon)
        assert timedelta(0) <= second.expires_at - soon <= timedelta(seconds=1)

        dead(10, 11, lives=-1)
        dead(12, 13)
        assert (await place.sweep()).deleted == 3
        assert place.keys() == {2, 3, 4, 5, 6, 10, 11}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "iso"])
async def test_instants_of_expiry_may_be_numbers_or_strings(mongodb_url: str, unit: str) -> None:
    model = declared(ExpireAt("ends", unit=unit, null="expired"), ends=Any)
    async with opened(mongodb_url, model) as place:
        ends = [
            kept(place, unit, 60),
            kept(place, unit, -60),
            None,
            "never",
            [kept(place, unit, 60)],
        ]
        place.raw.insert_many([{"_id": key, "ends": each} for key, each in enumerate(ends)])
        assert [each.id for each in await model.find().to_list()] == [1, 3]
        assert [each.id for each in await model.find().limit(5).to_list()] == [1, 3]
        (stray,) = (await find_strays(model)).found
        assert stray.examples == (3,)
        await ensure_indexes(model)
        assert (await place.sweep()).deleted == 3
        assert place.keys() == {1, 3}


async def test_a_date_without_a_time_lasts_until_it_ends(mongodb_url: str) -> None:
    model = declared(ExpireAt("ends"), ends=date | None)
    async with opened(mongodb_url, model) as place:
        today = place.now().date()
        for key, ends in enumerate([today - timedelta(days=1), today, None]):
            await model(id=key, ends=ends).insert()
        # (At midnight there may be one less.)
        if place.now().date() == today:
            found = await model.find().to_list()
            assert [each.id for each in found] == [1, 2]
            midnight = datetime(today.year, today.month, today.day, tzinfo=timezone.utc)
            assert found[0].expires_at == midnight + timedelta(days=1)
            await ensure_indexes(model)
            assert (await place.sweep()).deleted == 1


@pytest.mark.parametrize("policy", [TTL(60, last_modified="day"), ExpireAt("day", null="expired")])
async def test_a_date_without_a_time_cannot_be_every_policys_field(policy: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="'day' is a date without a time"):
        declared(policy, day=date | None)


async def test_a_default_may_be_told_by_a_function_at_each_operation(mongodb_url: str) -> None:
    told: dict[str, Any] = {"default": HOUR}
    model = declared(TTL(lambda: told["default"]))
    async with opened(mongodb_url, model) as place:
        await ensure_indexes(model)
        place.add([1], age=60)
        place.add([2], age=60, ttl=-1)
        document = await model.get(1)
        assert document.time_left > timedelta(minutes=58)
        for default, keys in ((30, [2]), (-1, [1, 2]), (None, [1, 2]), (HOUR, [1, 2]), (60, [2])):
            told["default"] = default
            assert [each.id for each in await model.find().to_list()] == keys, default
            assert await model.find().count() == len(keys)
        assert (await place.sweep()).deleted == 1
        told["default"] = "soon"
        with pytest.raises(TTLConfigurationError.__base__, match="soon"):
            await model.find().to_list()


@pytest.mark.parametrize("indexed", [True, False])
async def test_documents_of_several_kinds_have_defaults_of_their_own(
    mongodb_url: str,
    indexed: bool,  # noqa: FBT001
) -> None:
    policy = TTL({"cart": 60, "order": None, "draft": lambda: 600}, by="kind", other=HOUR)
    model = declared(policy, kind=str | None)
    async with opened(mongodb_url, model) as place:
        if indexed:
            await ensure_indexes(model)
        for number, kind in enumerate(["cart", "order", "draft", None]):
            place.add([number], age=120, kind=kind)
            place.add([number + 10], age=1200, kind=kind)
            place.add([number + 20], age=120, kind=kind, ttl=30)
            place.add([number + 30], age=120, kind=kind, ttl=HOUR)
        live = [1, 2, 3, 11, 13, 21, 30, 31, 32, 33]
        for query in (model.find(), model.find().limit(100)):
            assert sorted([each.id for each in await query.to_list()]) == live
        assert (await model.get(30)).expires_at is not None
        assert (await model.get(31)).expires_at is None
        draft = await model.get(2)
        assert draft.expires_at == draft.last_modified + timedelta(seconds=600)
        report = await place.sweep()
        assert report.deleted == 6
        assert not report.problems
        assert sorted(place.keys()) == live
        await place.sweep()
        assert sorted(place.keys()) == live


@pytest.mark.parametrize(
    "policy",
    [
        TTL(60, unit="s"),
        TTL(lambda: 60),
        TTL({"cart": 60}, by="kind"),
        ExpireAt("ends", unit="iso"),
        ExpireAfter("ends", 60, unit="ms"),
    ],
    ids=repr,
)
def test_what_mongodb_cannot_delete_by_itself_needs_the_sweeper(policy: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="__ttl_purge__ = 'sweeper'"):

        class Native(TTLMixin, Document):
            __ttl__: ClassVar[Any] = policy
            id: int  # type: ignore[assignment]


# Classes of others


def token(**config: Any) -> Any:
    """Declare a class as a package of somebody else's does."""

    class Token(Document):
        model_config = config  # type: ignore[assignment]
        id: int  # type: ignore[assignment]
        expires_at: datetime | None = None
        issued: int = 0

        class Settings:
            name = "documents"

    return Token


@asynccontextmanager
async def tokens(
    url: str, model: Any, policy: Any, *, late: bool = False, gate: bool = True, **options: Any
) -> AsyncIterator[Swept]:
    """Enable a class before or after it gets an empty collection."""
    async with scratch(url) as place:
        if not late:
            enable(model, policy, **options)
        database = place.ours.database
        database = ttl_database(database) if gate else database
        await init_beanie(database=database, document_models=[model])
        if late:
            enable(model, policy, **options)
        yield Swept(database, model, place.database["documents"], Commands())


@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize("gate", [True, False])
async def test_a_class_of_others_gets_a_lifetime_and_loses_it_again(
    mongodb_url: str,
    late: bool,  # noqa: FBT001
    gate: bool,  # noqa: FBT001
) -> None:
    model = token()
    policy = ExpireAt("expires_at")
    async with tokens(mongodb_url, model, policy, late=late, gate=gate) as place:
        past, future = place.ago(60), place.ago(-60)
        place.raw.insert_many(
            [{"_id": 1, "expires_at": past}, {"_id": 2, "expires_at": future}, {"_id": 3}]
        )
        assert [each.id for each in await model.find().to_list()] == [2, 3]
        assert await model.find(include_expired=True).to_list() != []
        assert await model.get(1) is None
        await model(id=1, expires_at=future).insert()
        assert await model.find().count() == 3
        place.raw.update_one({"_id": 2}, {"$set": {"expires_at": past}})
        (report,) = await ensure_indexes(model)
        assert report.created == ("__ttl_date",)
        assert (await place.sweep()).deleted == 1

        enable(model, ExpireAt("expires_at"), purge="sweeper")
        place.raw.insert_one({"_id": 4, "expires_at": past})
        assert await model.get(4) is None
        disable(model)
        assert (await model.get(4)).id == 4
        with pytest.raises(TTLConfigurationError, match="was not enabled"):
            disable(model)
        (report,) = await ensure_indexes(model)
        assert report.removed == ("__ttl_date",)


async def test_a_class_of_others_may_count_from_a_last_modification(mongodb_url: str) -> None:
    model = token()
    told: list[Any] = []
    options = {
        "purge": "sweeper",
        "archive": Archive("old"),
        "on_purged": told.append,
        "sweep": "scan",
    }
    async with tokens(mongodb_url, model, HOUR, **options) as place:
        await model(id=1).insert()
        place.add([2, 3], age=DAY)
        document = await model.get(1)
        assert await touch(document) is True
        assert await touch(document, at_most_every=60) is False
        await model(id=3).insert()
        assert place.keys("old") == {3}
        assert (await place.sweep()).archived == 1
        assert [each.reason for each in told] == ["displaced", "expired"]
        gone = await model.get(3)
        place.raw.update_one({"_id": 3}, {"$set": {"_ts": place.ago(DAY)}})
        with pytest.raises(ExpiredError):
            await touch(gone)
    disable(model)


async def test_a_declared_policy_counts_again_after_disable(mongodb_url: str) -> None:
    model = declared(TTL(60))
    async with opened(mongodb_url, model) as place:
        enable(model, HOUR)
        place.add([1], age=600)
        assert await model.get(1) is not None
        disable(model)
        assert await model.get(1) is None


async def test_documents_of_an_enabled_base_share_its_lifetime(mongodb_url: str) -> None:
    base = token()

    class Other(base):  # type: ignore[misc, valid-type]
        class Settings:
            name = "others"

    async with scratch(mongodb_url) as place:
        await init_beanie(database=place.ours.database, document_models=[base, Other])
        enable(base, ExpireAt("expires_at"))
        past = datetime(2020, 1, 1, tzinfo=timezone.utc)
        for name in ("documents", "others"):
            place.database[name].insert_one({"_id": 1, "expires_at": past})
        assert await base.get(1) is None
        assert await Other.get(1) is None
        disable(base)
        assert await Other.get(1) is not None


@pytest.mark.parametrize(
    ("policy", "message"),
    [
        (ExpireAt("gone_at"), "no field 'gone_at'. It has '_id', 'expires_at', 'issued'"),
        (TTL(60), "forbids undeclared fields"),
        (ExpireAt("issued", unit="s"), "purge='sweeper'"),
        (ExpireAt("_id"), "can't have a TTL index"),
    ],
    ids=repr,
)
async def test_what_cannot_be_enabled_is_refused_and_changes_nothing(
    mongodb_url: str, policy: Any, message: str
) -> None:
    model = token(extra="forbid")
    async with scratch(mongodb_url) as place:
        await init_beanie(database=place.ours.database, document_models=[model])
        with pytest.raises(TTLConfigurationError, match=message):
            enable(model, policy)
        assert not hasattr(model, "__ttl__")
        await model(id=1).insert()
        assert (await model.get(1)).id == 1


def test_only_document_classes_can_be_enabled() -> None:
    with pytest.raises(TTLConfigurationError, match="pass a Beanie document class"):
        enable(dict, 60)


# Limits to renewing


async def test_a_touch_can_be_left_out_when_the_last_one_is_young(mongodb_url: str) -> None:
    model = declared(TTL(HOUR))
    commands = Commands()
    async with opened(mongodb_url, model, event_listeners=[commands]) as place:
        document = await model(id=1).insert()
        commands.sent.clear()
        assert await document.touch(at_most_every=60) is False
        assert commands.of("findAndModify") == []

        place.raw.update_one({"_id": 1}, {"$set": {"_ts": place.ago(120)}})
        other = await model.get(1)
        assert await other.touch(at_most_every=timedelta(minutes=10)) is False
        assert await other.touch(at_most_every=60) is True
        # Memory is old here, and the server knows better.
        document.last_modified = place.ago(120)
        assert await document.touch(at_most_every=60) is False
        assert document.last_modified == other.last_modified

        place.raw.update_one({"_id": 1}, {"$set": {"_ts": place.ago(DAY)}})
        for each in (document, await model.find_one({"_id": 1}, include_expired=True)):
            each.last_modified = place.ago(DAY)
            with pytest.raises(ExpiredError):
                await each.touch(at_most_every=60)
        with pytest.raises(TTLConfigurationError, match="at_most_every"):
            await document.touch(at_most_every=0)


@pytest.mark.parametrize("default", [HOUR, -1, None])
@pytest.mark.parametrize("own", [None, 600, -1])
async def test_a_touch_may_depend_on_what_it_would_do(
    mongodb_url: str, own: int | None, default: int | None
) -> None:
    model = declared(TTL(default))
    conditions: list[Any] = ["longer", "shorter", "has_ttl", "no_ttl"]
    async with opened(mongodb_url, model) as place:
        for key, (only_if, age) in enumerate(product(conditions, [60, -60])):
            # A last modification that is yet to come is what expire_at() may store.
            place.add([key], age=age, **({} if own is None else {"ttl": own}))
            document = await model.get(key)
            before, present = document.last_modified, document.expires_at
            new = None if present is None else present + timedelta(seconds=age)
            touched = await document.touch(only_if=only_if)
            assert touched is grants(only_if, present, new), (only_if, age)
            assert (document.last_modified != before) is touched
            stored = place.raw.find_one({"_id": key}) or {}
            assert stored["_ts"] == document.last_modified


async def test_what_cannot_be_touched_is_refused(mongodb_url: str) -> None:
    model = declared(ExpireAfter("made", 60, unit="s"), made=int | None)
    async with opened(mongodb_url, model):
        document = await model(id=1).insert()
        with pytest.raises(TTLConfigurationError, match="can't be touched"):
            await document.touch()
    model = declared(TTL(60))
    async with opened(mongodb_url, model):
        document = await model(id=1).insert()
        with pytest.raises(TTLConfigurationError, match="only_if"):
            await document.touch(only_if="nicer")

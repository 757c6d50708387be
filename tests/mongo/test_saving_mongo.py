"""`save()`: it brings no expired document back, and inserts what was never stored.

By SQL's `UPDATE` that is a matter of course. Beanie's `save()` is an upsert by the key, so that a
document in memory has to know whether it was stored, and by which values the stored one ended.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import copy
import pickle
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Annotated, Any, Optional

import pytest
from beanie import BulkWriter, Document, Indexed, Link, WriteRules, init_beanie
from beanie.exceptions import RevisionIdWasChanged
from beanie.odm.documents import DocumentWithSoftDelete
from beanie.odm.utils.parsing import parse_obj
from pydantic import BaseModel

from tests.mongo.following import transaction
from tests.mongo.models import opened
from ttl_odm import TTL, ExpireAfter, ExpireAt, Follows, Stored
from ttl_odm.beanie import ExpiredError, TTLMixin, enable, ensure_indexes

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World
    from ttl_odm.testing import TTLClock

TWO_DAYS = timedelta(days=2)
NOW = datetime.now(timezone.utc)
LATER, FAR = NOW + timedelta(days=1), NOW + timedelta(days=365)


class Basket(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "baskets"


class Span(BaseModel):
    ends: datetime


class Aging(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: str = ""
    code: Annotated[Optional[str], Indexed(unique=True, sparse=True)] = None  # noqa: UP045

    class Settings:
        name = "aging"
        keep_nulls = False


class Tracked(TTLMixin, Document):
    __ttl__ = 3600
    id: int
    name: str = ""

    class Settings:
        name = "tracked"
        use_state_management = True
        use_revision = True


class Changing(TTLMixin, Document):
    __ttl__ = Stored(3600)
    id: int
    name: str = ""

    class Settings:
        name = "changing"


class Adopted(TTLMixin, Document):
    __ttl__ = TTL(3600, last_modified="changed", override="life")
    id: int
    name: str = ""
    changed: Optional[datetime] = None  # noqa: UP045
    life: Optional[int] = None  # noqa: UP045

    class Settings:
        name = "adopted"


class Dated(TTLMixin, Document):
    __ttl__ = ExpireAt("ends")
    id: int
    name: str = ""
    ends: Optional[datetime] = LATER  # noqa: UP045

    class Settings:
        name = "dated"


class Spanned(TTLMixin, Document):
    __ttl__ = ExpireAt("span.ends")
    id: int
    name: str = ""
    span: Span = Span(ends=LATER)

    class Settings:
        name = "spanned"


class Enabled(Document):
    """Gets its lifetime from `enable`."""

    id: int
    name: str = ""
    made: Optional[datetime] = None  # noqa: UP045

    class Settings:
        name = "enabled"


enable(Enabled, ExpireAfter("made", 3600))


class Soft(TTLMixin, DocumentWithSoftDelete):
    __ttl__ = 3600
    id: int
    name: str = ""

    class Settings:
        name = "soft"


class Following(TTLMixin, Document):
    __ttl__ = Follows("basket")
    id: int
    name: str = ""
    basket: Link[Basket]

    class Settings:
        name = "following"


KINDS: list[Any] = [
    Aging,
    Tracked,
    Changing,
    Adopted,
    Dated,
    Spanned,
    Enabled,
    Soft,
    Following,
]


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, [Basket, *KINDS]) as made:
        await ensure_indexes(Changing)
        await Basket(id=1).insert()
        yield made


def new(model: Any, **fields: Any) -> Any:
    """Make a document that was never stored, with the key 1, and a life of a day at most."""
    own: dict[str, Any] = {"id": 1, "name": "old"}
    if model is Enabled:
        own["made"] = NOW
    if model is Following:
        own["basket"] = Basket.link_from_id(1)
    return model(**{**own, **fields})


def renew(model: Any, document: Any) -> Any:
    """Change in memory what says when a document expires, as to renew a session."""
    if model is Dated:
        document.ends = FAR
    elif model is Spanned:
        document.span.ends = FAR
    elif model is Enabled:
        document.made = FAR
    elif model is Adopted:
        document.changed, document.life = FAR, -1
    elif model is Following:
        document.basket = Basket.link_from_id(2)
    else:
        document.ttl = -1
    return document


async def inserted(world: World, model: Any, document: Any) -> Any:
    return await document.insert()


async def saved(world: World, model: Any, document: Any) -> Any:
    return await document.save()


async def inserted_with_others(world: World, model: Any, document: Any) -> Any:
    await model.insert_many([document])
    return document


async def got(world: World, model: Any, document: Any) -> Any:
    await document.insert()
    return await model.get(1)


async def listed(world: World, model: Any, document: Any) -> Any:
    await document.insert()
    return (await model.find().to_list())[0]


async def pickled(world: World, model: Any, document: Any) -> Any:
    await document.insert()
    return pickle.loads(pickle.dumps(await model.get(1)))  # noqa: S301 (its own)


async def copied(world: World, model: Any, document: Any) -> Any:
    await document.insert()
    return copy.deepcopy((await model.get(1)).model_copy())


async def parsed(world: World, model: Any, document: Any) -> Any:
    await document.insert()
    return parse_obj(model, world.of(model).find_one())


WAYS: list[Any] = [
    inserted,
    saved,
    inserted_with_others,
    got,
    listed,
    pickled,
    copied,
    parsed,
]


def sweep(world: World) -> None:
    """Delete everything, as MongoDB or a sweeper does with what has expired."""
    for name in world.raw.list_collection_names():
        if name != "ttl_odm_policies":
            world.raw[name].delete_many({})


def ids(world: World, model: Any) -> list[int]:
    return sorted(names(world, model))


def names(world: World, model: Any) -> dict[int, str]:
    return {each["_id"]: each.get("name", "") for each in world.of(model).find()}


async def other_basket(ttl_clock: TTLClock) -> None:
    """Advance the clock past the end of everything, but for a basket."""
    ttl_clock.advance(TWO_DAYS)
    await Basket(id=2).insert()


@pytest.mark.slow
@pytest.mark.parametrize("model", KINDS)
async def test_save_brings_no_expired_document_back(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    for way in WAYS:
        document = await way(world, model, new(model))
        with ttl_clock.advance(TWO_DAYS):
            await Basket(id=2).insert()
            document.name = "new"
            before = list(world.of(model).find())
            with pytest.raises(ExpiredError, match=f"{model.__name__} 1 has expired"):
                await document.save()
            renew(model, document)
            with pytest.raises(ExpiredError):
                await document.save()
            assert list(world.of(model).find()) == before, way
            sweep(world)
            await Basket(id=2).insert()
            with pytest.raises(ExpiredError):
                await document.save()
            assert ids(world, model) == [], way
        sweep(world)
        await Basket(id=1).insert()


@pytest.mark.parametrize("model", KINDS)
async def test_save_inserts_what_was_never_stored(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    """Also in the place of an expired document, and a copy under another key."""
    stored = await new(model).insert()
    await stored.model_copy(update={"id": 7}).save()
    assert ids(world, model) == [1, 7]
    await other_basket(ttl_clock)

    await renew(model, stored.model_copy(update={"id": 7, "name": "a copy"})).save()
    await renew(model, new(model, name="new")).save()
    await renew(model, model.model_validate(new(model, id=8).model_dump())).save()

    assert names(world, model) == {1: "new", 7: "a copy", 8: "old"}


@pytest.mark.parametrize("model", KINDS)
async def test_save_inserts_what_was_deleted_as_beanie_does(world: World, model: Any) -> None:
    for way in (inserted, got):
        document = await way(world, model, new(model))
        world.of(model).delete_one({"_id": 1})  # by another program
        await document.save()
        assert ids(world, model) == [1]
        if model is not Soft:  # whose documents stay
            await document.delete()
            assert ids(world, model) == []
            await document.save()
        assert ids(world, model) == [1]
        world.of(model).delete_many({})


@pytest.mark.parametrize("model", [Aging, Dated, Following])
async def test_a_document_that_was_deleted_in_time_is_never_an_expired_one(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    document = await new(model).insert()
    await document.delete()
    await other_basket(ttl_clock)
    await renew(model, document).save()
    assert ids(world, model) == [1]


async def test_what_was_read_lazily_counts_as_it_was_read(
    world: World, ttl_clock: TTLClock
) -> None:
    await new(Dated).insert()
    await new(Aging).insert()
    lazy = [(await model.find(lazy_parse=True).to_list())[0] for model in (Dated, Aging)]
    ttl_clock.advance(TWO_DAYS)
    sweep(world)
    for document in lazy:
        with pytest.raises(ExpiredError):
            await renew(type(document), document).save()
    assert ids(world, Dated) == ids(world, Aging) == []


async def test_a_stamp_says_that_a_document_was_stored(world: World, ttl_clock: TTLClock) -> None:
    event = await new(Aging).insert()
    found = world.of(Aging).find_one()
    text = event.model_dump_json(by_alias=True)
    ttl_clock.advance(TWO_DAYS)
    sweep(world)
    for known in (Aging.model_validate_json(text), Aging.model_validate(found)):
        with pytest.raises(ExpiredError):
            await known.save()
    await Aging.model_validate_json(text.replace("_ts", "ts")).save()
    assert ids(world, Aging) == [1]


@pytest.mark.slow
@pytest.mark.parametrize("model", [Aging, Dated, Enabled, Following])
async def test_linked_documents_that_have_expired_are_not_stored_anew(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    class Shelf(Document):
        id: int
        first: Link[model]
        more: list[Link[model]]

        class Settings:
            name = "shelves"

    await init_beanie(database=world.database, document_models=[Shelf])
    for number in (1, 2):
        await new(model, id=number).insert()
    links = [model.link_from_id(number) for number in (1, 2)]
    await Shelf(id=1, first=links[0], more=links).insert()
    shelf = await Shelf.get(1, fetch_links=True)
    assert shelf is not None
    await shelf.save(link_rule=WriteRules.WRITE)
    await other_basket(ttl_clock)
    before = list(world.of(model).find())
    with pytest.raises(ExpiredError):
        await shelf.save(link_rule=WriteRules.WRITE)
    with pytest.raises(ExpiredError):
        await Shelf(id=2, first=links[0], more=[shelf.first]).insert(link_rule=WriteRules.WRITE)
    assert list(world.of(model).find()) == before
    assert ids(world, Shelf) == [1]
    fresh = [renew(model, new(model, id=number, name="new")) for number in (1, 2)]
    await Shelf(id=3, first=fresh[0], more=fresh[1:]).save(link_rule=WriteRules.WRITE)
    assert names(world, model) == {1: "new", 2: "new"}


@pytest.mark.parametrize("model", KINDS)
async def test_a_bulk_writers_save_of_an_expired_document_does_nothing(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    document = await new(model).insert()
    deleted = await new(model, id=2).insert()
    await other_basket(ttl_clock)
    before = list(world.of(model).find({"_id": 1}))
    world.of(model).delete_one({"_id": 2})
    live = await renew(model, new(model, id=3)).insert()
    live.name = document.name = "new"
    async with BulkWriter() as writer:
        for one in (document, live, renew(model, deleted), renew(model, new(model, id=4))):
            await one.save(bulk_writer=writer)
    assert list(world.of(model).find({"_id": 1})) == before
    assert names(world, model).keys() == {1, 3, 4}
    assert names(world, model)[3] == "new"


@pytest.mark.parametrize("model", [Aging, Dated])
async def test_what_a_bulk_writer_has_inserted_was_stored(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    await new(model).insert()
    ttl_clock.advance(TWO_DAYS)
    document = new(model, name="new")
    if model is Dated:
        document.ends = NOW + 2 * TWO_DAYS
    for _ in range(2):  # the first bulk writer comes to nothing
        writer = BulkWriter()
        await model.insert_one(document, bulk_writer=writer)
    await document.save()
    assert names(world, model) == {1: "new"}
    ttl_clock.advance(TWO_DAYS)
    with pytest.raises(ExpiredError):
        await document.save()


@pytest.mark.parametrize("write", ["insert", "save"])
@pytest.mark.parametrize("model", KINDS)
async def test_a_transaction_that_is_tried_again_saves_in_the_place_of_an_expired_document(
    world: World, ttl_clock: TTLClock, model: Any, write: str
) -> None:
    await new(model).insert()
    await other_basket(ttl_clock)
    document = renew(model, new(model, name=write))

    async def fail() -> None:
        async with transaction(world) as session:
            await getattr(document, write)(session=session)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    assert names(world, model) == {1: "old"}
    async with transaction(world) as session:
        await document.save(session=session)
    assert names(world, model) == {1: write}


@pytest.mark.parametrize("model", KINDS)
async def test_what_a_transaction_has_stored_is_not_stored_anew(
    world: World, ttl_clock: TTLClock, model: Any
) -> None:
    async with transaction(world) as session:
        await (document := new(model)).save(session=session)
        document.name = "newer"
        await document.save(session=session)
    await other_basket(ttl_clock)
    before = list(world.of(model).find())
    with pytest.raises(ExpiredError):
        await renew(model, document).save()
    with pytest.raises(ExpiredError):
        async with transaction(world) as session:
            await document.save(session=session)
    assert list(world.of(model).find()) == before
    sweep(world)
    await Basket(id=2).insert()
    with pytest.raises(ExpiredError):
        await document.save()
    assert ids(world, model) == []


async def test_a_transaction_goes_on_after_the_error(world: World, ttl_clock: TTLClock) -> None:
    document = await new(Aging, code="a").insert()
    ttl_clock.advance(TWO_DAYS)
    async with transaction(world) as session:
        with pytest.raises(ExpiredError):
            await document.save(session=session)
        await new(Aging, id=2, code="a").save(session=session)
    assert ids(world, Aging) == [2]


async def test_a_revision_that_has_changed_is_no_expiry(world: World) -> None:
    await new(Tracked).insert()
    one, other = await Tracked.get(1), await Tracked.get(1)
    assert one is not None
    assert other is not None
    one.name = "one"
    await one.save()
    other.name = "other"
    with pytest.raises(RevisionIdWasChanged):
        await other.save()
    assert names(world, Tracked) == {1: "one"}


@pytest.mark.parametrize("model", [Aging, Adopted, Dated, Spanned, Enabled, Soft])
async def test_what_a_document_remembers_does_not_show(world: World, model: Any) -> None:
    await new(model).insert()
    found = await model.get(1)
    same = model.model_validate(found.model_dump())
    assert found == same
    assert same == found
    assert repr(found) == repr(same)
    assert found.model_dump() == same.model_dump()
    assert found.model_dump_json() == same.model_dump_json()
    assert dict(found) == dict(same)
    await found.save()
    assert "copy" not in str(world.of(model).find_one())


async def test_a_class_may_have_a_post_init_of_its_own(world: World) -> None:
    class Base(Document):
        name: str = ""
        _length: int = 0

        def model_post_init(self, context: object, /) -> None:
            super().model_post_init(context)
            self._length = len(self.name)

    class Kept(TTLMixin, Base):
        __ttl__ = 60

    await init_beanie(database=world.database, document_models=[Kept])
    kept = await Kept(name="four").insert()
    assert kept._length == 4
    found = await Kept.get(kept.id)
    assert found is not None
    assert found._length == 4

"""Classes that declare a lifetime which nothing would enforce, or share a follower's collection.

Both are rejected when Beanie gives the class its collection.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from beanie import Document, Link, UnionDoc, init_beanie

from tests.mongo.scratch import scratch
from ttl_odm import (
    ExpireAfter,
    ExpireAt,
    Follows,
    Stored,
    TTLConfigurationError,
)
from ttl_odm.beanie import TTLMixin, disable, enable, ensure_indexes, ttl_database
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.scratch import Scratch


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Scratch]:
    async with scratch(mongodb_url) as made:
        yield made


async def begun(place: Scratch, *models: Any, gated: bool = True, **options: Any) -> None:
    database = place.ours.database
    await init_beanie(
        database=ttl_database(database) if gated else database,
        document_models=list(models),
        **options,
    )


class Cart(TTLMixin, Document):
    __ttl__ = 3600
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "carts"


# A lifetime without the mixin


def declaring(ttl: Any, *, in_settings: bool = False) -> Any:
    class Event(Document):
        cart_id: int = 0
        ends: datetime | None = None

        class Settings:
            name = "events"

    if in_settings:
        Event.Settings.ttl = ttl  # type: ignore[attr-defined]
    else:
        Event.__ttl__ = ttl  # type: ignore[attr-defined]
    return Event


@pytest.mark.parametrize("skip_indexes", [True, False])
@pytest.mark.parametrize(
    "ttl",
    [
        3600,
        -1,
        None,
        timedelta(hours=1),
        Follows(Cart, on={"cart_id": "id"}),
        Stored(3600),
        ExpireAt("ends"),
        ExpireAfter("ends", 60),
    ],
    ids=repr,
)
async def test_a_lifetime_without_the_mixin_is_rejected_by_init_beanie(
    place: Scratch,
    ttl: Any,
    *,
    skip_indexes: bool,
) -> None:
    for model in (declaring(ttl), declaring(ttl, in_settings=True)):
        message = r"^Event declares .*, but has no TTLMixin.*class Event\(TTLMixin, .*enable\(Event"
        with pytest.raises(TTLConfigurationError, match=message):
            await begun(place, Cart, model, skip_indexes=skip_indexes)


async def test_without_a_gated_database_it_is_rejected_when_it_is_used(place: Scratch) -> None:
    model = declaring(3600)
    await begun(place, model, gated=False)
    with pytest.raises(TTLConfigurationError, match="Event declares 3600, but has no TTLMixin"):
        await ensure_indexes(model)
    with pytest.raises(TTLConfigurationError, match="Event declares 3600, but has no TTLMixin"):
        AsyncSweeper(place.ours.database, [model])


async def test_a_lifetime_that_is_inherited_without_the_mixin_is_rejected(place: Scratch) -> None:
    class Login(declaring(60)):  # type: ignore[misc]
        class Settings:
            name = "logins"

    with pytest.raises(TTLConfigurationError, match="has no TTLMixin"):
        await begun(place, Login)


async def test_a_base_class_may_declare_what_its_subclasses_enforce(place: Scratch) -> None:
    base = declaring(60)

    class Login(TTLMixin, base):  # type: ignore[misc]
        class Settings:
            name = "logins"

    await begun(place, Login)
    await ensure_indexes(Login)
    assert (await Login().insert()).expires_at is not None
    with pytest.raises(TTLConfigurationError, match="Event declares 60, but has no TTLMixin"):
        await ensure_indexes(base)
    with pytest.raises(TTLConfigurationError, match="Event declares 60, but has no TTLMixin"):
        AsyncSweeper(ttl_database(place.ours.database), [base])


@pytest.mark.parametrize("ttl", [60, Follows(Cart, on={"cart_id": "id"})], ids=repr)
async def test_a_lifetime_that_is_assigned_later_is_rejected_when_it_is_used(
    place: Scratch, ttl: Any
) -> None:
    class Event(Document):
        cart_id: int = 0

    await begun(place, Cart, Event)
    await ensure_indexes(Event)
    Event.__ttl__ = ttl  # type: ignore[attr-defined]
    with pytest.raises(TTLConfigurationError, match="has no TTLMixin"):
        await ensure_indexes(Event)
    with pytest.raises(TTLConfigurationError, match="has no TTLMixin"):
        AsyncSweeper(ttl_database(place.ours.database), [Cart, Event])


async def test_enable_is_as_good_as_the_mixin(place: Scratch) -> None:
    model = declaring(3600)
    enable(model, ExpireAt("ends"))
    await begun(place, model)
    await ensure_indexes(model)
    disable(model)
    with pytest.raises(TTLConfigurationError, match="has no TTLMixin"):
        await begun(place, model)


async def test_an_enabled_base_is_as_good_as_the_mixin_for_what_is_under_it(
    place: Scratch,
) -> None:
    class Token(Document):
        ends: datetime | None = None

        class Settings:
            name = "tokens"

    class Own(Token):
        __ttl__: ClassVar[Any] = ExpireAfter("ends", 60)

        class Settings:
            name = "own_tokens"

    enable(Token, ExpireAt("ends"))
    await begun(place, Token, Own)
    reports = await ensure_indexes(Token, Own)
    assert [report.created for report in reports] == [("__ttl_date",), ("__ttl_date",)]


# A follower's collection


def item(**settings: Any) -> Any:
    class Item(TTLMixin, Document):
        __ttl__ = Follows(Cart, on={"cart_id": "id"})
        cart_id: int | None = None

        class Settings:
            pass

    for name, value in settings.items():
        setattr(Item.Settings, name, value)
    return Item


def note(**settings: Any) -> Any:
    class Note(Document):
        text: str = ""

        class Settings:
            pass

    for name, value in settings.items():
        setattr(Note.Settings, name, value)
    return Note


def named() -> tuple[Any, Any, tuple[Any, ...]]:
    return item(name="things"), note(name="things"), ()


def united() -> tuple[Any, Any, tuple[Any, ...]]:
    class Things(UnionDoc):
        class Settings:
            name = "things"

    return item(union_doc=Things), note(union_doc=Things), (Things,)


def rooted() -> tuple[Any, Any, tuple[Any, ...]]:
    root = note(is_root=True, name="things")

    class Item(TTLMixin, root):  # type: ignore[misc]
        __ttl__ = Follows(Cart, on={"cart_id": "id"})
        cart_id: int | None = None

    return Item, root, ()


SHARES = r"Note .*'things'.*Item.*Follows.*__ttl__ = Follows\(.*collection of its own"


@pytest.mark.parametrize("sharing", [named, united, rooted])
@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize("skip_indexes", [True, False])
async def test_a_class_without_a_policy_can_not_share_a_followers_collection(
    place: Scratch,
    sharing: Any,
    *,
    gated: bool,
    skip_indexes: bool,
) -> None:
    follower, plain, unions = sharing()
    for models in ((follower, plain), (plain, follower)):
        with pytest.raises(TTLConfigurationError, match=SHARES):
            await begun(place, *unions, Cart, *models, gated=gated, skip_indexes=skip_indexes)


@pytest.mark.parametrize("sharing", [named, united])
@pytest.mark.parametrize("first", [0, 1])
async def test_nor_can_one_that_is_initialised_later(
    place: Scratch, sharing: Any, first: int
) -> None:
    *models, unions = sharing()
    await begun(place, *unions, Cart, models[first])
    with pytest.raises(TTLConfigurationError, match=SHARES):
        await begun(place, *unions, models[1 - first])


async def test_orphans_that_live_may_be_of_any_class(place: Scratch) -> None:
    follower, plain, _ = named()
    follower.__ttl__ = Follows(Cart, on={"cart_id": "id"}, orphan="live")
    await begun(place, Cart, follower, plain)
    kept = await plain(text="kept").insert()
    await AsyncSweeper(ttl_database(place.ours.database), [Cart]).run_once()
    assert await plain.get(kept.id) == kept


@pytest.mark.parametrize("last", [0, 1])
async def test_a_lifetime_and_a_parent_do_not_share_a_collection(place: Scratch, last: int) -> None:
    class Login(TTLMixin, Document):
        __ttl__ = 60
        __ttl_purge__ = "sweeper"

        class Settings:
            name = "things"

    models = [Login, named()[0]]
    with pytest.raises(TTLConfigurationError, match=r"share the collection 'things'.*TTL\(60\)"):
        await begun(place, Cart, models[1 - last], models[last])


async def test_classes_of_one_collection_follow_the_same_parent(place: Scratch) -> None:
    class Basket(TTLMixin, Document):
        __ttl__ = 3600
        __ttl_purge__ = "sweeper"
        id: int

    class OfCart(TTLMixin, Document):
        __ttl__ = Follows("owner")
        owner: Link[Cart]

        class Settings:
            name = "things"

    class AlsoOfCart(OfCart):
        extra: str = ""

    class OfBasket(TTLMixin, Document):
        __ttl__ = Follows("owner")
        owner: Link[Basket]

        class Settings:
            name = "things"

    await begun(place, Cart, Basket, OfCart, AlsoOfCart)
    assert await OfCart.find().to_list() == []
    await begun(place, OfBasket)
    with pytest.raises(TTLConfigurationError, match=r"OfCart and OfBasket share .*'things'"):
        await OfBasket.find().to_list()
    follower, _, _ = named()
    with pytest.raises(TTLConfigurationError, match=r"OfCart and Item share .*'things'"):
        await begun(place, follower)


async def test_a_class_that_is_defined_anew_takes_its_own_place(place: Scratch) -> None:
    first, second = item(name="things"), item(name="things")
    second.__ttl__ = Follows(Cart, on={"cart_id": "id"}, orphan="live")
    await begun(place, Cart, first)
    await begun(place, Cart, second)
    await second(cart_id=None).insert()
    assert await second.find().count() == 1

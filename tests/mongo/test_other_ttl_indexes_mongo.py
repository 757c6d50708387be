"""TTL indexes of the application's own: one that contradicts a class is rejected, on any field.

MongoDB deletes by such an index whatever a class declares. `ensure_indexes` finds those that are
there, and the gate those that are about to be created, as by Beanie from `Settings.indexes`.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import pytest
from beanie import Document, Indexed, init_beanie
from pymongo import IndexModel

from tests.mongo.scratch import scratch
from ttl_odm import TTL, ExpireAfter, ExpireAt, Follows, Stored, TTLConfigurationError
from ttl_odm.beanie import Archive, TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.policy.bindings import collection_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.scratch import Scratch

WEEK = 604_800


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Scratch]:
    async with scratch(mongodb_url) as made:
        yield made


class Parent(TTLMixin, Document):
    __ttl__ = WEEK
    __ttl_purge__ = "sweeper"

    class Settings:
        name = "parents"


def declared(ttl: Any, *, own: list[Any] | None = None, **attributes: Any) -> Any:
    """Declare a document class on the collection ``documents``."""

    class Cart(TTLMixin, Document):
        __ttl__: ClassVar[Any] = ttl
        parent_id: int | None = None
        created_at: datetime | None = None

        class Settings:
            name = "documents"
            indexes: ClassVar[Any] = own or []

    for name, value in attributes.items():
        setattr(Cart, name, value)
    return Cart


async def begun(place: Scratch, *models: Any, **options: Any) -> None:
    database = ttl_database(place.ours.database)
    await init_beanie(database=database, document_models=[Parent, *models], **options)


POLICIES: list[Any] = [
    WEEK,
    -1,
    None,
    TTL(WEEK, override=None),
    ExpireAfter("at", WEEK),
    ExpireAt("at"),
    Stored(WEEK),
    Follows(Parent, on={"parent_id": "id"}),
    Follows(Parent, on={"parent_id": "id"}, orphan="live"),
]


@pytest.mark.parametrize("ttl", POLICIES, ids=repr)
async def test_a_forgotten_ttl_index_is_named(place: Scratch, ttl: Any) -> None:
    model = declared(ttl)
    place.theirs.create_index("created_at", expireAfterSeconds=60)
    await begun(place, model)

    message = r"'created_at_1' of 'documents'.*documents 60 s after 'created_at'.*Drop it"
    with pytest.raises(TTLConfigurationError, match=message):
        await ensure_indexes(model)

    assert list(place.indexes()) == ["created_at_1"]
    place.theirs.drop_index("created_at_1")
    await ensure_indexes(model)


@pytest.mark.parametrize("ttl", POLICIES, ids=repr)
async def test_so_is_a_clustered_collection_that_deletes_by_its_key(
    place: Scratch, ttl: Any
) -> None:
    cluster(place, "documents")
    model = declared(ttl)
    await begun(place, model)

    with pytest.raises(TTLConfigurationError, match="documents 60 s after '_id'"):
        await ensure_indexes(model)

    assert not place.indexes()
    place.database.command({"collMod": "documents", "expireAfterSeconds": "off"})
    await ensure_indexes(model)


def cluster(place: Scratch, name: str) -> None:
    clustered = {"key": {"_id": 1}, "unique": True}
    place.database.create_collection(name, clusteredIndex=clustered, expireAfterSeconds=60)


@pytest.mark.parametrize("ttl", POLICIES, ids=repr)
async def test_beanie_creates_no_ttl_index_that_contradicts_the_class(
    place: Scratch, ttl: Any
) -> None:
    some = {"kind": "short"}
    model = declared(
        ttl,
        own=[
            "parent_id",
            IndexModel("made.at", expireAfterSeconds=5, partialFilterExpression=some),
        ],
    )

    message = r"'made.at_1'.*documents that match {'kind': 'short'} 5 s after 'made.at'"
    with pytest.raises(TTLConfigurationError, match=message):
        await begun(place, model)

    assert place.indexes() == {}


async def test_nor_one_that_a_field_declares(place: Scratch) -> None:
    class Cart(TTLMixin, Document):
        __ttl__ = WEEK
        seen_at: Annotated[datetime, Indexed(expireAfterSeconds=60)]

        class Settings:
            name = "documents"

    with pytest.raises(TTLConfigurationError, match=r"'seen_at_1'.*contradicts TTL\(604800\)"):
        await begun(place, Cart)

    assert place.indexes() == {}


async def test_nor_one_of_a_base_class_whose_indexes_are_merged(place: Scratch) -> None:
    class Base(Document):
        class Settings:
            name = "bases"
            indexes: ClassVar[Any] = [IndexModel("seen_at", expireAfterSeconds=60)]

    class Cart(TTLMixin, Base):
        __ttl__ = WEEK

        class Settings:
            name = "documents"
            merge_indexes = True
            indexes: ClassVar[Any] = ["name"]

    with pytest.raises(TTLConfigurationError, match="'seen_at_1' of 'documents'"):
        await begun(place, Cart)


async def test_an_index_that_says_what_the_policy_says_may_be_beanies(place: Scratch) -> None:
    model = declared(
        ExpireAfter("created_at", 60), own=[IndexModel("created_at", expireAfterSeconds=60)]
    )
    await begun(place, model)

    (report,) = await ensure_indexes(model)

    assert report.relied_on == ("created_at_1",)


async def test_a_stored_default_is_compared_by_ensure_indexes(place: Scratch) -> None:
    model = declared(Stored(WEEK), own=[IndexModel("_ts", expireAfterSeconds=60)])
    await begun(place, model)

    with pytest.raises(TTLConfigurationError, match=r"'_ts_1'.*60 s after '_ts'"):
        await ensure_indexes(model)


@pytest.mark.parametrize("ttl", [WEEK, Follows(Parent, on={"parent_id": "id"})], ids=repr)
async def test_the_gate_creates_all_other_indexes(place: Scratch, ttl: Any) -> None:
    model = declared(ttl)
    await begun(place, model)
    collection = collection_of(model)

    with pytest.raises(TTLConfigurationError, match="'created_at_-1'"):
        await collection.create_index([("created_at", -1)], expireAfterSeconds=60)
    assert await collection.create_index("created_at", unique=True, comment="why") == "created_at_1"
    assert await collection.create_index([("at", "hashed")], expireAfterSeconds=60) == "at_hashed"
    made = await collection.create_indexes([IndexModel("a"), IndexModel("b", name="by_b")])
    assert made == ["a_1", "by_b"]
    with pytest.raises(TypeError):
        await collection.create_index({"a"})

    assert place.indexes().keys() == {"created_at_1", "at_hashed", "a_1", "by_b"}
    plain = collection.database["plain"]
    assert await plain.create_index("at", expireAfterSeconds=60) == "at_1"


@pytest.mark.parametrize("field", ["created_at", "_ts", "archived_at"])
async def test_mongodb_deletes_nothing_from_an_archive(place: Scratch, field: str) -> None:
    model = declared(WEEK, __ttl_purge__="sweeper", __ttl_archive__=Archive("old"))
    place.database["old"].create_index(field, expireAfterSeconds=60)
    await begun(place, model)

    message = rf"'{field}_1' of 'old', the archive of Cart,.*60 s after '{field}'"
    with pytest.raises(TTLConfigurationError, match=message):
        await ensure_indexes(model)

    model.__ttl_archive__ = Archive("old", archived_at=field)
    await ensure_indexes(model)


async def test_nor_from_a_clustered_one(place: Scratch) -> None:
    model = declared(WEEK, __ttl_purge__="sweeper", __ttl_archive__=Archive("old"))
    cluster(place, "old")
    await begun(place, model)

    with pytest.raises(
        TTLConfigurationError, match=r"clustered collection 'old'.*60 s after '_id'"
    ):
        await ensure_indexes(model)


async def test_an_archive_with_a_ttl_goes_by_that(place: Scratch) -> None:
    class Old(TTLMixin, Document):
        __ttl__ = ExpireAfter("created_at", 2 * WEEK)
        created_at: datetime | None = None

        class Settings:
            name = "old"
            indexes: ClassVar[Any] = [IndexModel("created_at", expireAfterSeconds=2 * WEEK)]

    model = declared(WEEK, __ttl_purge__="sweeper", __ttl_archive__=Archive(Old))
    await begun(place, Old, model)
    await ensure_indexes(Old, model)
    place.database["old"].create_index("seen_at", expireAfterSeconds=60)
    with pytest.raises(TTLConfigurationError, match="'seen_at_1' of 'old'"):
        await ensure_indexes(model, Old)

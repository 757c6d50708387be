"""What document classes can declare, and what is refused, when, and by what words."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import gc
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, UnionDoc, View, init_beanie
from beanie.odm.settings.timeseries import TimeSeriesConfig
from pydantic import ConfigDict, Field

from tests.mongo.models import Event, World, collection_of
from ttl_odm import TTL, ExpireAfter, ExpireAt, InvalidTTL, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, ensure_indexes, find_strays
from ttl_odm.beanie.policy.bindings import Registry, declaration, purge_of

if TYPE_CHECKING:
    from collections.abc import Callable


class Declared(TTLMixin, Document):
    __ttl__ = 60


class InSettings(TTLMixin, Document):
    class Settings:
        ttl = timedelta(minutes=1)
        ttl_purge = "sweeper"


class Child(InSettings):
    class Settings:
        name = "children"


class Own(InSettings):
    __ttl__ = 5


class Neither(TTLMixin, Document): ...


@pytest.mark.parametrize(
    ("model", "declared", "purge"),
    [
        (Declared, 60, "native"),
        (InSettings, timedelta(minutes=1), "sweeper"),
        (Child, timedelta(minutes=1), "sweeper"),
        (Own, 5, "sweeper"),
        (Neither, None, "native"),
    ],
)
def test_the_nearest_declaration_counts(model: Any, declared: object, purge: str) -> None:
    assert declaration(model) == declared
    assert purge_of(model) == purge


async def test_a_class_with_the_mixin_says_how_long_its_documents_live(world: World) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^Neither has TTLMixin, but no __ttl__: "):
        await initialised(world, Neither)
    assert "Neither" not in world.raw.list_collection_names()


@pytest.mark.parametrize("declared", [0, -2, 1.5, "60", True, 2**31, float("nan")])
def test_what_is_no_ttl_is_refused_when_the_class_is_made(declared: Any) -> None:
    with pytest.raises(InvalidTTL, match=r"Wrong\.__ttl__"):

        class Wrong(TTLMixin, Document):
            __ttl__ = declared


def after_document() -> Any:
    class Wrong(Document, TTLMixin):
        __ttl__ = 60


def on_a_view() -> Any:
    class Wrong(TTLMixin, View):  # type: ignore[misc]
        __ttl__ = 60


def by_epoch() -> Any:
    class Wrong(TTLMixin, Document):
        __ttl__ = ExpireAt("ends", unit="s")


def by_id() -> Any:
    class Wrong(TTLMixin, Document):
        __ttl__ = ExpireAfter("_id", 60)


def purged_by_nobody() -> Any:
    class Wrong(TTLMixin, Document):
        __ttl__ = 60
        __ttl_purge__ = "nobody"


@pytest.mark.parametrize(
    ("declare", "words"),
    [
        (after_document, "put TTLMixin before Document"),
        (on_a_view, "is a view"),
        (by_epoch, "__ttl_purge__ = 'sweeper'"),
        (by_id, "can't have a TTL index"),
        (purged_by_nobody, "write 'native' or 'sweeper'"),
    ],
)
def test_what_cannot_work_is_refused_when_the_class_is_made(
    declare: Callable[[], Any], words: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=words):
        declare()


@pytest.mark.parametrize(
    ("policy", "fields"),
    [
        (TTL(60), {"last_modified", "ttl"}),
        (TTL(60, override=None), {"last_modified"}),
        (TTL(60, last_modified="at", override="life"), set()),
        (ExpireAfter("at", 60), set()),
        (ExpireAt("at"), set()),
    ],
)
def test_a_class_has_the_fields_that_its_policy_needs(policy: Any, fields: set[str]) -> None:
    class Made(TTLMixin, Document):
        __ttl__ = policy

    class Heir(Made):
        more: int = 0

    assert set(Made.model_fields) - set(Document.model_fields) == fields
    assert set(Heir.model_fields) - set(Document.model_fields) == fields | {"more"}
    assert Made.model_construct().model_dump().keys() - {"revision_id"} == {"id", *fields}


def test_a_field_of_ones_own_by_that_name_stays() -> None:
    class Made(TTLMixin, Document):
        __ttl__ = ExpireAfter("at", 60)
        ttl: str = "mine"

    assert "ttl" in Made.model_fields
    assert "last_modified" not in Made.model_fields


def test_the_schema_shows_a_number_or_null() -> None:
    schema = Declared.model_json_schema()["properties"]

    assert {each["type"] for each in schema["ttl"]["anyOf"]} == {"integer", "null"}


async def initialised(world: World, *models: Any) -> None:
    await init_beanie(database=world.database, document_models=list(models))


async def test_two_policies_in_one_collection_are_refused(world: World) -> None:
    class One(TTLMixin, Document):
        __ttl__ = 60

        class Settings:
            name = "shared"

    class Other(TTLMixin, Document):
        __ttl__ = 61

        class Settings:
            name = "shared"

    with pytest.raises(TTLConfigurationError, match=r"One and Other share .*'shared'"):
        await initialised(world, One, Other)


async def test_children_share_the_policy_of_their_root(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Animal(TTLMixin, Document):
        __ttl__ = 3600
        id: int

        class Settings:
            is_root = True
            name = "animals"

    class Cat(Animal): ...

    await initialised(world, Cat, Animal)
    await Animal(id=1).insert()
    await Cat(id=2).insert()
    for key in (1, 2):
        world.age(Animal, key, 600)
    assert await Animal.find(with_children=True).count() == 2

    monkeypatch.setattr(Animal, "__ttl__", 60)

    assert await Animal.find(with_children=True).count() == 0
    assert await Cat.count() == 0
    world.of(Animal).drop()


async def test_a_child_with_another_policy_is_refused(world: World) -> None:
    class Root(TTLMixin, Document):
        __ttl__ = 3600

        class Settings:
            is_root = True

    class Branch(Root):
        __ttl__ = 60

    with pytest.raises(TTLConfigurationError, match="share one policy"):
        await initialised(world, Root, Branch)


async def test_classes_of_a_union_share_one_policy(world: World) -> None:
    class Union(UnionDoc):
        class Settings:
            name = "union"

    class A(TTLMixin, Document):
        __ttl__ = 60

        class Settings:
            union_doc = Union

    class B(TTLMixin, Document):
        __ttl__ = 61

        class Settings:
            union_doc = Union

    with pytest.raises(TTLConfigurationError, match="share one policy"):
        await initialised(world, Union, A, B)


async def test_a_plain_class_of_a_union_shares_the_policy_of_the_others(world: World) -> None:
    class Mixed(UnionDoc):
        class Settings:
            name = "mixed"

    class Lasting(Document):
        class Settings:
            union_doc = Mixed

    class Passing(TTLMixin, Document):
        __ttl__ = 3600

        class Settings:
            union_doc = Mixed

    await initialised(world, Mixed, Lasting, Passing)
    await Lasting().insert()
    assert await Lasting.count() == 1

    past = {"$subtract": ["$$NOW", 7_200_000]}
    world.raw["mixed"].update_one({"_ts": {"$type": "date"}}, [{"$set": {"_ts": past}}])

    assert await Lasting.count() == 0
    world.raw["mixed"].drop()


async def test_a_class_that_is_defined_again_replaces_its_old_self(world: World) -> None:
    def define(seconds: int) -> Any:
        class Cell(TTLMixin, Document):
            __ttl__ = seconds
            __ttl_purge__ = "sweeper"  # else a longer life waits for ensure_indexes()
            id: int

        return Cell

    for seconds in (60, 3600):
        model = define(seconds)
        await initialised(world, model)

    await model(id=1).insert()
    world.age(model, 1, 600)
    assert await model.count() == 1
    world.of(model).drop()


@pytest.mark.filterwarnings("ignore:This field is deprecated in favor of")  # Beanie 1.30's own
async def test_a_ttl_in_a_time_series_is_refused(world: World) -> None:
    class Reading(TTLMixin, Document):
        __ttl__ = 60

        class Settings:
            timeseries = TimeSeriesConfig(time_field="at")

    with pytest.raises(TTLConfigurationError, match=r"ExpireAfter\('at', seconds\)"):
        await initialised(world, Reading)

    assert "Reading" not in world.raw.list_collection_names()


async def test_an_invalid_default_at_run_time_says_which(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Event, "__ttl__", 0)

    with pytest.raises(InvalidTTL, match=r"Event\.__ttl__ = 0"):
        await Event.count()


def test_a_registry_goes_with_its_client() -> None:
    from ttl_odm.beanie.policy import bindings

    class Client: ...

    gc.collect()  # those of clients that other tests have left
    client = Client()
    assert isinstance(bindings.registry_of(client), Registry)
    assert bindings.registry_of(client) is bindings.registry_of(client)
    before = len(bindings._registries)

    del client
    gc.collect()

    assert len(bindings._registries) == before - 1


async def test_beanie_does_not_learn_of_settings_that_are_ours(world: World) -> None:
    assert collection_of(Event).name == "events"
    assert not hasattr(Event.get_settings(), "ttl")


async def test_a_field_in_the_place_of_the_mixins_is_refused(world: World) -> None:
    class Stamped(TTLMixin, Document):
        __ttl__ = 60
        last_modified: datetime | None = None  # type: ignore[assignment]

    class Renamed(TTLMixin, Document):
        __ttl__ = 60
        ttl: Any = Field(default=None, alias="TTL")

    class Named(TTLMixin, Document):
        __ttl__ = TTL(60, last_modified="last_modified")
        last_modified: datetime | None = None  # type: ignore[assignment]

        class Settings:
            name = "named"

    with pytest.raises(TTLConfigurationError, match=r"Stamped.last_modified is stored as 'last_m"):
        await initialised(world, Stamped)
    with pytest.raises(TTLConfigurationError, match=r"Renamed.ttl is stored as 'TTL'"):
        await initialised(world, Renamed)
    await initialised(world, Named)
    world.of(Named).drop()


async def test_an_alias_generator_leaves_the_lifetime_alone(world: World) -> None:
    class Shouted(TTLMixin, Document):
        model_config = ConfigDict(alias_generator=str.upper, populate_by_name=True)
        __ttl__ = 60
        size: int = 0

        class Settings:
            name = "shouted"

    await initialised(world, Shouted)
    await Shouted(ttl=5).insert()

    stored = world.of(Shouted).find_one({})
    assert stored is not None
    assert (stored["ttl"], stored["SIZE"]) == (5, 0)
    world.of(Shouted).drop()


@pytest.mark.parametrize("call", [ensure_indexes, find_strays])
@pytest.mark.parametrize("model", [[Declared], "Declared", int], ids=repr)
async def test_what_is_no_document_class_is_rejected(call: Any, model: Any) -> None:
    with pytest.raises(TTLConfigurationError, match="is not a document class: pass classes, not"):
        await call(model)

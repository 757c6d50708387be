"""What a document class may declare that follows another."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Optional
from uuid import uuid4

import pytest
from beanie import Document, Link
from beanie.odm.settings.timeseries import TimeSeriesConfig
from click.testing import CliRunner

from tests.mongo.models import opened
from ttl_odm import ExpireAfter, ExpireAt, Follows, Stored, TTLConfigurationError
from ttl_odm.beanie import Archive, ExpiredError, TTLMixin, enable
from ttl_odm.cli.commands import cli
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import Callable


def parent(ttl: Any = 60, purge: str = "sweeper", **attributes: Any) -> Any:
    class Parent(TTLMixin, Document):
        __ttl__: ClassVar[Any] = ttl
        __ttl_purge__: ClassVar[Any] = purge
        id: int
        ends: Optional[datetime] = None  # noqa: UP045

    for name, value in attributes.items():
        setattr(Parent, name, value)
    return Parent


def child(of: Any, **options: Any) -> Any:
    class Child(TTLMixin, Document):
        __ttl__: ClassVar[Any] = Follows(of, on={"parent_id": "id"}, **options)
        id: int
        parent_id: int = 0

    return Child


def test_followers_have_no_fields_for_a_lifetime() -> None:
    assert not {"ttl", "last_modified"} & child(parent()).model_fields.keys()


def without_field() -> Any:
    class Child(TTLMixin, Document):
        __ttl__ = Follows("nothing")


def unknown_field() -> Any:
    class Child(TTLMixin, Document):
        __ttl__ = Follows(parent(), on={"wrong": "id"})


def many_parents() -> Any:
    class Child(TTLMixin, Document):
        __ttl__ = Follows("parents")
        parents: list[int] = []


def with_hook() -> Any:
    class Child(TTLMixin, Document):
        __ttl__ = Follows("parent")
        __ttl_on_purged__ = print
        parent: int = 0


def with_archive() -> Any:
    class Child(TTLMixin, Document):
        __ttl__ = Follows("parent")
        __ttl_archive__ = Archive("old_children")
        parent: int = 0


def with_purge() -> Any:
    class Child(TTLMixin, Document):
        __ttl__ = Follows("parent")
        parent: int = 0

        class Settings:
            ttl_purge = "sweeper"


def enabled() -> Any:
    class Child(Document):
        parent: int = 0

    enable(Child, Follows("parent"))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("declare", "message"),
    [
        (without_field, r"Child\.__ttl__ = Follows\(parent='nothing'.*no field 'nothing'"),
        (unknown_field, "Child has no field 'wrong'; it has 'id', "),
        (many_parents, "'parents' holds several values"),
        (
            with_hook,
            r"Child\.__ttl_on_purged__ = .*: documents that follow their parent are deleted",
        ),
        (
            with_archive,
            r"Child\.__ttl_archive__ = .*leave __ttl_archive__ out, or give Child",
        ),
        (with_purge, r"Child\.__ttl_purge__ = 'sweeper'"),
        (enabled, "declares __ttl__ in its own body"),
    ],
)
def test_what_cannot_be_is_refused_when_the_class_is_made(
    declare: Callable[[], Any], message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        declare()


class Series(TTLMixin, Document):
    __ttl__ = ExpireAfter("at", 60)
    __ttl_purge__ = "sweeper"
    at: datetime

    class Settings:
        timeseries = TimeSeriesConfig(time_field="at")


class Plain(Document):
    id: int


class FirstOfRing(TTLMixin, Document):
    __ttl__: ClassVar[Any] = None
    id: int
    other: int = 0


class SecondOfRing(TTLMixin, Document):
    __ttl__ = Follows(FirstOfRing, on={"other": "id"})
    id: int
    other: int = 0


FirstOfRing.__ttl__ = Follows(SecondOfRing, on={"other": "id"})


class OfItself(TTLMixin, Document):
    __ttl__ = Follows("above")
    id: int
    above: Optional[Link[OfItself]] = None  # noqa: UP045


class ByNumber(TTLMixin, Document):
    __ttl__ = Follows("parent")
    parent: int = 0


OfItself.model_rebuild()
TREE = [OfItself]


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (lambda: (parent(purge="native"),), "declare __ttl_purge__ = 'sweeper' on Parent"),
        (lambda: (Plain,), "Plain has no lifetime in the same database"),
        (
            lambda: (parent(Stored(60)),),
            r"the default of Parent is stored in the database \(Stored\(60.*declare seconds on it",
        ),
    ],
)
async def test_a_parent_that_cannot_be_followed_is_refused(
    mongodb_url: str, models: Callable[[], Any], message: str
) -> None:
    above = models()
    below = child(above[0])
    async with opened(mongodb_url, [*above, below]):
        with pytest.raises(TTLConfigurationError, match=message):
            await below.find().to_list()
        with pytest.raises(TTLConfigurationError, match=message):
            await below(id=1).insert()


@pytest.mark.parametrize(
    ("models", "message"),
    [
        (
            [FirstOfRing, SecondOfRing],
            r"FirstOfRing\.__ttl__ = Follows.*\(FirstOfRing -> SecondOfRing -> FirstOfRing\); ",
        ),
        (
            [OfItself],
            r"Follows\(parent='above'.*themselves, .*\(OfItself -> OfItself\); .* __ttl__ = 3600",
        ),
        ([ByNumber], r"'parent' is not a Link of it; .* Follows\(Parent, on=\{'parent': 'id'\}\)"),
        ([child(parent())], "Parent has no collection yet"),
    ],
)
async def test_what_leads_to_no_parent_is_refused(
    mongodb_url: str, models: list[Any], message: str
) -> None:
    async with opened(mongodb_url, models) as world:
        with pytest.raises(TTLConfigurationError, match=message):
            await models[0].find().to_list()
        with pytest.raises(TTLConfigurationError, match=message):
            AsyncSweeper(world.database, [models[0]])


def test_commands_say_the_same(mongodb_url: str) -> None:
    head, _, options = mongodb_url.partition("?")
    url = f"{head.rstrip('/')}/ttl_odm_{uuid4().hex}?{options}"
    for command in ("check", "sweep"):
        finished = CliRunner().invoke(cli, [command, "--app", f"{__name__}:TREE", "--url", url])
        assert finished.exit_code == 2
        assert "OfItself.__ttl__ = Follows(parent='above'" in finished.output
        assert "declare a lifetime on OfItself" in finished.output


async def test_a_date_of_its_own_cannot_be_renewed(mongodb_url: str) -> None:
    above = parent(ExpireAt("ends"))
    below = child(above, renews=True)
    async with opened(mongodb_url, [above, below]):
        with pytest.raises(TTLConfigurationError, match="which no write renews; leave renews out"):
            await below.find().to_list()


async def test_only_mongodb_itself_has_followers(mongodb_url: str) -> None:
    above = parent()
    for backend in ("documentdb", "cosmos"):
        with pytest.raises(TTLConfigurationError, match="only in MongoDB itself"):
            async with opened(mongodb_url, [child(above)], backend=backend):
                pass


async def test_classes_of_one_collection_follow_one_parent(mongodb_url: str) -> None:
    above = parent()

    class Root(TTLMixin, Document):
        __ttl__ = Follows(above, on={"parent_id": "id"})
        id: int
        parent_id: int = 0

        class Settings:
            is_root = True
            name = "family"

    class Leaf(Root):
        extra: str = ""

    async with opened(mongodb_url, [above, Root, Leaf]):
        await above(id=1).insert()
        await Leaf(id=1, parent_id=1, extra="x").insert()
        with pytest.raises(ExpiredError, match="A document of Root can't be put under Parent 2"):
            await Leaf(id=2, parent_id=2).insert()
        assert [one.id for one in await Root.find(with_children=True).to_list()] == [1]
        assert await Leaf.count() == 1

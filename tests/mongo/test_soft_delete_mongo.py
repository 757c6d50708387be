"""Beanie's `DocumentWithSoftDelete`: what has expired is gone, and no `delete()` stores it anew."""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from beanie import DeleteRules
from beanie.exceptions import DocumentNotFound, RevisionIdWasChanged
from beanie.odm.documents import DocumentWithSoftDelete

from tests.mongo.models import World, opened
from ttl_odm.beanie import ExpiredError, TTLMixin, disable, enable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class Memo(TTLMixin, DocumentWithSoftDelete):
    __ttl__ = 3600
    text: str = ""

    class Settings:
        name = "memos"


class RevisedMemo(TTLMixin, DocumentWithSoftDelete):
    __ttl__ = 3600
    text: str = ""

    class Settings:
        name = "revised_memos"
        use_revision = True


class ForeignMemo(DocumentWithSoftDelete):
    text: str = ""

    class Settings:
        name = "foreign_memos"


class CountedMemo(Memo):
    """Overrides `hard_delete`."""

    async def hard_delete(self, *args: Any, **kwargs: Any) -> Any:
        return await super().hard_delete(*args, **kwargs)


MEMOS: list[Any] = [Memo, RevisedMemo, ForeignMemo]


@pytest.fixture
async def memos(mongodb_url: str) -> AsyncIterator[World]:
    enable(ForeignMemo, 3600)
    async with opened(mongodb_url, [*MEMOS, CountedMemo]) as world:
        yield world
    disable(ForeignMemo)


@pytest.mark.parametrize("model", MEMOS)
async def test_delete_marks_what_lives(memos: World, model: Any) -> None:
    memo = await model(text="a").insert()

    await memo.delete()

    assert await model.find().to_list() == []
    assert [each.id for each in await model.find_many_in_all().to_list()] == [memo.id]
    assert memos.stored(model, memo.id)["deleted_at"] is not None


@pytest.mark.parametrize("model", MEMOS)
async def test_delete_of_an_expired_document_stores_nothing(memos: World, model: Any) -> None:
    memo = await model(text="a").insert()
    memos.age(model, memo.id)
    before = memos.stored(model, memo.id)

    with pytest.raises(ExpiredError):
        await memo.delete()

    assert memos.stored(model, memo.id) == before


@pytest.mark.parametrize("model", [*MEMOS, CountedMemo])
async def test_hard_delete_says_what_has_expired_as_delete_does(memos: World, model: Any) -> None:
    live, over = await model(text="a").insert(), await model(text="b").insert()
    memos.age(model, over.id)

    assert (await live.hard_delete()).deleted_count == 1
    with pytest.raises(ExpiredError):
        await over.hard_delete()
    assert await over.hard_delete(link_rule=DeleteRules.DELETE_LINKS) is None

    assert memos.keys(model) == [over.id]


@pytest.mark.parametrize("model", MEMOS)
async def test_delete_of_what_mongodb_has_deleted_stores_nothing(memos: World, model: Any) -> None:
    memo = await model(text="a").insert()
    memos.of(model).delete_one({"_id": memo.id})

    with pytest.raises((DocumentNotFound, RevisionIdWasChanged)):
        await memo.delete()

    assert memos.keys(model) == []


async def test_save_of_an_expired_document_stores_nothing(memos: World) -> None:
    memo = await Memo(text="a").insert()
    memos.age(Memo, memo.id)

    with pytest.raises(ExpiredError):
        await memo.save()

    assert await Memo.find().to_list() == []

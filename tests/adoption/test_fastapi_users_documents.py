"""fastapi-users' access tokens in MongoDB live and die under ttl_odm."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from bson import ObjectId
from fastapi_users.authentication.strategy.db import DatabaseStrategy

from tests.adoption.conftest import ROWS, example
from tests.mongo.scratch import BEANIE, scratch
from ttl_odm.beanie import ttl_database
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.collection import Collection


class Adopted(NamedTuple):
    database: Any
    tokens: Any
    raw: Collection[dict[str, Any]]

    def end_all(self) -> None:
        past = datetime.now(timezone.utc) - timedelta(seconds=3605)
        self.raw.update_many({}, {"$set": {"created_at": past}})


@pytest.fixture
async def adopted(mongodb_url: str) -> AsyncIterator[Adopted]:
    async with scratch(mongodb_url) as place:
        tokens = await example("fastapi_users_documents").open_tokens(place.ours.database)
        yield Adopted(ttl_database(place.ours.database), tokens, place.database["access_tokens"])


class User(NamedTuple):
    id: ObjectId


async def test_a_token_that_is_over_is_unknown_and_its_value_is_free(adopted: Adopted) -> None:
    user = User(ObjectId())
    strategy: Any = DatabaseStrategy(adopted.tokens)
    token = await strategy.write_token(user)
    assert (await adopted.tokens.get_by_token(token)).user_id == user.id
    adopted.end_all()
    assert await adopted.tokens.get_by_token(token) is None
    await strategy.destroy_token(token, user)
    assert adopted.raw.count_documents({}) == 1
    await adopted.tokens.create({"token": token, "user_id": user.id})
    assert (await adopted.tokens.get_by_token(token)).user_id == user.id
    assert adopted.raw.count_documents({}) == 1
    await strategy.destroy_token(token, user)
    assert adopted.raw.count_documents({}) == 0


async def test_the_sweeper_deletes_them_in_batches(adopted: Adopted) -> None:
    for number in range(ROWS):
        await adopted.tokens.create({"token": f"token {number}", "user_id": ObjectId()})
    adopted.end_all()
    await adopted.tokens.create({"token": "abc", "user_id": ObjectId()})
    model = example("fastapi_users_documents").AccessToken
    sweeper = AsyncSweeper(adopted.database, [model], lease=False, batch_size=2)
    report = await sweeper.run_once()
    assert (report.deleted, report.targets[0].batches >= 2) == (ROWS, True)
    assert await adopted.tokens.get_by_token("abc") is not None


@pytest.mark.skipif(BEANIE < 2, reason="the example's main() opens PyMongo's own client (Beanie 2)")
async def test_the_example_shows_an_end(
    mongodb_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    await example("fastapi_users_documents").main(mongodb_url)
    assert capsys.readouterr().out.splitlines() == [
        "abc: found",
        "after its end: not found",
        "created again: found",
    ]

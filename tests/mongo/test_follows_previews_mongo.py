"""A plan counts the documents that follow those of a collection, too.

A preview of a stored default needs not: such a collection has no followers.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING

import pytest
from beanie import Document, Link

from tests.mongo.following import ref
from tests.mongo.models import collection_of, opened
from ttl_odm import TTL, Follows
from ttl_odm.beanie import TTLMixin, ensure_indexes
from ttl_odm.forecast import mongodb

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.models import World

DAY = 86_400
CRATES, LOADS, LABELS = 10, 30, 60


class Crate(TTLMixin, Document):
    __ttl__ = 30 * DAY
    __ttl_purge__ = "sweeper"
    id: int

    class Settings:
        name = "crates"


class Load(TTLMixin, Document):
    __ttl__ = Follows("crate")
    id: int
    crate: Link[Crate]

    class Settings:
        name = "loads"


class Label(TTLMixin, Document):
    __ttl__ = Follows(Load, on={"load": "id"})
    id: int
    load: int

    class Settings:
        name = "labels"


@pytest.fixture
async def world(mongodb_url: str) -> AsyncIterator[World]:
    """Each crate has three loads, each of these two labels; the last crate never expires."""
    async with opened(mongodb_url, [Crate, Load, Label]) as made:
        await ensure_indexes(Crate, Load, Label)
        then = datetime.now(timezone.utc) - timedelta(seconds=120)
        crates = [{"_id": n, "_ts": then} for n in range(CRATES)]
        made.raw["crates"].insert_many([*crates, {"_id": CRATES, "_ts": then, "ttl": -1}])
        loads = [{"_id": n, "crate": ref(n // 3, "crates")} for n in range(LOADS + 3)]
        made.raw["loads"].insert_many(loads)
        labels = [{"_id": n, "load": n // 2} for n in range(LABELS + 6)]
        made.raw["labels"].insert_many(labels)
        yield made


@pytest.mark.parametrize("big", [100, 5])
async def test_a_plan_counts_what_follows(world: World, big: int) -> None:
    collection = collection_of(Crate)
    measured = await mongodb.measure(collection, TTL(30 * DAY), TTL(3_600), big)
    assert measured.is_sample is (big == 5)
    assert measured.followers("planned 0").rows == 0
    along = measured.followers("planned 3600")
    assert abs(along.rows - 90) <= along.margin
    assert measured.followers("current 3600").rows == 0

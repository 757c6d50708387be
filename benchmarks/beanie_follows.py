"""What it costs on Beanie that documents follow a parent: against a $lookup written by hand.

Both classes of a collection read the same documents, as in `benchmarks.beanie_overhead`: those of
carts that are live. By hand that is a pipeline with a ``$lookup``; or two finds, of a document and
then of its live parent, which are two round trips. Needs Beanie 2 (PyMongo).
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient

from benchmarks.beanie_overhead import BY_HAND, sit_in, sittings
from benchmarks.bench import MONGODB
from benchmarks.findings import ratio
from benchmarks.goals import BEANIE_FOLLOWS_KEY
from benchmarks.sql_models import DAY, ROWS
from ttl_odm import Follows
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from benchmarks.beanie_overhead import Operation
    from benchmarks.bench import Bench
    from benchmarks.findings import Finding

OVER_LOOKUP: Final = "Beanie: documents that follow a parent / a $lookup by hand"
OVER_FINDS: Final = "Beanie: documents that follow a parent / a find of each and of its parent"
NOISE: Final = "Noise: the same $lookup by hand on MongoDB, twice"

_FOLLOWER: Final = "follower"
_LOOKUP: Final = "lookup"
_FINDS: Final = "finds"
_AGAIN: Final = "lookup, again"
_COMPARED: Final = (
    (OVER_LOOKUP, _FOLLOWER, _LOOKUP),
    (OVER_FINDS, _FOLLOWER, _FINDS),
    (NOISE, _AGAIN, _LOOKUP),
)

_FIND_ONE: Final = "find_one by key"
_GET: Final = "get"
_HUNDRED: Final = "find of 100"

_LINES = 4
"""Of each cart."""

_EXPIRES_EVERY: Final = 71
_LIST: Final = 100
_CARTS: Final = range(1, ROWS // _LINES)
_KEYS: Final = [_LINES * cart for cart in range(1, _CARTS.stop - _LIST, 7) if cart % _EXPIRES_EVERY]


class Cart(TTLMixin, Document):
    """Parents."""

    __ttl__ = DAY
    __ttl_purge__ = "sweeper"

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    class Settings:
        """Beanie's settings."""

        name = "carts"


class Line(TTLMixin, Document):
    """Documents that live while their parents do."""

    __ttl__ = Follows(Cart, on={"cart_id": "id"})

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    cart_id: int
    payload: str

    class Settings:
        """Beanie's settings."""

        name = "lines"
        indexes = ("cart_id",)


class PlainCart(Document):
    """The same parents without a policy."""

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]

    class Settings:
        """Beanie's settings."""

        name = "carts"


class PlainLine(Document):
    """The same documents."""

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    cart_id: int
    payload: str

    class Settings:
        """Beanie's settings."""

        name = "lines"
        indexes = ("cart_id",)


_OF_LIVE_CARTS: Final[list[dict[str, Any]]] = [
    {
        "$lookup": {
            "from": "carts",
            "localField": "cart_id",
            "foreignField": "_id",
            "pipeline": [{"$match": BY_HAND}, {"$project": {"_id": 1}}],
            "as": "live_cart",
        }
    },
    {"$match": {"live_cart": {"$ne": []}}},
    {"$unset": "live_cart"},
]


async def _aggregated(pipeline: list[dict[str, Any]]) -> list[PlainLine]:
    return await PlainLine.aggregate(pipeline, projection_model=PlainLine).to_list()


async def _by_finds(key: int) -> PlainLine | None:
    line = await PlainLine.find_one({"_id": key})
    if line is None:
        return None
    return line if await PlainCart.find_one({"_id": line.cart_id, **BY_HAND}) else None


def _cases() -> Iterator[tuple[str, dict[str, Operation]]]:
    """What is compared: several ways, each a read with a key that changes."""
    keys = cycle(_KEYS)

    async def one_by_lookup() -> PlainLine:
        (line,) = await _aggregated([{"$match": {"_id": next(keys)}}, *_OF_LIVE_CARTS])
        return line

    async def many_by_lookup() -> list[PlainLine]:
        first = {"$match": {"_id": {"$gte": next(keys)}}}
        sort, limit = {"$sort": {"_id": 1}}, {"$limit": _LIST}
        return await _aggregated([first, sort, *_OF_LIVE_CARTS, limit])

    by_hand: dict[str, Operation] = {
        _LOOKUP: one_by_lookup,
        _FINDS: lambda: _by_finds(next(keys)),
        _AGAIN: one_by_lookup,
    }
    yield _FIND_ONE, {_FOLLOWER: lambda: Line.find_one({"_id": next(keys)}), **by_hand}
    yield _GET, {_FOLLOWER: lambda: Line.get(next(keys)), **by_hand}
    yield (
        _HUNDRED,
        {
            _FOLLOWER: lambda: (
                Line.find({"_id": {"$gte": next(keys)}}).sort("_id").limit(_LIST).to_list()
            ),
            _LOOKUP: many_by_lookup,
            _AGAIN: many_by_lookup,
        },
    )


@asynccontextmanager
async def _filled(url: str) -> AsyncIterator[None]:
    """A new database with the documents, dropped afterwards.

    Each side has a client of its own: a class without a policy may not share a follower's
    collection in one.
    """
    name = f"ttl_odm_{uuid4().hex[:16]}"
    async with (
        AsyncMongoClient[dict[str, Any]](url) as client,
        AsyncMongoClient[dict[str, Any]](url) as other,
    ):
        database = client[name]
        try:
            await init_beanie(database=other[name], document_models=[PlainCart, PlainLine])
            await init_beanie(database=ttl_database(database), document_models=[Cart, Line])
            await ensure_indexes(Cart)
            now = (await client.admin.command({"hello": 1}))["localTime"]
            ends = {True: now, False: now.replace(year=now.year - 30)}
            await database["carts"].insert_many(
                {"_id": key, "_ts": ends[key % _EXPIRES_EVERY > 0]} for key in _CARTS
            )
            await database["lines"].insert_many(
                {"_id": key, "cart_id": key // _LINES, "payload": "x" * 100}
                for key in range(_LINES, _LINES * _CARTS.stop)
            )
            yield
        finally:
            await client.drop_database(database)


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on MongoDB.

    Args:
        bench: what there is; nothing is measured without a MongoDB.
    """
    if bench.mongodb is None:
        return
    url, rounds = bench.mongodb, bench.scale.rounds
    found = sittings(bench, lambda found: sit_in(_filled(url), _cases(), rounds, found))
    for what, taken in found.items():
        for section, over, under in _COMPARED:
            if under in taken[0][0]:
                is_goal = section == OVER_LOOKUP and what != _HUNDRED
                goal = BEANIE_FOLLOWS_KEY if is_goal else None
                yield ratio(section, what, MONGODB, taken, over, under, goal)

"""What a TTL costs on Beanie documents.

The same collection under two document classes: one has a policy and comes through `ttl_database`,
the other has none and comes from the plain database, once without any condition and once with the
one that somebody who knows the contract writes by hand. Needs Beanie 2 (PyMongo).
"""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, contextmanager
from itertools import cycle
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from beanie import Document, UpdateResponse, init_beanie
from pymongo import AsyncMongoClient

from benchmarks.bench import MONGODB, tell
from benchmarks.findings import ratio
from benchmarks.goals import COUNT
from benchmarks.goals import DOCUMENTS as GOAL
from benchmarks.harness import sitting, undisturbed
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database

if TYPE_CHECKING:
    from collections.abc import (
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Iterable,
        Iterator,
        Mapping,
    )
    from contextlib import AbstractAsyncContextManager

    from benchmarks.bench import Bench
    from benchmarks.findings import Finding, Goal
    from benchmarks.harness import Round, Sample

    Operation = Callable[[], Awaitable[object]]

DAY = 86_400
GROUP = 100
DOCUMENTS = 10_000
EXPIRES_EVERY = 70
"""One document in so many has expired; none of those that are read by their key."""

COVERING = [("shelf", 1), ("_ts", 1), ("ttl", 1)]
"""An index with all that a count by shelf has to know."""

_LEAD_IN = 3
READS = "Beanie: reads through the gate / without ttl_odm"
OVER_BY_HAND = "Beanie: reads and touches through the gate / with a hand-written condition"
WRITES = "Beanie: writes through the gate / without ttl_odm"
NOISE = "Noise: the same without ttl_odm on MongoDB, twice"


class Item(TTLMixin, Document):
    """With a policy."""

    __ttl__ = DAY

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    group: int
    shelf: int
    name: str

    class Settings:
        """Beanie's settings."""

        name = "items"
        indexes = ("group", COVERING)


class PlainItem(Document):
    """Without one, on the same collection."""

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    group: int
    shelf: int
    name: str

    class Settings:
        """Beanie's settings."""

        name = "items"
        indexes = ("group", COVERING)


def live_by_hand(default: int) -> dict[str, Any]:
    """The filter that somebody who knows the contract writes.

    Args:
        default: the default ttl, in seconds.
    """
    own_end = {"$add": ["$_ts", {"$multiply": ["$ttl", 1000]}]}
    branches = [
        {"case": {"$eq": ["$ttl", -1]}, "then": True},
        {"case": {"$gte": ["$ttl", 1]}, "then": {"$gt": [own_end, "$$NOW"]}},
    ]
    by_default = {"$gt": ["$_ts", {"$subtract": ["$$NOW", default * 1000]}]}
    return {"$expr": {"$switch": {"branches": branches, "default": by_default}}}


BY_HAND = live_by_hand(DAY)


class Case(NamedTuple):
    """Something that is done in two or three ways."""

    what: str
    goal: Goal | None
    gate: Operation
    plain: Operation
    by_hand: Operation | None = None

    @property
    def ways(self) -> dict[str, Operation]:
        """What takes turns."""
        ways = {"gate": self.gate, "plain": self.plain, "again": self.plain}
        return ways if self.by_hand is None else {**ways, "by hand": self.by_hand}


DISTANT = (
    *("find_one by key", "get", f"find of {GROUP}"),
    *(f"count of {GROUP}", f"count of {GROUP} by a covering index"),
)
"""What is measured with a longer round trip too."""


def cases() -> Iterator[Case]:
    """What is compared."""
    keys = cycle(range(0, DOCUMENTS, 7))  # 7 and 70: none of them has expired, see `fill`
    new = iter(range(DOCUMENTS, 2**31))

    def live_key() -> int:
        return next(key for key in keys if key % EXPIRES_EVERY)

    yield Case(
        "find_one by key",
        GOAL,
        lambda: Item.find_one({"_id": live_key()}),
        lambda: PlainItem.find_one({"_id": live_key()}),
        lambda: PlainItem.find_one({"_id": live_key(), **BY_HAND}),
    )
    yield Case("get", GOAL, lambda: Item.get(live_key()), lambda: PlainItem.get(live_key()))
    yield Case(
        f"find of {GROUP}",
        GOAL,
        lambda: Item.find({"group": live_key() % GROUP}).to_list(),
        lambda: PlainItem.find({"group": live_key() % GROUP}).to_list(),
        lambda: PlainItem.find({"group": live_key() % GROUP, **BY_HAND}).to_list(),
    )
    yield Case(
        f"count of {GROUP}",
        COUNT,
        lambda: Item.find({"group": live_key() % GROUP}).count(),
        lambda: PlainItem.find({"group": live_key() % GROUP}).count(),
        lambda: PlainItem.find({"group": live_key() % GROUP, **BY_HAND}).count(),
    )
    yield Case(
        f"count of {GROUP} by a covering index",
        COUNT,
        lambda: Item.find({"shelf": live_key() % GROUP}).count(),
        lambda: PlainItem.find({"shelf": live_key() % GROUP}).count(),
        lambda: PlainItem.find({"shelf": live_key() % GROUP, **BY_HAND}).count(),
    )
    yield Case(
        "insert",
        None,
        lambda: Item(id=next(new), group=-1, shelf=-1, name="new").insert(),
        lambda: PlainItem(id=next(new), group=-1, shelf=-1, name="new").insert(),
    )
    yield Case(
        "update_one with $set",
        None,
        lambda: Item.find_one({"_id": live_key()}).update({"$set": {"name": "changed"}}),
        lambda: PlainItem.find_one({"_id": live_key()}).update({"$set": {"name": "changed"}}),
    )
    yield Case(
        "update_one with $inc",
        None,
        lambda: Item.find_one({"_id": live_key()}).update({"$inc": {"count": 1}}),
        lambda: PlainItem.find_one({"_id": live_key()}).update({"$inc": {"count": 1}}),
    )

    def stamped(query: Any, **options: Any) -> Any:
        return query.update({"$currentDate": {"_ts": True}}, **options)

    yield Case(
        "touch, by find",
        None,
        lambda: Item.find({"_id": live_key()}).touch(),
        lambda: stamped(PlainItem.find({"_id": live_key()})),
        lambda: stamped(PlainItem.find({"_id": live_key(), **BY_HAND})),
    )
    returning = {"response_type": UpdateResponse.NEW_DOCUMENT}
    yield Case(
        "touch and get, by find_one",
        None,
        lambda: Item.find_one({"_id": live_key()}).touch(),
        lambda: stamped(PlainItem.find_one({"_id": live_key()}), **returning),
        lambda: stamped(PlainItem.find_one({"_id": live_key(), **BY_HAND}), **returning),
    )


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def _timed(loop: asyncio.AbstractEventLoop, operation: Operation, lead_in: int) -> Sample:
    async def repeat(count: int) -> None:
        for _ in range(count):
            await operation()

    def sample(count: int) -> float:
        with undisturbed():
            loop.run_until_complete(repeat(lead_in))
            begin = perf_counter()
            loop.run_until_complete(repeat(count))
            return perf_counter() - begin

    return sample


@asynccontextmanager
async def _filled(url: str) -> AsyncIterator[None]:
    """A new database with the documents, dropped afterwards."""
    name = f"ttl_odm_{uuid4().hex[:16]}"
    # Not waiting for the journal, which would be nearly all that one sees of a write.
    async with AsyncMongoClient[dict[str, Any]](url, w=1, journal=False) as client:
        database = client[name]
        try:
            await init_beanie(database=database, document_models=[PlainItem])
            await init_beanie(database=ttl_database(database), document_models=[Item])
            await ensure_indexes(Item)
            now = (await client.admin.command({"hello": 1}))["localTime"]
            await database["items"].insert_many(
                {
                    "_id": key,
                    "group": key % GROUP,
                    "shelf": key % GROUP,
                    "name": f"item {key}",
                    "_ts": now,
                    # Past by the predicate; not by the index, so that MongoDB deletes nothing here.
                    **({} if key % EXPIRES_EVERY else {"_ts": now.replace(year=now.year - 30)}),
                }
                for key in range(DOCUMENTS)
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
    yield from compared(sittings(bench, lambda found: sit(url, rounds, found)))


def sittings(
    bench: Bench, sit_once: Callable[[dict[str, list[list[Round]]]], None]
) -> dict[str, list[list[Round]]]:
    """Measure on MongoDB as often as the scale says.

    Args:
        bench: what there is.
        sit_once: measures once, and adds a sitting to those of each case.
    """
    found: dict[str, list[list[Round]]] = {}
    for number in range(bench.scale.sittings):
        tell(f"  {MONGODB}: sitting {number + 1} of {bench.scale.sittings}")
        sit_once(found)
    return found


def sit(
    url: str,
    rounds: int,
    found: dict[str, list[list[Round]]],
    wanted: Collection[str] | None = None,
) -> None:
    """Measure once, with a new client and new documents.

    Args:
        url: the server's.
        rounds: how often everything takes its turn.
        found: the sittings of each case, to which one is added.
        wanted: what the cases are called that are measured; None for all.
    """
    chosen = ((case.what, case.ways) for case in cases() if wanted is None or case.what in wanted)
    sit_in(_filled(url), chosen, rounds, found)


def sit_in(
    database: AbstractAsyncContextManager[None],
    chosen: Iterable[tuple[str, Mapping[str, Operation]]],
    rounds: int,
    found: dict[str, list[list[Round]]],
    *,
    lead_in: int = _LEAD_IN,
) -> None:
    """Measure cases once, in a loop of their own.

    Args:
        database: opened before the first of them, and closed after the last.
        chosen: what each is called, and the ways that are compared.
        rounds: how often every way takes its turn.
        found: the sittings of each case, to which one is added.
        lead_in: how often an operation is run before its turn is timed.
    """
    with _loop() as loop:
        loop.run_until_complete(database.__aenter__())
        try:
            for what, ways in chosen:
                samples = {name: _timed(loop, way, lead_in) for name, way in ways.items()}
                found.setdefault(what, []).append(sitting(samples, rounds))
        finally:
            loop.run_until_complete(database.__aexit__(None, None, None))


def compared(found: dict[str, list[list[Round]]]) -> Iterator[Finding]:
    """What sittings say.

    Args:
        found: the sittings of each case that was measured.
    """
    for case in cases():
        if case.what in found:
            yield from _findings(case, found[case.what])


def _findings(case: Case, rounds: list[list[Round]]) -> Iterator[Finding]:
    is_read = not case.what.startswith(("insert", "update", "touch"))
    section = READS if is_read else WRITES
    yield ratio(section, case.what, MONGODB, rounds, "gate", "plain", case.goal)
    if case.by_hand is not None:
        yield ratio(OVER_BY_HAND, case.what, MONGODB, rounds, "gate", "by hand")
    yield ratio(NOISE, case.what, MONGODB, rounds, "again", "plain")

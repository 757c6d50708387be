"""What sweeping MongoDB costs, and whom it disturbs; MongoDB's own monitor is among the ways.

Each way of deleting gets the same documents in the same collection, newly filled, while another
process reads and writes live ones of it. The server's TTL monitor is made to look every second
meanwhile, so this is for a server that nobody else uses.
"""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient, MongoClient, ReturnDocument, WriteConcern

from benchmarks.bench import MONGODB, tell
from benchmarks.foreground import disturbance, foreground
from benchmarks.harness import rotated
from benchmarks.sweeping import ALONE, LEASED, SCRIPT, compared, idle_times
from benchmarks.sweeping_tables import AT_ONCE, BY_KEY, ROW_BY_ROW, SWEEPER
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.policy.ttl_indexes import (
    inheriting_branches,
    mongodb_indexes,
    own_branches,
)
from ttl_odm.core.policy import TTL
from ttl_odm.sweeper import AsyncSweeper, Hook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pymongo.asynchronous.database import AsyncDatabase
    from pymongo.database import Database

    from benchmarks.bench import Bench, Scale
    from benchmarks.findings import Finding
    from benchmarks.harness import Round

DAY: Final = 86_400
LIVE: Final = 10_000
NAME: Final = "entries"

_IDLE_SWEEPS: Final = 20
_KEYS: Final = 1_000
_MONITOR: Final = "ttlMonitorSleepSecs"


class Entry(TTLMixin, Document):
    """A document as wide as a small session."""

    __ttl__: ClassVar[Any] = DAY
    __ttl_purge__ = "sweeper"

    id: int  # type: ignore[assignment]
    payload: str

    class Settings:
        """Beanie's."""

        name = NAME


class Place:
    """A database of the benchmark's own, seen from both sides."""

    def __init__(self, url: str) -> None:
        """Connect."""
        self.url = url
        self.there: Database[dict[str, Any]] = MongoClient(url, tz_aware=True)[
            f"ttl_odm_{uuid4().hex}"
        ]

    def fill(self, rows: int, *, age: float = 2 * DAY) -> None:
        """Replace all documents: `LIVE` live ones, and some that were written some time ago."""
        self.there.drop_collection(NAME)
        self.run(_ready)
        now = self.now()
        payload = "some payload " * 8
        made = [{"_id": key, "_ts": now, "payload": payload} for key in range(LIVE)]
        made += [
            {"_id": LIVE + n, "_ts": now - timedelta(seconds=age - n / 100), "payload": payload}
            for n in range(rows)
        ]
        self.there[NAME].insert_many(made, ordered=False)

    def now(self) -> datetime:
        """Return the server's clock."""
        now: datetime = self.there.client.admin.command("hello")["localTime"]
        return now.replace(tzinfo=timezone.utc)

    def run(self, work: Callable[[Any], Awaitable[Any]]) -> Any:
        """Do something with an application's database."""

        async def running() -> Any:
            async with AsyncMongoClient[Any](self.url) as client:
                database = ttl_database(client[self.there.name])
                await init_beanie(database=database, document_models=[Entry])
                return await work(database)

        return asyncio.run(running())

    def close(self) -> None:
        """Clean up."""
        self.there.client.drop_database(self.there.name)
        self.there.client.close()


async def _ready(_: Any) -> None:
    await ensure_indexes(Entry)


def timed(way: Callable[[Place], int]) -> Callable[[Place], tuple[int, float]]:
    """Return a way that also tells how many seconds it took."""

    def run(place: Place) -> tuple[int, float]:
        begin = perf_counter()
        return way(place), perf_counter() - begin

    return run


def sweep(place: Place, **options: Any) -> int:
    """Delete as the sweeper does."""

    async def work(database: Any) -> int:
        report = await AsyncSweeper(database, Entry, lease=False, **options).run_once()
        report.raise_for_failures()
        return report.deleted

    deleted: int = place.run(work)
    return deleted


def sweep_and_tell(place: Place) -> int:
    """Delete as the sweeper does when a hook wants the keys."""
    return sweep(place, on_purged=Hook(lambda _: None))


def delete_many(place: Place) -> int:
    """Delete by one command, over the same index."""
    cutoff = place.now() - timedelta(days=1)
    expired = {**inheriting_branches(TTL(DAY))[0], "_ts": {"$lte": cutoff}}
    return place.there[NAME].delete_many(expired, hint="__ttl_sweep_default").deleted_count


def delete_by_key(place: Place) -> int:
    """Find keys and delete these, over and over: what is often written by hand."""
    entries, deleted = place.there[NAME], 0
    expired = {"ttl": None, "_ts": {"$lte": place.now() - timedelta(days=1)}}
    while keys := [entry["_id"] for entry in entries.find(expired, {"_id": 1}).limit(_KEYS)]:
        deleted += entries.delete_many({"_id": {"$in": keys}}).deleted_count
    return deleted


def delete_each(place: Place) -> int:
    """Delete document by document."""
    entries = place.there[NAME]
    keys = [entry["_id"] for entry in entries.find({"_id": {"$gte": LIVE}}, {"_id": 1})]
    return sum(entries.delete_one({"_id": key}).deleted_count for key in keys)


def monitor(place: Place) -> tuple[int, float]:
    """Let MongoDB delete: from the first document that is gone to the last."""
    entries = place.there[NAME]
    rows = entries.estimated_document_count()
    entries.drop_indexes()
    indexes = [index.document() for index in mongodb_indexes(TTL(DAY), "native")]
    place.there.command({"createIndexes": NAME, "indexes": indexes})
    while entries.estimated_document_count() == rows:
        sleep(0.001)
    begin = perf_counter()
    while entries.estimated_document_count() > LIVE:
        sleep(0.001)
    return rows - LIVE, perf_counter() - begin


TELLING: Final = "the sweeper, with a hook"
MONITOR: Final = "MongoDB's own monitor"
WAYS: Final[dict[str, Callable[[Place], tuple[int, float]]]] = {
    SWEEPER: timed(sweep),
    TELLING: timed(sweep_and_tell),
    AT_ONCE: timed(delete_many),
    BY_KEY: timed(delete_by_key),
    ROW_BY_ROW: timed(delete_each),
    MONITOR: monitor,
}


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on MongoDB.

    Args:
        bench: what there is; nothing is measured without a MongoDB.
    """
    if bench.mongodb is None:
        return
    scale = bench.scale
    place = Place(bench.mongodb)
    try:
        with _awake(place):
            sittings = []
            for number in range(scale.sittings):
                tell(f"  {MONGODB}: sitting {number + 1} of {scale.sittings}")
                sittings.append(_sit(place, scale, number))
        tell(f"  {MONGODB}: a big collection")
        yield from compared(MONGODB, sittings, _ways(scale))
        yield from idle_times(MONGODB, _idle(place, scale.big["mongodb"]))
    finally:
        place.close()


def _sit(place: Place, scale: Scale, number: int) -> Round:
    """Let every way delete once; return seconds per document, and what the other's work took."""
    rows, work = scale.expired["mongodb"], (place.there.name, NAME)
    place.fill(rows)
    with foreground(place.url, work, LIVE - 1) as took:
        sleep(scale.idle_seconds)
    found = disturbance(took, "idle")
    for way in rotated(_ways(scale), number):
        place.fill(min(rows, scale.one_by_one) if way == ROW_BY_ROW else rows)
        with foreground(place.url, work, LIVE - 1) as took:
            deleted, seconds = WAYS[way](place)
        found |= {way: seconds / deleted, **disturbance(took, way)}
    return found


def _ways(scale: Scale) -> list[str]:
    return [way for way in WAYS if scale.monitor or way != MONITOR]


def _idle(place: Place, rows: int) -> list[Round]:
    """The seconds of sweeps that find nothing: ours, and by a script."""
    place.fill(rows, age=DAY // 2)

    async def idle(database: Any) -> list[Round]:
        async with AsyncMongoClient[Any](place.url) as plain:
            script = Script(plain[place.there.name])
            await script.make_lease()
            ways: dict[str, Callable[[], Awaitable[object]]] = {
                ALONE: AsyncSweeper(database, Entry, lease=False).run_once,
                f"{ALONE}; {SCRIPT}": script.sweep,
                LEASED: AsyncSweeper(database, Entry).run_once,
                f"{LEASED}; {SCRIPT}": script.sweep_with_lease,
            }
            for way in ways.values():
                await way()
            rounds: list[Round] = []
            for number in range(_IDLE_SWEEPS):
                took = {}
                for name, way in rotated(ways.items(), number):
                    begin = perf_counter()
                    await way()
                    took[name] = perf_counter() - begin
                rounds.append(took)
            return rounds

    rounds: list[Round] = place.run(idle)
    return rounds


class Script:
    """A sweeper as somebody writes it for this one collection, as `sweeping_tables.Script` is.

    Args:
        database: a plain one.
    """

    def __init__(self, database: AsyncDatabase[dict[str, Any]]) -> None:
        """Name the collections."""
        self._entries = database[NAME]
        self._leases = database.get_collection("leases", write_concern=WriteConcern("majority"))

    async def make_lease(self) -> None:
        """Make the lease's document."""
        await self._leases.insert_one({"_id": "sweep", "token": 0})

    async def sweep(self) -> None:
        """Find that nothing has expired, by each of the two indexes."""
        inherits, own = inheriting_branches(TTL(DAY))[0], own_branches(TTL(DAY))[0]
        age = {"$lte": ["$_ts", {"$subtract": ["$$NOW", DAY * 1000]}]}
        looks = (
            ({**inherits, "$expr": age}, "__ttl_sweep_default", "_ts"),
            (
                {**own, "$expr": {"$lte": ["$_exp", "$$NOW"]}},
                "__ttl_sweep_own",
                "_exp",
            ),
        )
        hello = await self._entries.database.client.admin.command("hello")
        ends = {"_ts": hello["localTime"] - timedelta(seconds=DAY), "_exp": hello["localTime"]}
        for expired, index, field in looks:
            found = self._entries.find(expired).hint(index).max([(field, ends[field])])
            if await found.limit(1).to_list():
                raise RuntimeError("something has expired")

    async def sweep_with_lease(self) -> None:
        """Do so while nobody else does."""
        free = {"$or": [{"holder": None}, {"$expr": {"$lte": ["$ends", "$$NOW"]}}]}
        taken = {"holder": "script", "ends": {"$add": ["$$NOW", 60_000]}}
        lease = await self._leases.find_one_and_update(
            {"_id": "sweep", **free},
            [{"$set": {**taken, "token": {"$add": ["$token", 1]}}}],
            return_document=ReturnDocument.AFTER,
        )
        if lease is None:
            raise RuntimeError("somebody else sweeps")
        await self.sweep()
        ours = {"_id": "sweep", "holder": "script", "token": lease["token"]}
        result = {"holder": None, "ends": None, "result": {"deleted": 0}, "at": "$$NOW"}
        given_back = await self._leases.update_one(ours, [{"$set": result}])
        if given_back.modified_count != 1:
            raise RuntimeError("somebody else has taken the lease")


@contextmanager
def _awake(place: Place) -> Iterator[None]:
    """Let the server's monitor look every second."""
    admin = place.there.client.admin
    slept = admin.command({"getParameter": 1, _MONITOR: 1})[_MONITOR]
    admin.command({"setParameter": 1, _MONITOR: 1})
    try:
        yield
    finally:
        admin.command({"setParameter": 1, _MONITOR: slept})

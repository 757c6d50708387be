"""What sweeping MongoDB costs, and whom it disturbs: ``python -m benchmarks.mongo_sweeping``.

Each way of deleting gets the same documents in the same collection, newly filled, while another
process reads and writes live ones of it. See MONGO_SWEEPING.md. For its own server only: MongoDB's
TTL monitor is made to look every second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import threading
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from importlib.metadata import version
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, ClassVar, Final
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient, MongoClient

from benchmarks.harness import estimate, rotated
from benchmarks.report import Finding, Report, update_readme
from benchmarks.sql_overhead import circumstances
from tests.backends import VARIABLES
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.native import inheriting_branches, wanted_indexes
from ttl_odm.core.policy import TTL
from ttl_odm.sweeper import AsyncSweeper, Hook

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from pymongo.database import Database

    from benchmarks.harness import Round

README = Path(__file__).with_name("MONGO_SWEEPING.md")
DAY: Final = 86_400
LIVE: Final = 20_000
NAME: Final = "entries"

SPEED: Final = "1. Time per deleted document: the sweeper / another way"
DISTURBANCE: Final = "2. Somebody's commands on the same collection: meanwhile / when all is idle"
IDLE: Final = "3. A sweep of a collection of which nothing has expired"

_PACE_SECONDS: Final = 0.002
_IDLE_SECONDS: Final = 2.0
_IDLE_SWEEPS: Final = 20
_KEYS: Final = 1_000
_OBJECTS: Final = 2_000
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
    while keys := [each["_id"] for each in entries.find(expired, {"_id": 1}).limit(_KEYS)]:
        deleted += entries.delete_many({"_id": {"$in": keys}}).deleted_count
    return deleted


def delete_each(place: Place) -> int:
    """Delete document by document."""
    entries = place.there[NAME]
    keys = [each["_id"] for each in entries.find({"_id": {"$gte": LIVE}}, {"_id": 1})]
    return sum(entries.delete_one({"_id": key}).deleted_count for key in keys)


def monitor(place: Place) -> tuple[int, float]:
    """Let MongoDB delete: from the first document that is gone to the last."""
    entries = place.there[NAME]
    rows = entries.estimated_document_count()
    entries.drop_indexes()
    wanted = [each.document() for each in wanted_indexes(TTL(DAY), "native")]
    place.there.command({"createIndexes": NAME, "indexes": wanted})
    while entries.estimated_document_count() == rows:
        sleep(0.001)
    begin = perf_counter()
    while entries.estimated_document_count() > LIVE:
        sleep(0.001)
    return rows - LIVE, perf_counter() - begin


SWEEPER: Final = "the sweeper"
TELLING: Final = "the sweeper, with a hook"
EACH: Final = "document by document"
WAYS: Final[dict[str, Callable[[Place], tuple[int, float]]]] = {
    SWEEPER: timed(sweep),
    TELLING: timed(sweep_and_tell),
    "one delete_many": timed(delete_many),
    "find keys, delete these": timed(delete_by_key),
    EACH: timed(delete_each),
    "MongoDB's own monitor": monitor,
}


def work(url: str, name: str) -> None:
    """Read and write live documents until standard input ends; print how long each took.

    A process of its own: in one process the sweeper and its victims would share Python's lock.
    """
    client: MongoClient[dict[str, Any]] = MongoClient(url)
    entries = client[name][NAME]
    done = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        done.set()

    threading.Thread(target=wait, daemon=True).start()
    chance, took = random.Random(1), []  # noqa: S311
    entries.find_one({"_id": 0})
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while not done.is_set():
        begin = perf_counter()
        entries.find_one({"_id": chance.randrange(LIVE)})
        read = perf_counter()
        entries.update_one({"_id": chance.randrange(LIVE)}, {"$currentDate": {"seen": True}})
        took += [read - begin, perf_counter() - read]
        sleep(_PACE_SECONDS)
    client.close()
    sys.stdout.write(json.dumps(took) + "\n")


@contextmanager
def bystander(place: Place, found: dict[str, float], what: str) -> Iterator[None]:
    """Let another process work meanwhile, and note what its commands took."""
    process = subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-m", "benchmarks.mongo_sweeping", "--work", place.url, place.there.name],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None  # noqa: S101 (a pipe)
    process.stdout.readline()
    try:
        yield
    finally:
        out, _ = process.communicate("stop\n")
    took = json.loads(out)
    found[f"{what} p50"], found[f"{what} p99"] = median(took), quantiles(took, n=100)[98]


def sit(place: Place, rows: int, number: int) -> Round:
    """Let every way delete once; return seconds per document, and what the other's work took."""
    found: dict[str, float] = {}
    place.fill(rows)
    with bystander(place, found, "idle"):
        sleep(_IDLE_SECONDS)
    for way in rotated(WAYS, number):
        place.fill(min(rows, _OBJECTS) if way == EACH else rows)
        with bystander(place, found, way):
            deleted, seconds = WAYS[way](place)
        found[way] = seconds / deleted
    return found


def compared(sittings: list[Round]) -> list[Finding]:
    """Turn sittings into findings."""

    def finding(section: str, what: str, over: str, under: str) -> Finding:
        ratio = estimate([[each] for each in sittings], lambda each: each[over] / each[under])
        one, other = (median(each[key] * 1e6 for each in sittings) for key in (over, under))
        return Finding(section, what, "MongoDB", "ratio", ratio, (one, other))

    speeds = [finding(SPEED, way, SWEEPER, way) for way in WAYS if way != SWEEPER]
    return speeds + [
        finding(DISTURBANCE, f"{name} during {way}", f"{way} {name}", f"idle {name}")
        for way in WAYS
        for name in ("p50", "p99")
    ]


def at_rest(place: Place, rows: int) -> Finding:
    """Measure a sweep that finds nothing."""
    place.fill(rows, age=DAY // 2)

    async def idle(database: Any) -> list[Round]:
        sweeper = AsyncSweeper(database, Entry, lease=False)
        await sweeper.run_once()
        times: list[Round] = []
        for _ in range(_IDLE_SWEEPS):
            begin = perf_counter()
            await sweeper.run_once()
            times.append({"idle": (perf_counter() - begin) * 1e6})
        return times

    times = estimate([[each] for each in place.run(idle)], lambda each: each["idle"])
    return Finding(IDLE, f"time, {rows + LIVE:,} documents", "MongoDB", "µs", times, goal=5_000.0)


@contextmanager
def awake(place: Place) -> Iterator[None]:
    """Let the server's monitor look every second."""
    admin = place.there.client.admin
    slept = admin.command({"getParameter": 1, _MONITOR: 1})[_MONITOR]
    admin.command({"setParameter": 1, _MONITOR: 1})
    try:
        yield
    finally:
        admin.command({"setParameter": 1, _MONITOR: slept})


def main() -> int:
    """Measure, and show what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.mongo_sweeping",
        description="Measure what sweeping MongoDB costs and whom it disturbs, as ratios.",
        allow_abbrev=False,
    )
    parser.add_argument("--sittings", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--rows", type=int, default=60_000, help="for each way (%(default)s)")
    parser.add_argument("--big", type=int, default=500_000, help="at rest (%(default)s)")
    parser.add_argument("--update-readme", action="store_true", help=f"put it into {README.name}")
    parser.add_argument("--work", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(*arguments.work)
        return 0
    url = os.environ.get(VARIABLES["mongodb"])
    if not url:
        sys.stderr.write(f"{VARIABLES['mongodb']} is not set\n")
        return 1
    place = Place(url)
    try:
        with awake(place):
            sittings = [sit(place, arguments.rows, n) for n in range(arguments.sittings)]
        findings = [*compared(sittings), at_rest(place, arguments.big)]
        server = place.there.client.server_info()["version"]
    finally:
        place.close()
    sizes = f"{arguments.sittings} sittings; {arguments.rows:,} expired documents for each way"
    driver = f"MongoDB {server}, PyMongo {version('pymongo')}"
    report = Report(circumstances(sizes, [driver]), findings, [])
    sys.stdout.write(f"{report.as_text()}\n")
    if arguments.update_readme:
        update_readme(README, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""What a TTL costs on Beanie documents: ``python -m benchmarks.beanie_overhead``. See BEANIE.md.

The same collection under two document classes: one has a policy and comes through `ttl_database`,
the other has none and comes from the plain database, once without any condition and once with the
one that somebody who knows the contract writes by hand. Needs Beanie 2 (PyMongo).

The exit status is 0 whatever the figures are, for a benchmark is no test; 3 when it can't run.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import sys
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timezone
from importlib.metadata import version
from itertools import cycle
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from beanie import Document, init_beanie
from pymongo import AsyncMongoClient
from pymongo.errors import ConnectionFailure

from benchmarks.harness import FEWEST_SITTINGS, ROUNDS, estimate, sitting, undisturbed
from benchmarks.report import Finding, Report, update_readme
from tests.backends import VARIABLES
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from benchmarks.harness import Round, Sample

    Operation = Callable[[], Awaitable[object]]

README = Path(__file__).with_name("BEANIE.md")
CANNOT_RUN = 3
DAY = 86_400
GROUP = 100
DOCUMENTS = 10_000
EXPIRES_EVERY = 70
"""One document in so many has expired; none of those that are read by their key."""

_LEAD_IN = 3
_SITTINGS = 10
_READS = "1. Reads through the gate / without ttl_odm"
_BY_HAND = "2. Reads through the gate / with a hand-written condition"
_WRITES = "3. Writes through the gate / without ttl_odm"


class Item(TTLMixin, Document):
    """With a policy."""

    __ttl__ = DAY

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    group: int
    name: str

    class Settings:
        """Beanie's settings."""

        name = "items"
        indexes = ("group",)


class PlainItem(Document):
    """Without one, on the same collection."""

    id: int  # type: ignore[assignment]  # pyright: ignore[reportIncompatibleVariableOverride]
    group: int
    name: str

    class Settings:
        """Beanie's settings."""

        name = "items"
        indexes = ("group",)


BY_HAND = {
    "$expr": {
        "$switch": {
            "branches": [
                {"case": {"$eq": ["$ttl", -1]}, "then": True},
                {
                    "case": {"$gte": ["$ttl", 1]},
                    "then": {"$gt": [{"$add": ["$_ts", {"$multiply": ["$ttl", 1000]}]}, "$$NOW"]},
                },
            ],
            "default": {"$gt": ["$_ts", {"$subtract": ["$$NOW", DAY * 1000]}]},
        }
    }
}


class Case(NamedTuple):
    """Something that is done in two or three ways."""

    what: str
    goal: float | None
    gate: Operation
    plain: Operation
    by_hand: Operation | None = None


def cases() -> Iterator[Case]:
    """What is compared."""
    keys = cycle(range(0, DOCUMENTS, 7))  # 7 and 70: none of them has expired, see `fill`
    new = iter(range(DOCUMENTS, 2**31))

    def live_key() -> int:
        return next(key for key in keys if key % EXPIRES_EVERY)

    yield Case(
        "find_one by key",
        1.15,
        lambda: Item.find_one({"_id": live_key()}),
        lambda: PlainItem.find_one({"_id": live_key()}),
        lambda: PlainItem.find_one({"_id": live_key(), **BY_HAND}),
    )
    yield Case("get", 1.15, lambda: Item.get(live_key()), lambda: PlainItem.get(live_key()))
    yield Case(
        f"find of {GROUP}",
        1.15,
        lambda: Item.find({"group": live_key() % GROUP}).to_list(),
        lambda: PlainItem.find({"group": live_key() % GROUP}).to_list(),
        lambda: PlainItem.find({"group": live_key() % GROUP, **BY_HAND}).to_list(),
    )
    yield Case(
        f"count of {GROUP}",
        None,
        lambda: Item.find({"group": live_key() % GROUP}).count(),
        lambda: PlainItem.find({"group": live_key() % GROUP}).count(),
        lambda: PlainItem.find({"group": live_key() % GROUP, **BY_HAND}).count(),
    )
    yield Case(
        "insert",
        None,
        lambda: Item(id=next(new), group=-1, name="new").insert(),
        lambda: PlainItem(id=next(new), group=-1, name="new").insert(),
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


@contextmanager
def _loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    try:
        yield loop
    finally:
        loop.close()


def _timed(loop: asyncio.AbstractEventLoop, operation: Operation) -> Sample:
    async def repeat(count: int) -> None:
        for _ in range(count):
            await operation()

    def sample(count: int) -> float:
        with undisturbed():
            loop.run_until_complete(repeat(_LEAD_IN))
            begin = perf_counter()
            loop.run_until_complete(repeat(count))
            return perf_counter() - begin

    return sample


@asynccontextmanager
async def _filled(url: str) -> AsyncIterator[str]:
    """A new database with the documents, dropped afterwards; tells the server's version."""
    name = f"ttl_odm_{uuid4().hex[:16]}"
    async with AsyncMongoClient[dict[str, Any]](url) as client:
        database = client[name]
        try:
            await init_beanie(database=database, document_models=[PlainItem])
            await init_beanie(database=ttl_database(database), document_models=[Item])
            await ensure_indexes(Item)
            server = await client.server_info()
            now = (await client.admin.command({"hello": 1}))["localTime"]
            await database["items"].insert_many(
                {
                    "_id": key,
                    "group": key % GROUP,
                    "name": f"item {key}",
                    "_ts": now,
                    # Past by the predicate; not by the index, so that MongoDB deletes nothing here.
                    **({} if key % EXPIRES_EVERY else {"_ts": now.replace(year=now.year - 30)}),
                }
                for key in range(DOCUMENTS)
            )
            yield f"MongoDB {server['version']}"
        finally:
            await client.drop_database(database)


def measure(url: str, sittings: int) -> tuple[str, list[Finding]]:
    """Measure everything.

    Args:
        url: of the server.
        sittings: how often to begin anew.

    Returns:
        A line about the server's version, and the findings.
    """
    rounds: dict[str, list[list[Round]]] = {}
    server = ""
    for number in range(sittings):
        sys.stderr.write(f"MongoDB: sitting {number + 1} of {sittings}\n")
        with _loop() as loop:
            opened = _filled(url)
            server = loop.run_until_complete(opened.__aenter__())
            try:
                for case in cases():
                    ways = {"gate": case.gate, "plain": case.plain, "again": case.plain}
                    if case.by_hand is not None:
                        ways["by hand"] = case.by_hand
                    samples = {name: _timed(loop, way) for name, way in ways.items()}
                    rounds.setdefault(case.what, []).append(sitting(samples))
            finally:
                loop.run_until_complete(opened.__aexit__(None, None, None))
    return server, [finding for case in cases() for finding in _findings(case, rounds[case.what])]


def _findings(case: Case, rounds: list[list[Round]]) -> Iterator[Finding]:
    is_read = not case.what.startswith(("insert", "update"))
    yield _finding(_READS if is_read else _WRITES, case.what, rounds, "gate", "plain", case.goal)
    if case.by_hand is not None:
        yield _finding(_BY_HAND, case.what, rounds, "gate", "by hand", None)
    yield _finding("Noise: the same thing twice", case.what, rounds, "again", "plain", None)


def _finding(  # noqa: PLR0913, PLR0917 (what a table's line has)
    section: str,
    what: str,
    rounds: list[list[Round]],
    one: str,
    other: str,
    goal: float | None,
) -> Finding:
    times = (
        estimate(rounds, lambda each: each[one]).value * 1e6,
        estimate(rounds, lambda each: each[other]).value * 1e6,
    )
    ratio = estimate(rounds, lambda each: each[one] / each[other])
    return Finding(section, what, "MongoDB", "ratio", ratio, times, goal)


def main() -> int:
    """Measure, and show what was found."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.beanie_overhead",
        description="Measure what a TTL costs on Beanie documents, as ratios.",
        allow_abbrev=False,
    )
    parser.add_argument("--sittings", type=int, default=_SITTINGS, help="(%(default)s)")
    parser.add_argument("--json", type=Path, help="write everything, unrounded, to this file too")
    parser.add_argument("--update-readme", action="store_true", help=f"put it into {README.name}")
    arguments = parser.parse_args()
    if arguments.sittings < FEWEST_SITTINGS:
        parser.error(f"--sittings: fewer than {FEWEST_SITTINGS} give no 95 % interval")
    url = os.environ.get(VARIABLES["mongodb"])
    if not url:
        sys.stderr.write(f"{VARIABLES['mongodb']} is not set\n")
        return CANNOT_RUN
    try:
        server, findings = measure(url, arguments.sittings)
    except ConnectionFailure as error:
        sys.stderr.write(f"MongoDB: cannot run: {error}\n")
        return CANNOT_RUN
    report = Report(_circumstances(arguments.sittings, server), findings, [])
    sys.stdout.write(f"{report.as_text()}\n")
    if arguments.json is not None:
        arguments.json.write_text(f"{report.as_json()}\n", encoding="utf-8")
    if arguments.update_readme:
        update_readme(README, report)
    return 0


def _circumstances(sittings: int, server: str) -> list[str]:
    now = datetime.now(timezone.utc)
    beanie, pymongo = version("beanie"), version("pymongo")
    return [
        f"{now:%Y-%m-%d %H:%M} UTC, {platform.system()} {platform.machine()}",
        f"{os.cpu_count()} cores, load {os.getloadavg()[2]:.1f} over the last 15 minutes",
        f"Python {platform.python_version()}, Beanie {beanie}, PyMongo {pymongo}, {server}",
        f"{sittings} sittings of {ROUNDS} rounds; {DOCUMENTS:,} documents",
    ]


if __name__ == "__main__":
    sys.exit(main())

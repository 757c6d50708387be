"""Sweepers of MongoDB that are killed, many at once, cut off, and on hosts with a wrong clock."""

from __future__ import annotations

import asyncio
import random
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit
from uuid import uuid4

import pytest
from pymongo import MongoClient

from tests.faults import mongo_processes as processes
from ttl_odm.beanie import ensure_indexes
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pymongo.database import Database

HOUR = 3_600
KILLS = 10
LIVE = 100


@dataclass(frozen=True)
class Shop:
    """Carts of which some have expired.

    Attributes:
        url: The server's.
        there: The database, past the gate.
        expired: Keys of those that have.
    """

    url: str
    there: Database[Any]
    expired: int

    def job(self, **job: Any) -> Any:
        url = f"{self.url}&appName={self.there.name}"
        return processes.run(url=url, name=self.there.name, **job)

    def bury(self) -> None:
        """End the transactions of killed sweepers, as the server does after a minute.

        Looks again until nothing of them is left: the server may have read a command of theirs only
        now, or still be at work on it, and such a session is not idle.
        """
        admin = self.there.client.admin
        everything = {"idleSessions": True, "idleConnections": True, "allUsers": True}
        ours = {"$match": {"appName": self.there.name}}
        while traces := list(admin.aggregate([{"$currentOp": everything}, ours])):
            for each in traces:
                if "transaction" in each:
                    admin.command("killSessions", [{"id": each["lsid"]["id"]}])

    async def sweep(self) -> None:
        """Sweep, without keeping anything, until nothing is skipped."""
        ours, model = await processes.opened(self.url, self.there.name, "none")
        try:
            skipped = -1
            while skipped:
                report = await AsyncSweeper(ours, model).run_once()
                assert not report.problems
                skipped = self._skipped(report.to_dict())
        finally:
            await processes.closed(ours)

    def finish(self, mode: str) -> None:
        """Let processes sweep, one after the other, until nothing is skipped."""
        skipped = -1
        while skipped:
            options = {"lease_name": "the last", "pace": None}
            (report,) = self.job(mode=mode, number=1, options=options)
            assert report["targets"][0]["error"] is None
            skipped = self._skipped(report)

    def _skipped(self, report: Any) -> int:
        """Check that documents are left for no other reason than that somebody holds them."""
        (target,) = report["targets"]
        skipped = target["skipped"].get("locked", 0)
        assert target["skipped"] in ({}, {"locked": skipped})
        assert len(self.left() - lived(self)) == skipped, report
        if skipped:
            self.bury()
        return int(skipped)

    def left(self) -> set[int]:
        return {each["_id"] for each in self.there["carts"].find({}, {"_id": 1})}

    def kept(self) -> list[int]:
        return sorted(each.get("cart", each["_id"]) for each in self.there["kept"].find())

    def lease_seconds(self, name: str) -> float:
        """The seconds that a lease lasts, by the server's clock; 0 where it is free."""
        found = self.there["ttl_odm_lease"].find_one({"_id": name})
        if found is None or found.get("acquired_until") is None:
            return 0.0
        now = self.there.client.admin.command("hello")["localTime"].replace(tzinfo=timezone.utc)
        until: datetime = found["acquired_until"]
        return max((until - now).total_seconds(), 0.0)


@asynccontextmanager
async def shop(url: str, expired: int) -> AsyncIterator[Shop]:
    """Open one, and clear it away."""
    client: MongoClient[Any] = MongoClient(url, tz_aware=True)
    made = Shop(url, client[f"ttl_odm_{uuid4().hex}"], expired)
    ours, model = await processes.opened(url, made.there.name, "none")
    await ensure_indexes(model)
    await processes.closed(ours)
    now = client.admin.command("hello")["localTime"].replace(tzinfo=timezone.utc)
    old, new = now - timedelta(hours=2), now - timedelta(minutes=30)
    rows: list[dict[str, Any]] = [
        {"_id": key, "_ts": old + timedelta(seconds=key % 100), **({"ttl": 60} if key % 3 else {})}
        for key in range(expired)
    ]
    rows += [{"_id": expired + number, "_ts": new} for number in range(LIVE)]
    made.there["carts"].insert_many(rows)
    try:
        yield made
    finally:
        made.bury()  # or dropping would wait for them
        for name in made.there.list_collection_names():
            made.there.drop_collection(name)
        client.close()


def lived(place: Shop) -> set[int]:
    return set(range(place.expired, place.expired + LIVE))


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.parametrize("mode", ["archive", "hook"])
async def test_a_sweeper_killed_at_any_moment_loses_nothing_and_doubles_nothing(
    mongodb_url: str, mode: str
) -> None:
    async with shop(mongodb_url, KILLS * 100) as place:
        seed = random.randrange(10**9)  # noqa: S311
        came = place.job(mode=mode, kills=KILLS, seed=seed)
        assert came["killed"] == KILLS, came
        place.bury()
        place.finish(mode)
        assert place.left() == lived(place)
        assert place.kept() == list(range(place.expired))
        names = [each["_id"] for each in place.there["ttl_odm_lease"].find()]
        assert names
        for name in names:
            assert place.lease_seconds(name) <= 60


@pytest.mark.slow
async def test_another_sweeper_takes_over_when_the_lease_of_a_killed_one_has_ended(
    mongodb_url: str,
) -> None:
    async with shop(mongodb_url, 5_000) as place:
        options = {"lease_name": "the same", "lease_duration": 1.0}
        came = place.job(mode="hook", kills=1, seed=7, options=options)
        assert came["killed"] == 1
        while True:
            options = {"lease_name": "the same", "pace": None}
            (report,) = place.job(mode="hook", number=1, options=options)
            if report["ended"] == "finished":
                break
            assert report["ended"] == "lease_held"
            assert place.lease_seconds("the same") <= 1.0
        place.bury()
        await place.sweep()
        assert place.left() == lived(place)


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 8])
@pytest.mark.parametrize("lease", [True, False])
async def test_many_sweepers_at_once_tell_each_document_once(
    mongodb_url: str,
    number: int,
    lease: bool,  # noqa: FBT001
) -> None:
    async with shop(mongodb_url, 600) as place:
        options = {"lease": lease, "lease_name": "the same"}
        reports = place.job(mode="hook", number=number, options=options)
        assert len(reports) == number
        told = place.kept()
        assert len(told) == len(set(told)) == sum(report["deleted"] for report in reports)
        if lease:
            assert sum(report["ended"] == "finished" for report in reports) >= 1
            assert {report["ended"] for report in reports} <= {"finished", "lease_held"}
        place.finish("hook")
        assert place.kept() == list(range(600))
        assert place.left() == lived(place)


@pytest.mark.slow
@pytest.mark.parametrize("offset", [-HOUR, HOUR])
async def test_the_clock_of_the_host_does_not_matter(mongodb_url: str, offset: int) -> None:
    async with shop(mongodb_url, 50) as place:
        (report,) = place.job(mode="hook", number=1, clock=offset)
        assert report["error"] is report["targets"][0]["error"] is None
        assert report["deleted"] == 50
        assert HOUR <= report["targets"][0]["oldest_before"] < 2 * HOUR + 600
        assert place.left() == lived(place)
        place.job(mode="hook", kills=1, seed=1, clock=offset)
        for name in ("0", "1"):
            assert place.lease_seconds(name) <= 60


class Cable:
    """A connection through which others go, until it is cut."""

    def __init__(self, url: str) -> None:
        address = urlsplit(url)
        self._there = (address.hostname, address.port)
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.cuts = 0

    @asynccontextmanager
    async def plugged(self) -> AsyncIterator[str]:
        """Give the address of this end."""
        server = await asyncio.start_server(self._connect, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield f"mongodb://127.0.0.1:{port}/?directConnection=true"
        finally:
            server.close()
            self.cut()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break every connection."""
        self.cuts += 1
        while self._writers:
            self._writers.pop().transport.abort()

    async def _connect(self, read: asyncio.StreamReader, write: asyncio.StreamWriter) -> None:
        to_read, to_write = await asyncio.open_connection(*self._there)
        self._writers += [write, to_write]
        for source, target in ((read, to_write), (to_read, write)):
            task = asyncio.ensure_future(self._pass_on(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    @staticmethod
    async def _pass_on(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while some := await source.read(65_536):
                target.write(some)
                await target.drain()
        target.close()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["none", "archive"])
async def test_lost_connections_are_replaced(mongodb_url: str, mode: str) -> None:
    async with shop(mongodb_url, 600) as place:
        cable = Cable(mongodb_url)
        async with cable.plugged() as url:
            ours, model = await processes.opened(url, place.there.name, mode)
            chance = random.Random(3)  # noqa: S311
            loop = asyncio.get_running_loop()

            def cut(_: object) -> None:
                """Break the connections in the middle of a batch that is to come."""
                if cable.cuts < 5:
                    loop.call_later(chance.uniform(0, 0.01), cable.cut)

            report = await AsyncSweeper(ours, model, batch_size=40, on_progress=cut).run_once()
            await processes.closed(ours)
        assert not report.problems
        assert cable.cuts >= 5
        assert place.left() == lived(place)
        if mode == "archive":
            assert place.kept() == list(range(600))

"""Processes that are killed at any moment lose no event of MongoDB, and record none twice."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from beanie import init_beanie

from tests.events.mongo_killed import SeatHold, run
from tests.guard import GUARD
from tests.mongo.scratch import Scratch, scratch
from ttl_odm.beanie import ttl_database
from ttl_odm.events import AsyncEventWorker, events, on_expired
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

KILLS = int(os.environ.get("TTL_ODM_TEST_KILLS", "6"))


def bury(place: Scratch, name: str) -> None:
    """End the transactions of a process that was killed, as the server does after a minute.

    Looks again until nothing of them is left: the server may read a command of theirs only now.
    """
    admin: Any = place.database.client.admin
    everything = {"idleSessions": True, "idleConnections": True, "allUsers": True}
    theirs = {"$match": {"appName": name}}
    while traces := list(admin.aggregate([{"$currentOp": everything}, theirs])):
        for each in traces:
            if "transaction" in each:
                admin.command("killSessions", [{"id": each["lsid"]["id"]}])


@pytest.mark.slow
async def test_no_event_is_lost_or_recorded_twice(mongodb_url: str) -> None:
    seen: list[str] = []
    random = Random()  # noqa: S311 (any moment will do)
    # They are forked from a process that has imported everything, or they would start for longer
    # than they live.
    processing = multiprocessing.get_context("forkserver")
    processing.set_forkserver_preload(["tests.events.mongo_killed"])

    def start(number: int) -> ForkServerProcess:
        ours, theirs = processing.Pipe(duplex=False)
        url = f"{mongodb_url}&appName={place.database.name}-{number}"
        words = (url, place.database.name, "write" if number == 0 else "work", theirs)
        process = processing.Process(target=run, args=words, daemon=True)
        process.start()
        ending.callback(end, process, number)
        with ours, theirs:
            assert ours.poll(GUARD)
        return process

    def end(process: ForkServerProcess, number: int) -> None:
        process.kill()
        process.join(GUARD)
        assert process.exitcode == -signal.SIGKILL
        bury(place, f"{place.database.name}-{number}")

    async with scratch(mongodb_url) as place:
        database = ttl_database(place.ours.database)
        await init_beanie(database=database, document_models=[SeatHold])
        with ExitStack() as ending:
            processes = {number: start(number) for number in range(3)}
            for kill in range(KILLS):
                await asyncio.sleep(random.uniform(0.0, 0.5))
                number = kill % len(processes)
                end(processes[number], number)
                processes[number] = start(number)
        await asyncio.sleep(1.1)  # until all have expired, and what was taken is due again
        handler = on_expired(SeatHold, include=["life"], name="release")
        handler(lambda event: seen.append(event.id))
        # One that was killed may have the workers' lease.
        assert not (await AsyncSweeper(database, SeatHold, lease=False).run_once()).failed
        assert place.database["seat_holds"].count_documents({}) == 0
        worker = AsyncEventWorker(database, SeatHold)
        while (await worker.run_once()).total:
            pass
        recorded = [event.row["life"] async for event in events(database, consumer="audit")]
        lives = {life["_id"] for life in place.database["lives"].find()}
        handled = {each["event"] for each in place.database["handled"].find()}
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == lives
    assert len(lives) > KILLS
    assert len(handled.union(seen)) == len(lives)

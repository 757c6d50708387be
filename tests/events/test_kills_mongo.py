"""Processes that are killed at any moment lose no event of MongoDB, and record none twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from beanie import init_beanie

from tests.events.kills import assert_each_once, kill_at_random
from tests.events.mongo_killed import SeatHold, run
from tests.mongo.scratch import Scratch, scratch
from ttl_odm.beanie import ttl_database
from ttl_odm.events import AsyncEventWorker, events, on_expired
from ttl_odm.sweeper import AsyncSweeper


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
    async with scratch(mongodb_url) as place:
        database = ttl_database(place.ours.database)
        await init_beanie(database=database, document_models=[SeatHold])

        def name_of(number: int) -> str:
            return f"{place.database.name}-{number}"

        def words_for(number: int) -> tuple[str, str]:
            return f"{mongodb_url}&appName={name_of(number)}", place.database.name

        def after_kill(number: int) -> None:
            bury(place, name_of(number))

        await asyncio.to_thread(kill_at_random, run, words_for, after_kill)
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
    assert_each_once(recorded, lives, handled.union(seen))

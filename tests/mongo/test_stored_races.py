"""Whoever deletes while a stored default goes up and down: nothing that lives by then.

A change stream gives all writes of a database in the order in which they were committed. So no
interleaving has to be hit at the right moment: each deletion is judged by what was stored then.
"""

# ruff: noqa: S311 - no secrets

from __future__ import annotations

import asyncio
import random
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from pymongo.errors import DuplicateKeyError

from tests.mongo.stored import HOUR, Carts, carts, declared
from tests.mongo.test_stored_scopes_mongo import declared as scoped
from ttl_odm import Stored
from ttl_odm.beanie import set_policy

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = range(12)
OLD = timedelta(seconds=600)
"""Lives by an hour, and not by a minute."""

CHANGES = 40


async def change(place: Carts, scope: str | None = None) -> None:
    """Change the default to and fro; that of a scope between its own and the collection's."""
    shorter = 60 if scope is None else "default"
    for number in range(CHANGES):
        await set_policy(place.model, shorter if number % 2 else HOUR, scope=scope, by="ann")
        await asyncio.sleep(random.uniform(0, 0.01))


async def displace(place: Carts, is_over: Callable[[], bool]) -> None:
    """Take keys, those of expired documents too."""
    while not is_over():
        try:
            await place.collection.insert_one({"_id": random.choice(KEYS), "tenant": "acme"})
        except DuplicateKeyError:
            await asyncio.sleep(0)


async def sweep(place: Carts, is_over: Callable[[], bool]) -> None:
    while not is_over():
        await place.sweep()


async def grow_old(place: Carts, is_over: Callable[[], bool]) -> None:
    """Let documents be old, as another program would."""
    while not is_over():
        key, born = random.choice(KEYS), place.now() - OLD
        # In a thread: it may have to wait for a transaction of this one.
        update = {"$set": {"_ts": born, "tenant": "acme"}}
        await asyncio.to_thread(place.stored.update_one, {"_id": key}, update, upsert=True)
        await asyncio.sleep(random.uniform(0, 0.002))


def deletions(stream: Any, ttl: Any = HOUR) -> list[tuple[bool, Any]]:
    """Of each deletion, whether the document was old, and what was stored then."""
    born: dict[int, datetime] = {}
    found = []
    for event in stream:
        name, key = event["ns"]["coll"], event["documentKey"]["_id"]
        if name == "end":
            return found
        if name == "ttl_odm_policies" and key["scope"]:
            # The scope has its own default, or that of the collection, which is a minute.
            ttl = 60 if event["operationType"] == "delete" else HOUR
        elif name == "ttl_odm_policies":
            described = event.get("updateDescription", {}).get("updatedFields", {})
            ttl = described.get("ttl", ttl)
        elif name == "carts" and event["operationType"] == "delete":
            is_old = born[key] < datetime.now(timezone.utc) - OLD / 2
            found.append((is_old, ttl))
        elif name == "carts":
            document = event.get("fullDocument") or {}
            described = event.get("updateDescription", {}).get("updatedFields", {})
            born[key] = described.get("_ts") or document.get("_ts") or born[key]
    return found


@pytest.mark.slow
async def test_a_scope_without_a_default_of_its_own_may_get_one_at_any_moment(
    mongodb_url: str,
) -> None:
    model = scoped()
    async with carts(mongodb_url, model) as place:
        await set_policy(model, 60, by="ann")
        place.stored.insert_one({"_id": 0, "_ts": place.now(), "tenant": "acme"})
        with place.raw.watch() as stream:
            place.stored.update_one({"_id": 0}, {"$set": {"_ts": place.now() - OLD}})
            changing = asyncio.ensure_future(change(place, "acme"))
            others = [displace, displace, sweep, grow_old]
            await asyncio.gather(changing, *(other(place, changing.done) for other in others))
            place.add(99, age=OLD.total_seconds(), tenant="acme")
            assert (await place.sweep()).deleted >= 1
            place.raw["end"].insert_one({})
            found = deletions(stream, 60)

        assert set(found) == {(True, 60)}


@pytest.mark.slow
@pytest.mark.parametrize("max_staleness", [None, 1])
async def test_nothing_that_lives_is_deleted_whatever_happens_at_once(
    mongodb_url: str, max_staleness: int | None
) -> None:
    model = declared(Stored(HOUR, max_staleness=max_staleness))
    async with carts(mongodb_url, model) as place:
        changing: asyncio.Future[None]
        place.stored.insert_one({"_id": 0, "_ts": place.now()})
        with place.raw.watch() as stream:
            place.stored.update_one({"_id": 0}, {"$set": {"_ts": place.now() - OLD}})
            changing = asyncio.ensure_future(change(place))
            others = [displace, displace, displace, sweep, grow_old]
            await asyncio.gather(changing, *(other(place, changing.done) for other in others))
            place.add(99, age=OLD.total_seconds())
            assert (await place.sweep()).deleted >= 1  # it has come to rest at a minute
            place.raw["end"].insert_one({})
            found = deletions(stream)

        assert set(found) == {(True, 60)}

"""Whichever policy follows on which: no document is shown that MongoDB's indexes delete.

What they delete at a moment is asked of the server itself, by their fields, filters and seconds, so
that no test waits for its monitor.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from itertools import count, permutations, product
from typing import TYPE_CHECKING, Any

import pytest
from beanie import Document, init_beanie

from tests.mongo.models import World, opened
from ttl_odm import TTL, ExpireAfter, ExpireAt, TTLConfigurationError
from ttl_odm.beanie import TTLMixin, disable, enable, ensure_indexes, repair_strays
from ttl_odm.beanie.indexes import ensure, live_view
from ttl_odm.beanie.policy.bindings import collection_of
from ttl_odm.beanie.policy.predicate import end_of
from ttl_odm.beanie.policy.ttl_indexes import own_expiry
from ttl_odm.core import is_expired
from ttl_odm.core.policy import Policy, as_policy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

HOUR = 3600
# Before and after 600 seconds and one and two hours: minutes before, for they pass.
AGES = (80, 660, 3000, 3660, 7260)

POLICIES: list[Policy | int | None] = [
    600,
    HOUR,
    -1,
    None,
    TTL(HOUR, override=None),
    TTL(HOUR, never=(0, 600)),
    TTL(HOUR, last_modified="made"),
    TTL(600, max_lifetime=2 * HOUR, created="made"),
    TTL(HOUR, max_lifetime=HOUR, created="made"),
    ExpireAfter("made", 600),
    ExpireAfter("made", HOUR),
    ExpireAt("made"),
    ExpireAt("made", null="expired"),
]
SOME_POLICIES = [
    600,
    HOUR,
    None,
    TTL(HOUR, last_modified="made"),
    TTL(600, max_lifetime=2 * HOUR, created="made"),
    TTL(HOUR, max_lifetime=HOUR, created="made"),
    ExpireAfter("made", HOUR),
]


class Ledger(TTLMixin, Document):
    __ttl__: Any = HOUR
    id: int
    made: Any = None

    class Settings:
        name = "ledgers"


class ForeignLedger(Document):
    id: int

    class Settings:
        name = "foreign_ledgers"


@pytest.fixture
async def ledgers(mongodb_url: str) -> AsyncIterator[World]:
    async with opened(mongodb_url, [Ledger, ForeignLedger]) as world:
        yield world


def fill(world: World, policy: Policy) -> None:
    """Store documents of all ages, with ttls of their own and without, as the gate would."""
    now, raw = world.now(), world.of(Ledger)
    raw.delete_many({})
    own: list[dict[str, Any]] = [{}, {"ttl": 600}, {"ttl": -1}, {"ttl": "junk"}]
    grid = product(AGES, [*AGES, None], own)
    raw.insert_many(
        {
            "_id": key,
            "_ts": now - timedelta(seconds=age),
            **({} if made is None else {"made": now - timedelta(seconds=made)}),
            **ttl,
        }
        for key, (age, made, ttl) in enumerate(grid)
    )
    if isinstance(policy, TTL):
        raw.update_many({}, [{"$set": {"_exp": own_expiry(policy)}}])


async def shown(model: Any = Ledger) -> set[object]:
    """The keys that a reader gets."""
    return {document["_id"] async for document in collection_of(model).find({}, {"_id": 1})}


def doomed(world: World, model: Any = Ledger) -> set[object]:
    """The keys of what the monitor deletes when it comes by."""
    raw = world.of(model)
    answer = raw.database.command({"listIndexes": raw.name}, codec_options=raw.codec_options)
    keys: set[object] = set()
    for index in answer["cursor"]["firstBatch"]:
        if "expireAfterSeconds" in index:
            (field,) = index["key"]
            over = {field: {"$lte": world.now() - timedelta(seconds=index["expireAfterSeconds"])}}
            matches = {"$and": [index.get("partialFilterExpression", {}), over]}
            keys |= {document["_id"] for document in raw.find(matches, {"_id": 1})}
    return keys


async def at_risk(world: World) -> set[object]:
    """The keys of what is deleted, and shown by the class, or to other programs by the view."""
    seen, view = await shown(), world.raw["ledgers_live"]
    if view.name in world.raw.list_collection_names():  # else TTL is off
        seen |= {document["_id"] for document in view.find({}, {"_id": 1})}
    return seen & doomed(world)


def living(world: World, policy: Policy) -> set[object]:
    """The keys of the documents that live, by the contract."""
    now, documents = world.now(), world.of(Ledger).find()
    return {row["_id"] for row in documents if not is_expired(end_of(row, policy), now)}


async def ensure_repaired() -> None:
    """Make the indexes, as the messages say."""
    try:
        await ensure_indexes(Ledger, rebuild=True)
    except TTLConfigurationError as error:
        assert "repair_strays()" in str(error)  # noqa: PT017 (some pairs only)
        await repair_strays(Ledger)
        await ensure_indexes(Ledger, rebuild=True)


async def begin(world: World, monkeypatch: pytest.MonkeyPatch, policy: Any) -> None:
    """Have a policy from the beginning on, and documents."""
    monkeypatch.setattr(Ledger, "__ttl__", policy)
    world.of(Ledger).delete_many({})
    await ensure_indexes(Ledger, rebuild=True, view=True)
    fill(world, as_policy(policy))
    assert not await at_risk(world)


@pytest.mark.in_turns
@pytest.mark.slow
async def test_no_change_of_a_policy_shows_what_mongodb_deletes_at_any_moment(
    ledgers: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter, wrong = ensure.alter, []

    async def alter_and_look(collection: Any, command: Any, *backend: Any) -> Any:
        answer = await alter(collection, command, *backend)
        if await at_risk(ledgers):
            wrong.append((before, after, command))
        return answer

    for before, after in permutations(POLICIES, 2):
        await begin(ledgers, monkeypatch, before)

        monkeypatch.setattr(Ledger, "__ttl__", after)
        if await at_risk(ledgers):
            wrong.append((before, after, "assigned"))
        with monkeypatch.context() as patch:
            patch.setattr(ensure, "alter", alter_and_look)
            patch.setattr(live_view, "alter", alter_and_look)
            await ensure_repaired()

        if await shown() != living(ledgers, as_policy(after)):
            wrong.append((before, after, "shows others than live"))
    assert wrong == []


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.parametrize("last", range(1, 5))
async def test_nor_does_one_that_was_interrupted(
    ledgers: World, monkeypatch: pytest.MonkeyPatch, last: int
) -> None:
    """The answer to one of its commands is lost; then what was declared before comes back."""
    alter, wrong = ensure.alter, []
    counts = count(1)

    async def alter_or_lose(collection: Any, command: Any, *backend: Any) -> Any:
        answer = await alter(collection, command, *backend)
        if next(counts) == last:
            raise ConnectionResetError
        return answer

    for before, after in permutations(SOME_POLICIES, 2):
        await begin(ledgers, monkeypatch, before)
        monkeypatch.setattr(Ledger, "__ttl__", after)
        counts = count(1)
        with (
            monkeypatch.context() as patch,
            suppress(ConnectionResetError, TTLConfigurationError),
        ):
            patch.setattr(ensure, "alter", alter_or_lose)
            patch.setattr(live_view, "alter", alter_or_lose)
            await ensure_indexes(Ledger, rebuild=True)

        for policy in (after, before):
            monkeypatch.setattr(Ledger, "__ttl__", policy)
            if await at_risk(ledgers):
                wrong.append((before, after, policy))
        await ensure_repaired()
    assert wrong == []


async def test_a_class_that_is_defined_anew_waits_for_mongodb_too(ledgers: World) -> None:
    """As by a notebook's cell that is run again."""

    def defined(ttl: int) -> Any:
        class Note(TTLMixin, Document):
            __ttl__ = ttl
            id: int

        return Note

    database, first, second = collection_of(Ledger).database, defined(600), defined(HOUR)
    await init_beanie(database=database, document_models=[first])
    await ensure_indexes(first)
    await first(id=1).insert()
    ledgers.age(first, 1, 660)

    await init_beanie(database=database, document_models=[second])

    assert await shown(second) == set()
    await ensure_indexes(second)
    assert await shown(second) == {1}


async def test_so_does_a_policy_that_is_given_after_another_was_taken_away(ledgers: World) -> None:
    enable(ForeignLedger, 600)
    try:
        await ensure_indexes(ForeignLedger)
        await ForeignLedger(id=1).insert()
        ledgers.age(ForeignLedger, 1, 660)

        disable(ForeignLedger)
        enable(ForeignLedger, HOUR)

        assert await shown(ForeignLedger) == set()
        await ensure_indexes(ForeignLedger)
        assert await shown(ForeignLedger) == {1}
    finally:
        disable(ForeignLedger)


async def test_what_mongodb_has_forgotten_limits_no_later_policy(ledgers: World) -> None:
    enable(ForeignLedger, 600)
    await ensure_indexes(ForeignLedger)
    await ForeignLedger(id=1).insert()
    ledgers.age(ForeignLedger, 1, 660)

    disable(ForeignLedger)
    await ensure_indexes(ForeignLedger)
    enable(ForeignLedger, HOUR)
    try:
        assert await shown(ForeignLedger) == {1}
    finally:
        disable(ForeignLedger)

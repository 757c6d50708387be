"""A stored default where MongoDB itself deletes: it deletes nothing that any process shows.

What its indexes delete at a moment is asked of the server after each command, by their fields,
filters and seconds, so that no test waits for its monitor.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from datetime import timedelta
from itertools import cycle, permutations
from typing import TYPE_CHECKING, Any

import pytest

from tests.guard import GUARD
from tests.mongo.stored import HOUR, KEY, Carts, carts, declared
from tests.mongo.sweeping import Commands
from ttl_odm import Stored, TTLConfigurationError, TTLError
from ttl_odm.beanie import ensure_indexes, set_policy
from ttl_odm.beanie.policy.commands import RawCollection, Server
from ttl_odm.core.values import MAX_TTL, lenient_ttl
from ttl_odm.stored.beanie import turns

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

DEFAULTS = (60, 600, HOUR, -1, None)
AGES = (30, 300, 2000, 2 * HOUR)


class Watch(Commands):
    """Looks after each command whether a document is deleted that is shown."""

    def __init__(self) -> None:
        super().__init__()
        self.place: Carts | None = None
        self.wrong: list[Any] = []
        self.after: Callable[[], object] | None = None

    def succeeded(self, event: Any) -> None:
        if self.place is None:
            return
        if at_risk := (shown(self.place) | seen_in_view(self.place)) & doomed(self.place):
            self.wrong.append((event.command_name, self.place.row(), at_risk))
        if self.after is not None:
            self.after()


def shown(place: Carts) -> set[int]:
    """The keys of what lives by the document, as every process sees it."""
    row, now = place.row(), place.now()
    ttl = None if row is None else lenient_ttl(row.get("ttl"))
    keys = set()
    for document in place.stored.find():
        own = ttl if document.get("ttl") is None else document["ttl"]
        if ttl is None or own == -1 or document["_ts"] + timedelta(seconds=own) > now:
            keys.add(document["_id"])
    return keys


def seen_in_view(place: Carts) -> set[int]:
    """The keys that programs see which go past the gate."""
    if "carts_live" not in place.raw.list_collection_names():
        return set()
    return {document["_id"] for document in place.raw["carts_live"].find({}, {"_id": 1})}


def doomed(place: Carts) -> set[int]:
    """The keys of what the monitor deletes when it comes by."""
    keys: set[int] = set()
    answer = place.raw.command({"listIndexes": "carts"}, codec_options=place.stored.codec_options)
    for index in answer["cursor"]["firstBatch"]:
        if "expireAfterSeconds" in index:
            (field,) = index["key"]
            over = {field: {"$lte": place.now() - timedelta(seconds=index["expireAfterSeconds"])}}
            matches = {"$and": [index.get("partialFilterExpression", {}), over]}
            keys |= {document["_id"] for document in place.stored.find(matches, {"_id": 1})}
    return keys


def seconds_for(ttl: int | None) -> int | None:
    return MAX_TTL if ttl == -1 else ttl


@pytest.fixture
async def place(mongodb_url: str) -> AsyncIterator[Carts]:
    watch = Watch()
    async with carts(mongodb_url, declared(purge="native"), commands=watch) as made:
        for key, age in enumerate(AGES):
            made.add(key, age=age)
            own = made.now() - timedelta(seconds=age)
            ends = own + timedelta(seconds=600)
            made.stored.insert_one({"_id": 10 + key, "_ts": own, "ttl": 600, "_exp": ends})
        await ensure_indexes(made.model, view=True)
        watch.place = made
        yield made
        watch.place = None
        assert watch.wrong == []


def watch_of(place: Carts) -> Watch:
    assert isinstance(place.commands, Watch)
    return place.commands


@pytest.mark.slow
async def test_no_change_deletes_what_is_shown_at_any_moment(place: Carts) -> None:
    assert place.seconds() == HOUR
    for before, after in permutations(DEFAULTS, 2):
        await set_policy(place.model, before, by="ann")
        await set_policy(place.model, after, by="ann")

        assert place.seconds() == seconds_for(after)
        assert await place.shown() == shown(place)


@pytest.mark.in_turns
@pytest.mark.slow
@pytest.mark.parametrize("last", range(1, 12))
async def test_nor_does_one_that_is_interrupted(place: Carts, last: int) -> None:
    """It is cancelled when the answer to one of its commands comes."""
    watch, loop = watch_of(place), asyncio.get_running_loop()
    for before, after in permutations((60, HOUR, None), 2):
        await set_policy(place.model, before, by="ann")
        left = last
        work = asyncio.ensure_future(set_policy(place.model, after, by="ann"))

        def interrupt(work: Any = work) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                loop.call_soon_threadsafe(work.cancel)

        watch.after = interrupt
        await asyncio.wait([work])
        watch.after = None
        assert work.cancelled() or work.exception() is None

        # Where nobody could give the turn back.
        place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$unset": {"changing": 1}})
        row = place.row()
        assert row is not None
        await ensure_indexes(place.model)
        assert row["ttl"] in (before, after)
        assert place.seconds() == seconds_for(row["ttl"])


@pytest.mark.slow
async def test_many_changes_at_once_leave_index_and_document_agreed(place: Carts) -> None:
    changes = [set_policy(place.model, ttl, by="ann") for ttl in DEFAULTS * 2]
    await asyncio.gather(*changes, *(ensure_indexes(place.model, view=True) for _ in range(6)))

    row = place.row()
    assert row is not None
    assert place.seconds() == seconds_for(row["ttl"])
    assert place.raw["ttl_odm_policy_changes"].count_documents({}) == 10


async def test_a_release_with_another_start_changes_nothing(place: Carts) -> None:
    await set_policy(place.model, 600, by="ann")
    place.model.__ttl__ = Stored(60)

    await ensure_indexes(place.model)

    row = place.row()
    assert row is not None
    assert row["ttl"] == 600
    assert place.seconds() == 600


@pytest.mark.slow
async def test_an_index_that_must_be_built_again_refuses_a_change_before_it_is_made(
    place: Carts,
) -> None:
    place.stored.drop_index("__ttl_default")
    place.stored.create_index("_ts", name="__ttl_default", expireAfterSeconds=MAX_TTL)

    with pytest.raises(TTLConfigurationError, match="rebuild=True"):
        await set_policy(place.model, 60, by="ann")

    row = place.row()
    assert row is not None
    assert row["ttl"] == HOUR
    assert "changing" not in row


async def test_who_comes_late_to_its_turn_gives_up(
    place: Carts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody has taken it over, as after a pause of the process."""
    written = turns.Turn.write

    async def write(self: Any, *args: Any) -> None:
        await written(self, *args)
        place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$set": {"changing.by": "bob"}})

    monkeypatch.setattr(turns.Turn, "write", write)
    with pytest.raises(TTLError, match="Another client is changing"):
        await set_policy(place.model, 60, by="ann")
    assert place.seconds() == HOUR


@pytest.mark.slow
async def test_a_view_follows_each_change(place: Carts) -> None:
    for ttl in DEFAULTS:
        await set_policy(place.model, ttl, by="ann")
        assert seen_in_view(place) == (set() if ttl is None else shown(place))  # off: it is dropped
        await ensure_indexes(place.model, view=True)
        assert (seen_in_view(place) == shown(place)) is (ttl is not None)


@pytest.mark.slow
async def test_what_mongodb_may_delete_by_itself_is_swept_too(place: Carts) -> None:
    await set_policy(place.model, 60, by="ann")
    living = shown(place)

    await place.sweep()

    assert place.keys() == living


# What may be read again


async def test_a_shorter_life_is_one_of_the_index_only_when_no_note_says_otherwise(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, slept = [1000.0], []
    monkeypatch.setattr("ttl_odm.stored.beanie.lookup.monotonic", lambda: clock[0])
    model = declared(Stored(HOUR, max_staleness=5), purge="native")
    async with carts(mongodb_url, model) as place:
        place.add(1, age=600)
        assert await place.shown() == {1}
        place.put(60)
        place.commands.sent.clear()
        assert await place.shown() == {1}
        assert [name for command in place.commands.sent for name in command if name == "find"] == [
            "find"
        ]
        clock[0] += 4.99
        assert await place.shown() == {1}
        clock[0] += 0.01
        assert await place.shown() == set()

        place.put(HOUR)
        clock[0] += 5
        assert await place.shown() == {1}

        async def sleep(seconds: float) -> None:
            if seconds >= 1:
                row = place.row()
                assert row is not None
                slept.append((seconds, row["ttl"], place.seconds()))

        monkeypatch.setattr(turns, "sleep", sleep)
        await set_policy(place.model, 60, by="ann")
        assert slept == [(5, 60, HOUR)]
        assert place.seconds() == 60
        await set_policy(place.model, HOUR, by="ann")
        assert len(slept) == 1
        assert place.seconds() == HOUR
        assert await place.shown() == {1}


async def test_what_deletes_goes_by_no_note(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttl_odm.stored.beanie.lookup.monotonic", lambda: 1000.0)
    async with carts(mongodb_url, declared(Stored(60, max_staleness=5))) as place:
        place.add(1, age=600, name="old")
        assert await place.shown() == set()
        place.put(HOUR)
        assert await place.shown() == set()

        assert (await place.sweep()).deleted == 0
        result = await place.collection.update_one({"_id": 1}, {"$set": {"x": 1}}, upsert=True)
        assert (result.matched_count, result.upserted_id) == (1, None)
        assert place.stored.find_one({"_id": 1, "name": "old", "x": 1}) is not None


async def test_a_start_goes_by_no_note(mongodb_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ttl_odm.stored.beanie.lookup.monotonic", lambda: 1000.0)
    async with carts(mongodb_url, declared(Stored(60, max_staleness=5))) as place:
        place.add(1, age=600)
        assert await place.shown() == set()
        place.put(HOUR)
        assert await place.shown() == set()

        await ensure_indexes(place.model)
        assert await place.shown() == {1}


async def test_a_note_counts_only_as_long_as_who_changes_it_knows(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [1000.0]
    monkeypatch.setattr("ttl_odm.stored.beanie.lookup.monotonic", lambda: clock[0])
    async with carts(mongodb_url, declared(Stored(HOUR))) as place:
        place.model.__ttl__ = Stored(HOUR, max_staleness=5)  # a newer release, before its start
        place.add(1, age=600)
        assert await place.shown() == {1}
        place.put(60)
        assert await place.shown() == set()

        await ensure_indexes(place.model)
        clock[0] += 5
        place.put(HOUR)
        assert await place.shown() == {1}
        place.put(60)
        assert await place.shown() == {1}


async def test_an_interrupted_change_is_mended_when_no_note_says_otherwise(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = declared(Stored(HOUR, max_staleness=500), purge="native")
    async with carts(mongodb_url, model) as place:
        slept = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)
            if len(slept) == 1:
                raise asyncio.CancelledError

        monkeypatch.setattr(turns, "sleep", sleep)
        with pytest.raises(asyncio.CancelledError):
            await set_policy(place.model, 60, by="ann")
        assert place.seconds() == HOUR

        await ensure_indexes(place.model)

        assert len(slept) == 2
        assert 0 < slept[1] <= 500
        assert place.seconds() == 60


async def test_a_server_without_transactions_is_refused(
    mongodb_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with carts(mongodb_url, begun=False) as place:
        server = await RawCollection(place.collection).server()

        async def alone(self: Any) -> Server:
            del self
            return Server(server.now, has_transactions=False)

        monkeypatch.setattr(RawCollection, "server", alone)
        for work in (ensure_indexes(place.model), set_policy(place.model, 60, by="ann")):
            with pytest.raises(TTLConfigurationError, match="replica set"):
                await work
        assert place.row() is None


# Several processes


@contextmanager
def processes(url: str, name: str, starts: Sequence[int]) -> Iterator[list[subprocess.Popen[str]]]:
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    module = [sys.executable, "-m", "tests.mongo.stored_process", url, name]
    started = [subprocess.Popen([*module, str(start)], **pipes) for start in starts]
    try:
        yield started
    finally:
        for process in started:
            process.communicate(timeout=GUARD)


def ask(process: subprocess.Popen[str], line: str) -> set[int]:
    """Have a process do something, and return what it shows then."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(line, file=process.stdin, flush=True)
    return {int(key) for key in process.stdout.readline().split()}


@pytest.mark.slow
async def test_processes_of_several_releases_agree_in_the_operation_after_a_change(
    mongodb_url: str, place: Carts
) -> None:
    with processes(mongodb_url, place.raw.name, (HOUR, HOUR, 60)) as others:
        for process in others:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        assert place.seconds() == HOUR  # as it was begun

        for changes, ttl in zip(cycle(others), (60, HOUR, None, -1, 600), strict=False):
            seen = ask(changes, "off" if ttl is None else str(ttl))
            assert seen == shown(place) == await place.shown()
            assert [ask(process, "?") for process in others] == [seen] * 3
            assert place.seconds() == seconds_for(ttl)
            assert not seen & doomed(place)


@pytest.mark.slow
async def test_a_process_that_is_killed_while_it_changes_a_default_is_followed_by_another(
    mongodb_url: str, place: Carts
) -> None:
    """It held the turn, and had written the document."""
    with processes(mongodb_url, place.raw.name, (HOUR,)) as (other,):
        assert other.stdout is not None
        assert other.stdout.readline() == "ready\n"
        changing = {"by": "gone", "until": place.now() + timedelta(seconds=1)}
        place.raw["ttl_odm_policies"].update_one({"_id": KEY}, {"$set": {"changing": changing}})
        place.put(60)

        assert ask(other, "600") == shown(place)
        assert place.seconds() == 600

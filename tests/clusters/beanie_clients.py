"""Beanie's `clients.Application`: documents of a replica set, whose driver follows the primary.

A class of documents has one collection, and an asynchronous client belongs to one event loop. So
one loop runs in a thread of its own, and the clients' threads wait there for their coroutines.

What an operation found must not be undone later, and a primary that was replaced must not answer as
if it were one: so reads are linearizable, and a majority has what was written. MongoDB's own
defaults promise neither. Secondaries answer with what they have.
"""

# ruff: noqa: D106 - Beanie's Settings are plain class attributes

from __future__ import annotations

import asyncio
import inspect
import threading
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib import metadata
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from beanie import Document, UpdateResponse, init_beanie
from beanie.exceptions import DocumentNotFound
from pymongo import MongoClient, ReadPreference
from pymongo.errors import DuplicateKeyError, PyMongoError
from pymongo.monitoring import CommandListener
from pymongo.read_concern import ReadConcern
from pymongo.uri_parser import parse_uri

from tests.clusters.clients import DEFAULT_TTL, LEASE, microseconds
from tests.clusters.history import Kind, Outcome, Row
from tests.mongo.models import collection_of
from tests.mongo.scratch import connect
from ttl_odm.beanie import TTLMixin, ensure_indexes, ttl_database
from ttl_odm.beanie.policy.bindings import registry_of
from ttl_odm.beanie.purge.errors import ExpiredError
from ttl_odm.beanie.sweep.store import MongoStore
from ttl_odm.sweeper import AsyncSweeper

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator

    from local_servers.cluster import Cluster, Member
    from tests.clusters.clients import Noted, SweepJournal
    from tests.clusters.places import Places
    from ttl_odm.sweeper import AsyncLeases, Lease, LeaseState, Purged, SweepReport

T = TypeVar("T")

_CONCERNS = "readConcernLevel=linearizable&w=majority"


class Entry(TTLMixin, Document):
    __ttl__ = DEFAULT_TTL
    __ttl_purge__ = "sweeper"
    id: str
    version: str

    class Settings:
        name = "cluster_entries"


@contextmanager
def opened(places: Places) -> Iterator[BeanieApplication]:
    """As in `clients.Opening`."""
    with _running_loop() as loop:
        application = loop.wait(_application_at(places, loop))
        try:
            yield application
        finally:
            loop.wait(application.close())


def described(cluster: Cluster) -> tuple[str, str]:
    """Say which server and which driver it is."""
    with MongoClient[Any](cluster.url) as client:
        version = str(client.server_info()["version"])
    return version, f"Beanie {metadata.version('beanie')}, PyMongo {metadata.version('pymongo')}"


@dataclass(frozen=True)
class _Loop:
    """An event loop that runs in another thread."""

    running: asyncio.AbstractEventLoop

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self.running).result()


@contextmanager
def _running_loop() -> Iterator[_Loop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="event loop")
    thread.start()
    try:
        yield _Loop(loop)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


@dataclass
class _Answer:
    """Which server was the last to answer, in one operation."""

    server: str = ""


_answer: ContextVar[_Answer | None] = ContextVar("answer", default=None)


def _listen() -> _Answer:
    """Let the servers that answer this coroutine be noted."""
    answer = _Answer()
    _answer.set(answer)
    return answer


class _Answers(CommandListener):
    """Notes for each operation which member answers it."""

    def __init__(self, members: Iterable[Member]) -> None:
        self._names = {parse_uri(member.url)["nodelist"][0]: member.name for member in members}

    def started(self, event: Any) -> None:
        """Nothing was answered yet."""

    def succeeded(self, event: Any) -> None:
        """The driver calls this in the operation's own context."""
        answer = _answer.get()
        if answer is not None:
            answer.server = self._names.get(event.connection_id, "")

    failed = succeeded


async def _application_at(places: Places, loop: _Loop) -> BeanieApplication:
    """Make the collection with its indexes."""
    url = places.cluster.url
    client = connect(
        f"{url}{'&' if '?' in url else '?'}{_CONCERNS}",
        tz_aware=True,
        event_listeners=[_Answers(places.cluster.members)],
    )
    application = BeanieApplication(client, loop)
    await init_beanie(database=application.database, document_models=[Entry])
    await ensure_indexes(Entry)
    return application


class BeanieApplication:
    """The `clients.Application`."""

    def __init__(self, client: Any, loop: _Loop) -> None:
        self._client = client
        self._loop = loop
        self.database = ttl_database(client[f"ttl_odm_{uuid4().hex}"])
        self.primary = BeanieAccess(loop, self.database, ReadPreference.PRIMARY)
        self.replica = BeanieAccess(loop, self.database, ReadPreference.SECONDARY)

    @contextmanager
    def sweeping(self, journal: SweepJournal, *, watched: bool) -> Iterator[BeanieSweeping]:
        """As in `Application`."""
        yield BeanieSweeping(journal, self._loop, self.database, watched=watched)

    def reconnect(self) -> None:
        """As in `Application`: the driver follows the primary by itself."""

    async def close(self) -> None:
        """Drop the database, and close all connections."""
        await self._client.drop_database(self.database.name)
        closing = self._client.close()
        if inspect.isawaitable(closing):
            await closing


class BeanieAccess:
    """`clients.Access` by documents, and for reads by their collection.

    Args:
        loop: Where its coroutines run.
        database: The documents'.
        preference: From where they are read.
    """

    away = (PyMongoError,)

    def __init__(self, loop: _Loop, database: Any, preference: Any) -> None:
        self._loop = loop
        self._database = database
        self._preference = preference

    def read(self, noted: Noted) -> None:
        """As in `Access`."""
        self._loop.wait(self._read(noted))

    def write(self, noted: Noted, ttl: int | None) -> None:
        """As in `Access`."""
        self._loop.wait(self._write(noted, ttl))

    def now(self) -> int:
        """As in `Access`."""
        return self._loop.wait(_now(self._database, self._preference))

    async def _read(self, noted: Noted) -> None:
        answer, collection = _listen(), collection_of(Entry)
        if self._preference is not ReadPreference.PRIMARY:
            collection = collection.with_options(
                read_preference=self._preference, read_concern=ReadConcern("local")
            )
        noted.asked = await _now(self._database, self._preference)
        stages = [{"$match": {"_id": {"$in": [*noted.keys]}}}, {"$addFields": {"now": "$$NOW"}}]
        cursor = collection.aggregate(stages)
        if inspect.isawaitable(cursor):  # not Motor's
            cursor = await cursor
        rows = await cursor.to_list(None)
        noted.server = answer.server
        noted.rows = tuple(
            Row(
                row["_id"],
                row["version"],
                microseconds(row["_ts"]),
                row.get("ttl"),
                microseconds(row["now"]),
            )
            for row in rows
        )
        noted.answered = await _latest(self._database, self._preference)

    async def _write(self, noted: Noted, ttl: int | None) -> None:
        answer = _listen()
        noted.asked = await _now(self._database, self._preference)
        noted.outcome = Outcome.UNKNOWN
        try:
            noted.outcome = await _change(noted, ttl)
        finally:
            noted.server = answer.server
        noted.answered = await _latest(self._database, self._preference)


async def _change(noted: Noted, ttl: int | None) -> Outcome:
    """Change a document, and note how it is then."""
    (key,) = noted.keys
    try:
        left = await _CHANGES[noted.kind](key, noted.version, ttl)
    except (ExpiredError, DocumentNotFound):
        return Outcome.MISSED
    except DuplicateKeyError:
        return Outcome.REFUSED
    if isinstance(left, Entry):
        # Each command returns the stamp that it has set; a later read may find another's.
        assert left.last_modified is not None
        changed = microseconds(left.last_modified)
        noted.rows = (Row(key, left.version, changed, left.ttl, changed),)
    return Outcome.ACKNOWLEDGED if left else Outcome.MISSED


async def _insert(key: str, version: str | None, ttl: int | None) -> Entry | None:
    return await Entry(id=key, version=version, ttl=ttl).insert()


async def _renew(key: str, version: str | None, ttl: int | None) -> Entry | None:
    entry = await Entry.get(key)
    if entry is not None:
        await entry.set({"version": version, "ttl": ttl})
    return entry


async def _touch(key: str, _version: str | None, _ttl: int | None) -> Entry | None:
    return await Entry.find_one({"_id": key}).touch()


async def _update(key: str, version: str | None, ttl: int | None) -> Entry | None:
    entry: Entry | None = await Entry.find_one({"_id": key}).update(
        {"$set": {"version": version, "ttl": ttl}}, response_type=UpdateResponse.NEW_DOCUMENT
    )
    return entry


async def _delete(key: str, _version: str | None, _ttl: int | None) -> bool:
    result = await Entry.find_one({"_id": key}).delete()
    return result is not None and bool(result.deleted_count)


_CHANGES: dict[Kind, Callable[[str, str | None, int | None], Awaitable[Entry | bool | None]]] = {
    Kind.INSERT: _insert,
    Kind.RENEW: _renew,
    Kind.TOUCH: _touch,
    Kind.UPDATE: _update,
    Kind.DELETE: _delete,
}
"""What does each kind of write, and returns what it left, or whether there was something."""


async def _now(database: Any, preference: Any = ReadPreference.PRIMARY) -> int:
    """A server's clock."""
    options = {"codec_options": database.codec_options, "read_preference": preference}
    reply = await database.command({"hello": 1}, **options)
    return microseconds(reply["localTime"])


async def _latest(database: Any, preference: Any) -> int:
    """The latest instant by which documents may have been judged.

    Those in a cursor's buffer are judged by an upper bound of the server's clock.
    """
    now, estimated = await _now(database, preference), registry_of(database.client).clock
    return max(now, microseconds(estimated.at_most())) if estimated.is_known else now


class BeanieSweeping:
    """The `clients.Sweeping`."""

    def __init__(self, journal: SweepJournal, loop: _Loop, database: Any, *, watched: bool) -> None:
        self.journal = journal
        self._loop = loop
        self._answer = _Answer()
        store = MongoStore(database, [Entry])
        self.sweeper = AsyncSweeper(
            store,
            lease=RecordedLeases(store.leases, journal, database),
            lease_duration=LEASE,
            on_progress=journal.batch,
            on_purged=self._purged if watched else None,
        )

    def run_once(self) -> SweepReport:
        """As in `Sweeping`."""
        self.journal.begin()
        return self._loop.wait(self._run_once())

    async def _run_once(self) -> SweepReport:
        self._answer = _listen()
        return await self.sweeper.run_once()

    def _purged(self, purged: Purged) -> None:
        self.journal.purged(purged, self._answer.server)


class RecordedLeases:
    """`ttl_odm.sweeper.AsyncLeases` that records who holds the lease when."""

    def __init__(self, leases: AsyncLeases, journal: SweepJournal, database: Any) -> None:
        self._leases = leases
        self._journal = journal
        self._database = database

    async def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `AsyncLeases`."""
        begin, asked = monotonic(), await self._now()
        lease = await self._leases.acquire(name, holder, duration)
        self._journal.acquired(lease, begin, asked, await self._now())
        return lease

    async def renew(self, lease: Lease) -> bool:
        """As in `AsyncLeases`."""
        begin, asked = monotonic(), await self._now()
        renewed = await self._leases.renew(lease)
        if renewed:
            self._journal.renewed(lease, begin, asked, await self._now())
        return renewed

    async def release(self, lease: Lease) -> None:
        """As in `AsyncLeases`."""
        begin = monotonic()
        try:
            await self._leases.release(lease)
        finally:
            self._journal.released(begin)

    async def finish(self, lease: Lease, history: str) -> bool:
        """As in `Finishing`, which the leases that ship are."""
        leases: Any = self._leases
        begin = monotonic()
        try:
            return bool(await leases.finish(lease, history))
        finally:
            self._journal.released(begin)

    async def read(self, name: str) -> LeaseState:
        """As in `AsyncLeases`."""
        return await self._leases.read(name)

    async def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001
        """As in `AsyncLeases`."""
        await self._leases.set_paused(name, paused)

    async def record(self, lease: Lease, history: str) -> bool:
        """As in `AsyncLeases`."""
        return await self._leases.record(lease, history)

    async def _now(self) -> int | None:
        """The server's clock; None where it can't be read, which is no reason to fail."""
        try:
            return await _now(self._database)
        except PyMongoError:
            return None

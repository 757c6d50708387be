"""Commands on one collection, past the gate, the same for both drivers.

Who manages indexes, repairs documents or purges them must see what is stored, and must not stamp
it. Two ways to read the answers:

- `run` and its like give plain dicts with aware dates, whatever the client was configured with, so
  that they can be compared with what we would send;
- a `RawCollection` keeps documents as the bytes that the server sent, so that no value is lost
  between finding one and archiving it, whatever its type; dates are milliseconds, which no calendar
  is too short for.

This module must not know policies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from bson import MinKey
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure, WriteConcernError, WriteError

from ttl_odm.beanie.time.clock import instant_of

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from bson import DatetimeMS

    from ttl_odm.beanie.drivers import Collection, Database, Document, Filter, Pipeline, Session
    from ttl_odm.beanie.policy.entries import Backend

NAMESPACE_NOT_FOUND: Final = 26
RAW: Final[CodecOptions[Any]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
Reply = TypeVar("Reply", bound="Mapping[str, Any]")
Hint: TypeAlias = str | dict[str, int]
"""An index's name, or its key pattern."""
BY_KEY: Final = {"_id": 1}
"""As a hint: also a clustered collection, which has no index of that name, takes it."""

BUILD: Final = "buildUUID"
"""What an index has while it is being built; those of one command have the same value."""

_MAJORITY: Final = {"w": "majority", "wtimeout": 60_000}
"""With a limit: without one, an application that changes its indexes when it starts would wait for
ever while no majority is there."""

_UNKNOWN_FIELD: Final = frozenset({323, 40415})
"""Why a server takes no field: the client keeps to the stable API, or its release has none."""

_NO_QUORUM: Final = _UNKNOWN_FIELD | {2}
"""Why it takes no commit quorum: the same, or it has no replica set."""

_MOST_COUNTED: Final = 10_000
"""Values in the reply that counts documents by them."""
_AWARE: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True)


async def run(collection: Collection, command: Document) -> Document:
    """Run a command in the collection's database, on the primary; as `command_in` does."""
    plain = collection.codec_options.with_options(document_class=dict, tz_aware=True, tzinfo=None)
    reply: Document = await collection.database.command(command, codec_options=plain)
    return _checked(reply)


async def alter(collection: Collection, command: Document, backend: Backend) -> Document:
    """Run a command that changes a collection's schema, such as createIndexes, collMod or drop.

    On MongoDB it waits until a majority has the change, so that no election undoes it. MongoDB
    itself would build an index only once all members can take part, and wait for one that is down.
    Other backends have no members that a client knows of, and get the command as it is.

    Raises:
        WriteConcernError: It was done, but a majority didn't acknowledge it within a minute.
    """
    if backend != "mongodb":
        return await run(collection, command)
    durable = {**command, "writeConcern": _MAJORITY}
    if "createIndexes" in command:
        try:
            return await run(collection, {**durable, "commitQuorum": "majority"})
        except OperationFailure as error:
            if error.code not in _NO_QUORUM:
                raise
    return await run(collection, durable)


async def first_batch(collection: Collection, command: Document) -> list[Document]:
    """Run a command that answers with a cursor, and return its first batch."""
    batch: list[Document] = (await run(collection, command))["cursor"]["firstBatch"]
    return batch


async def details_of(collection: Collection) -> Document:
    """Return what listCollections says: type and options; empty if it does not exist."""
    listing = {"listCollections": 1, "filter": {"name": collection.name}}
    return next(iter(await first_batch(collection, listing)), {})


async def indexes_of(collection: Collection) -> list[Document]:
    """Return what listIndexes says, ours included; a collection has 64 indexes at most."""
    try:
        return await first_batch(collection, {"listIndexes": collection.name})
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return []
        raise


async def indexes_and_builds_of(collection: Collection, backend: Backend) -> list[Document]:
    """Return the same, and mark indexes that are still being built, where the server says which.

    Such an index has the id of its build as `BUILD`. After an election, the new primary continues
    the builds that it knows of.
    """
    if backend != "mongodb":
        return await indexes_of(collection)
    listing = {"listIndexes": collection.name, "includeBuildUUIDs": True}
    try:
        listed = await first_batch(collection, listing)
    except OperationFailure as error:
        if error.code not in _UNKNOWN_FIELD | {NAMESPACE_NOT_FOUND}:
            raise
        return await indexes_of(collection)
    return [{**index["spec"], BUILD: index[BUILD]} if BUILD in index else index for index in listed]


def as_datetime(instant: DatetimeMS) -> datetime:
    """Return an instant of a server's clock as an aware datetime."""
    return instant.as_datetime(_AWARE)


@dataclass(frozen=True, slots=True)
class KeyRange:
    """A range of an index on one field; the high end is outside, None for the index's own."""

    index: Hint
    field: str
    low: Any
    high: Any = None

    def bounds(self) -> Document:
        """Return the clauses by which a find walks this range and nothing else.

        Unlike a condition on the field they need no proof that a partial index holds all that is
        looked for. And they are about entries of the index, so an array is found by its dates.
        """
        bounds: Document = {"hint": self.index, "min": {self.field: self.low}}
        if self.high is not None:
            bounds["max"] = {self.field: self.high}
        return bounds

    def condition(self) -> Document:
        """Return the condition that says the same, of values of all types.

        As a plain one where it can, for an expression finds nothing by an index.
        """
        low, high = self.low, self.high
        if _bracket(low) is _bracket(high) or (high is None and isinstance(low, MinKey)):
            limit = {} if high is None else {"$lt": high}
            return {self.field: {"$gte": low, **limit}}
        path = f"${self.field}"
        bounds: list[Document] = [{"$gte": [path, {"$literal": low}]}]
        if high is not None:
            bounds.append({"$lt": [path, {"$literal": high}]})
        return {"$expr": {"$and": bounds}}


def _bracket(value: object) -> type:
    """Return what a condition compares a value with: those of its type, or any number."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float if is_number else type(value)


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself: a member of a replica set, or a router, has transactions."""

    now: DatetimeMS
    has_transactions: bool


@dataclass(frozen=True, slots=True)
class RawCollection:
    """A collection, gated or not, and how commands reach it.

    In the session's transaction if there is one; each may take `timeout` seconds, None for any
    number. `has_ranges` says whether the server knows ranges of indexes; one that doesn't takes
    them without a word.
    """

    collection: Collection
    session: Session = None
    timeout: float | None = None
    has_ranges: bool = True

    def within(self, session: Session) -> RawCollection:
        """Return the same place in a transaction."""
        return replace(self, session=session)

    async def run(self, command: Document) -> Filter:
        """Run a command."""
        if self.timeout is not None:
            command = {**command, "maxTimeMS": max(1, round(self.timeout * 1000))}
        return await command_in(self.collection.database, command, self.session)

    async def server(self) -> Server:
        """Ask the server what time it is, and what it can do."""
        reply = await self.run({"hello": 1})
        has_transactions = "setName" in reply or reply.get("msg") == "isdbgrid"
        return Server(instant_of(reply), has_transactions)

    async def find(self, filter: Filter, **clauses: Any) -> list[RawBSONDocument]:  # noqa: A002 (MongoDB's name for it)
        """Find documents: so many as fit into one reply of the server, 16 MiB."""
        find = {"find": self.collection.name, "filter": filter, "singleBatch": True, **clauses}
        if "limit" in find:
            find["batchSize"] = find["limit"]
        rows: list[RawBSONDocument] = (await self.run(find))["cursor"]["firstBatch"]
        return rows

    async def find_in(
        self,
        reach: KeyRange,
        filter: Filter,  # noqa: A002 (as above)
        **clauses: Any,
    ) -> list[RawBSONDocument]:
        """Find documents in a range, in its order."""
        if self.has_ranges:
            return await self.find(filter, **clauses, **reach.bounds())
        both = {"$and": [reach.condition(), filter]}
        return await self.find(both, **clauses, sort={reach.field: 1})

    async def aggregate(self, pipeline: Pipeline, **clauses: Any) -> list[RawBSONDocument]:
        """Return what a pipeline gives: so much as fits into one reply of the server."""
        command: Document = {"aggregate": self.collection.name, "pipeline": pipeline}
        command["cursor"] = {"batchSize": _MOST_COUNTED}
        cursor = (await self.run({**command, **clauses}))["cursor"]
        rows: list[RawBSONDocument] = cursor["firstBatch"]
        if cursor["id"]:
            end = {"killCursors": self.collection.name, "cursors": [cursor["id"]]}
            await command_in(self.collection.database, end, self.session)
        return rows

    def beside(self, name: str) -> RawCollection:
        """Return another collection of the same database, in the same transaction."""
        database = self.collection.database
        other: Collection = database.client[database.name][name]
        return replace(self, collection=other)

    async def delete(self, filters: Sequence[Filter], hint: Hint | None = None) -> int:
        """Delete what any of some filters matches, and return how many documents that were."""
        clauses = {} if hint is None else {"hint": hint}
        deletes = [{"q": doomed, "limit": 0, **clauses} for doomed in filters]
        reply = await self.run({"delete": self.collection.name, "deletes": deletes})
        return int(reply["n"])

    async def update(self, filter: Filter, stages: Pipeline, hint: Hint) -> None:  # noqa: A002 (as above)
        """Change what a filter matches, by a pipeline."""
        update = {"q": filter, "u": stages, "multi": True, "hint": hint}
        await self.run({"update": self.collection.name, "updates": [update]})

    async def count(
        self,
        filter: Filter,  # noqa: A002 (as above)
        hint: Hint | None = None,
        by: Document | None = None,
    ) -> Counter[Any]:
        """Count what a filter matches by an expression; None for all as one."""
        pipeline = [{"$match": filter}, {"$group": {"_id": by, "rows": {"$sum": 1}}}]
        command: Document = {"aggregate": self.collection.name, "pipeline": pipeline}
        command["cursor"] = {"batchSize": _MOST_COUNTED}
        if hint is not None:
            command["hint"] = hint
        counts = (await self.run(command))["cursor"]["firstBatch"]
        return Counter({count["_id"]: int(count["rows"]) for count in counts})


async def is_multikey(place: RawCollection, index: str) -> bool:
    """Say whether a document is, or was, in an index more than once, because of an array."""
    find = {"find": place.collection.name, "limit": 1, "hint": index}
    plan = await place.run({"explain": find, "verbosity": "queryPlanner"})
    return _says(plan, "isMultiKey")


def _says(plan: object, what: str) -> bool:
    """Whether a plan says so of any index in it, however deep in a release's idea of plans."""
    if isinstance(plan, Mapping):
        return plan.get(what) is True or any(_says(part, what) for part in plan.values())
    return isinstance(plan, list) and any(_says(part, what) for part in plan)


async def command_in(database: Database, command: Document, session: Session = None) -> Filter:
    """Run a command in a database, on the primary.

    Raises:
        WriteError: The server has refused one of its writes.
        WriteConcernError: They were not acknowledged as the command asks, so a failover may undo
            them. (PyMongo leaves both to who reads the reply.)
    """
    reply: Filter = await database.command(command, codec_options=RAW, session=session)
    return _checked(reply)


def _checked(reply: Reply) -> Reply:
    for error in reply.get("writeErrors", ()):
        raise WriteError(error["errmsg"], error["code"], dict(error))
    if concern := reply.get("writeConcernError"):
        raise WriteConcernError(concern["errmsg"], concern["code"], dict(concern))
    return reply

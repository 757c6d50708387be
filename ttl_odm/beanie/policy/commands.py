"""Database commands on one collection, past the gate, for both drivers.

Code that manages indexes, repairs documents or purges them must see what is stored, and must not
stamp it. There are two ways to read the replies:

- `run` and similar functions return plain dicts with aware dates, whatever the client's options, so
  that replies can be compared with what we would send;
- a `RawCollection` keeps documents as the bytes that the server sent, so that no value of any type
  is lost between finding a document and archiving it. Dates are milliseconds, which have no limit.

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

    from ttl_odm.beanie.drivers import (
        Backend,
        Collection,
        Database,
        Document,
        Filter,
        Pipeline,
        Session,
    )

NAMESPACE_NOT_FOUND: Final = 26
RAW: Final[CodecOptions[Filter]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
Reply = TypeVar("Reply", bound="Filter")
Hint: TypeAlias = str | dict[str, int]
"""An index's name, or its key pattern."""
BY_KEY: Final = {"_id": 1}
"""A hint that works for a clustered collection too, which has no index with that name."""

BUILD: Final = "buildUUID"
"""The field of an index while it is being built; all indexes of one command have the same value."""

_MAJORITY: Final = {"w": "majority", "wtimeout": 60_000}
"""It has a limit: without one, an application that changes its indexes when it starts would wait
forever while there is no majority."""

_UNKNOWN_FIELD: Final = frozenset({323, 40415})
"""Codes for a rejected field: the client uses the stable API, or the release doesn't know it."""

_NO_QUORUM: Final = _UNKNOWN_FIELD | {2}
"""Codes for a rejected commit quorum: as above, or there is no replica set."""

_MOST_COUNTED: Final = 10_000
"""The maximum number of rows in the reply to a count or an aggregation."""
_AWARE: Final[CodecOptions[Document]] = CodecOptions(tz_aware=True)


async def run(collection: Collection, command: Document) -> Document:
    """Run a command in the collection's database, on the primary, and check it as `command_in`."""
    plain = collection.codec_options.with_options(document_class=dict, tz_aware=True, tzinfo=None)
    reply: Document = await collection.database.command(command, codec_options=plain)
    return _checked(reply)


async def alter(collection: Collection, command: Document, backend: Backend) -> Document:
    """Run a command that changes a collection's schema, such as createIndexes, collMod or drop.

    On MongoDB it waits until a majority has the change, so that no election undoes it. By default,
    MongoDB builds an index only with all members, and waits for a member that is down. Other
    backends have no members that a client knows of, and get the command as it is.

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
    """Return listCollections' entry, with type and options; empty if there is no collection."""
    listing = {"listCollections": 1, "filter": {"name": collection.name}}
    return next(iter(await first_batch(collection, listing)), {})


async def indexes_of(collection: Collection) -> list[Document]:
    """Return listIndexes' reply, with our indexes; a collection has 64 indexes at most."""
    try:
        return await first_batch(collection, {"listIndexes": collection.name})
    except OperationFailure as error:
        if error.code == NAMESPACE_NOT_FOUND:
            return []
        raise


async def indexes_and_builds_of(collection: Collection, backend: Backend) -> list[Document]:
    """Return listIndexes' reply, with unfinished builds marked if the server reports them.

    An index that is being built has the id of its build as `BUILD`. After an election, the new
    primary continues the builds that it knows of.
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
    """A range of an index on one field; `high` is exclusive, None for the end of the index."""

    index: Hint
    field: str
    low: Any
    high: Any = None

    def bounds(self) -> Document:
        """Return the clauses by which a find reads just this range.

        Unlike a condition on the field, they work with a partial index without proof that it has
        all matching documents. They apply to entries of the index, so an array is found by its
        dates.
        """
        bounds: Document = {"hint": self.index, "min": {self.field: self.low}}
        if self.high is not None:
            bounds["max"] = {self.field: self.high}
        return bounds

    def condition(self) -> Document:
        """Return the condition for this range, across values of all types.

        It is a plain condition if possible, since an expression can't use the index.
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
    """Return the type with whose values MongoDB compares a value; float for all numbers."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float if is_number else type(value)


@dataclass(frozen=True, slots=True)
class Server:
    """A server's clock, and whether it has transactions, as replica sets and routers do."""

    now: DatetimeMS
    has_transactions: bool


@dataclass(frozen=True, slots=True)
class RawCollection:
    """A collection, gated or not, for commands that bypass the gate.

    Attributes:
        collection: The collection.
        session: The session in whose transaction commands run, if any.
        timeout: The seconds that each command may take, None for no limit.
        has_ranges: Whether the server supports ranges of indexes. (A server that doesn't ignores
            them without an error.)
    """

    collection: Collection
    session: Session = None
    timeout: float | None = None
    has_ranges: bool = True

    def within(self, session: Session) -> RawCollection:
        """Return the same collection in a session's transaction."""
        return replace(self, session=session)

    async def run(self, command: Document) -> Filter:
        """Run a command within the timeout."""
        if self.timeout is not None:
            command = {**command, "maxTimeMS": max(1, round(self.timeout * 1000))}
        return await command_in(self.collection.database, command, self.session)

    async def server(self) -> Server:
        """Ask the server for its clock, and whether it has transactions."""
        reply = await self.run({"hello": 1})
        has_transactions = "setName" in reply or reply.get("msg") == "isdbgrid"
        return Server(instant_of(reply), has_transactions)

    async def find(self, filter: Filter, **clauses: object) -> list[RawBSONDocument]:  # noqa: A002 (MongoDB's name for it)
        """Find documents: as many as fit into one reply of the server, 16 MiB."""
        find = {"find": self.collection.name, "filter": filter, "singleBatch": True, **clauses}
        if "limit" in find:
            find["batchSize"] = find["limit"]
        rows: list[RawBSONDocument] = (await self.run(find))["cursor"]["firstBatch"]
        return rows

    async def find_in(
        self,
        reach: KeyRange,
        filter: Filter,  # noqa: A002 (as above)
        **clauses: object,
    ) -> list[RawBSONDocument]:
        """Find documents in a range, in its order."""
        if self.has_ranges:
            return await self.find(filter, **clauses, **reach.bounds())
        both = {"$and": [reach.condition(), filter]}
        return await self.find(both, **clauses, sort={reach.field: 1})

    async def aggregate(self, pipeline: Pipeline, **clauses: object) -> list[RawBSONDocument]:
        """Return the results of a pipeline: as many as fit into one reply of the server."""
        command: Document = {"aggregate": self.collection.name, "pipeline": pipeline}
        command["cursor"] = {"batchSize": _MOST_COUNTED}
        cursor = (await self.run({**command, **clauses}))["cursor"]
        rows: list[RawBSONDocument] = cursor["firstBatch"]
        if cursor["id"]:
            end = {"killCursors": self.collection.name, "cursors": [cursor["id"]]}
            await command_in(self.collection.database, end, self.session)
        return rows

    def sibling(self, name: str) -> RawCollection:
        """Return another collection of the same database, in the same transaction."""
        database = self.collection.database
        other: Collection = database.client[database.name][name]
        return replace(self, collection=other)

    async def delete(self, filters: Sequence[Filter], hint: Hint | None = None) -> int:
        """Delete the documents that any of the filters matches; return their number."""
        clauses = {} if hint is None else {"hint": hint}
        deletes = [{"q": doomed, "limit": 0, **clauses} for doomed in filters]
        reply = await self.run({"delete": self.collection.name, "deletes": deletes})
        return int(reply["n"])

    async def update(self, filter: Filter, stages: Pipeline, hint: Hint) -> None:  # noqa: A002 (as above)
        """Update the documents that a filter matches, by a pipeline."""
        update = {"q": filter, "u": stages, "multi": True, "hint": hint}
        await self.run({"update": self.collection.name, "updates": [update]})

    async def count(
        self,
        filter: Filter,  # noqa: A002 (as above)
        hint: Hint | None = None,
        by: Document | None = None,
    ) -> Counter[Any]:
        """Count matching documents by the value of an expression; None counts them as one."""
        pipeline = [{"$match": filter}, {"$group": {"_id": by, "rows": {"$sum": 1}}}]
        command: Document = {"aggregate": self.collection.name, "pipeline": pipeline}
        command["cursor"] = {"batchSize": _MOST_COUNTED}
        if hint is not None:
            command["hint"] = hint
        counts = (await self.run(command))["cursor"]["firstBatch"]
        return Counter({count["_id"]: int(count["rows"]) for count in counts})


async def is_multikey(place: RawCollection, index: str) -> bool:
    """Return whether an index has, or had, several entries for a document, because of an array."""
    find = {"find": place.collection.name, "limit": 1, "hint": index}
    plan = await place.run({"explain": find, "verbosity": "queryPlanner"})
    return _is_flagged(plan, "isMultiKey")


def _is_flagged(plan: object, flag: str) -> bool:
    """Return whether a flag is true anywhere in a plan, whose nesting depends on the release."""
    if isinstance(plan, Mapping):
        return plan.get(flag) is True or any(_is_flagged(part, flag) for part in plan.values())
    return isinstance(plan, list) and any(_is_flagged(part, flag) for part in plan)


async def command_in(database: Database, command: Document, session: Session = None) -> Filter:
    """Run a command in a database, on the primary.

    Raises:
        WriteError: The server rejected one of the command's writes.
        WriteConcernError: The writes were not acknowledged as the command asks, so a failover may
            undo them. (PyMongo reports both only in the reply.)
    """
    reply: Filter = await database.command(command, codec_options=RAW, session=session)
    return _checked(reply)


def _checked(reply: Reply) -> Reply:
    for error in reply.get("writeErrors", ()):
        raise WriteError(error["errmsg"], error["code"], dict(error))
    if concern := reply.get("writeConcernError"):
        raise WriteConcernError(concern["errmsg"], concern["code"], dict(concern))
    return reply

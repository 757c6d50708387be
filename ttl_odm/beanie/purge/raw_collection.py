"""A collection as the sweeper sees it: everything that is stored, past the gate, by raw commands.

Both drivers run commands in the same way. Documents stay as the bytes that the server sent, so that
no value is lost between finding one and archiving it, whatever its type; dates are milliseconds,
which no calendar is too short for.

This module must not know policies.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from bson.codec_options import CodecOptions, DatetimeConversion
from bson.raw_bson import RawBSONDocument
from pymongo.errors import WriteConcernError, WriteError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from bson import DatetimeMS

    from ttl_odm.beanie.policy.commands import Collection

Filter = dict[str, Any]

RAW: Final[CodecOptions[Any]] = CodecOptions(
    document_class=RawBSONDocument, datetime_conversion=DatetimeConversion.DATETIME_MS
)
BY_KEY: Final = {"_id": 1}
"""As a hint: also a clustered collection, which has no index of that name, takes it."""


_AWARE: Final[CodecOptions[Any]] = CodecOptions(tz_aware=True)


def as_datetime(instant: DatetimeMS) -> datetime:
    """Return an instant of a server's clock as an aware datetime."""
    return instant.as_datetime(_AWARE)


@dataclass(frozen=True, slots=True)
class Range:
    """A range of an index.

    Attributes:
        index: Its name, or its key pattern.
        field: What the index is on.
        low: Where the range begins.
        high: Where it ends, which is outside; None for the index's end.
    """

    index: str | dict[str, int]
    field: str
    low: Any
    high: Any = None

    def bounds(self) -> dict[str, Any]:
        """Return the clauses by which a find walks this range and nothing else.

        Unlike a condition on the field they need no proof that a partial index holds all that is
        looked for. And they are about entries of the index, so an array is found by its dates.
        """
        bounds: dict[str, Any] = {"hint": self.index, "min": {self.field: self.low}}
        if self.high is not None:
            bounds["max"] = {self.field: self.high}
        return bounds


@dataclass(frozen=True, slots=True)
class Server:
    """What a server says of itself.

    Attributes:
        now: Its clock.
        has_transactions: Whether it is a member of a replica set, or a router.
    """

    now: DatetimeMS
    has_transactions: bool


@dataclass(frozen=True, slots=True)
class RawCollection:
    """A collection, and how commands reach it.

    Attributes:
        collection: PyMongo's or Motor's, gated or not.
        session: That of a transaction, in which everything then happens.
        timeout: Seconds that a command may take; None for any number.
    """

    collection: Collection
    session: Any = None
    timeout: float | None = None

    def within(self, session: Any) -> RawCollection:
        """Return the same place in a transaction."""
        return replace(self, session=session)

    async def run(self, command: dict[str, Any]) -> Mapping[str, Any]:
        """Run a command.

        Raises:
            OperationFailure: The server refused it, or one of the writes in it.
        """
        if self.timeout is not None:
            command = {**command, "maxTimeMS": max(1, round(self.timeout * 1000))}
        reply: Mapping[str, Any] = await command_in(self.collection.database, command, self.session)
        return reply

    async def server(self) -> Server:
        """Ask the server what time it is, and what it can do."""
        reply = await self.run({"hello": 1})
        has_transactions = "setName" in reply or reply.get("msg") == "isdbgrid"
        return Server(reply["localTime"], has_transactions)

    async def find(self, filter: Filter, **clauses: Any) -> list[RawBSONDocument]:  # noqa: A002 (MongoDB's name for it)
        """Find documents: so many as fit into one reply of the server, 16 MiB."""
        find = {"find": self.collection.name, "filter": filter, "singleBatch": True, **clauses}
        if "limit" in find:
            find["batchSize"] = find["limit"]
        found: list[RawBSONDocument] = (await self.run(find))["cursor"]["firstBatch"]
        return found

    async def delete(self, filters: Sequence[Filter], hint: Any) -> int:
        """Delete what any of some filters matches, and return how many documents that were."""
        deletes = [{"q": each, "limit": 0, "hint": hint} for each in filters]
        reply = await self.run({"delete": self.collection.name, "deletes": deletes})
        return int(reply["n"])

    async def update(self, filter: Filter, stages: list[Filter], hint: Any) -> None:  # noqa: A002 (as above)
        """Change what a filter matches, by a pipeline."""
        update = {"q": filter, "u": stages, "multi": True, "hint": hint}
        await self.run({"update": self.collection.name, "updates": [update]})

    async def count(self, filter: Filter, hint: Any = None) -> int:  # noqa: A002 (as above)
        """Count what a filter matches."""
        pipeline = [{"$match": filter}, {"$count": "rows"}]
        command = {"aggregate": self.collection.name, "pipeline": pipeline, "cursor": {}}
        if hint is not None:
            command["hint"] = hint
        found = (await self.run(command))["cursor"]["firstBatch"]
        return int(found[0]["rows"]) if found else 0


async def command_in(database: Any, command: dict[str, Any], session: Any = None) -> Any:
    """Run a command in a database, on the primary, and raise what it says of single writes.

    Raises:
        OperationFailure: The server refused something, or could not make it last.
    """
    reply = await database.command(command, codec_options=RAW, session=session)
    for error in reply.get("writeErrors", ()):
        raise WriteError(error["errmsg"], error["code"], dict(error))
    if concern := reply.get("writeConcernError"):
        raise WriteConcernError(concern["errmsg"], concern["code"], dict(concern))
    return reply

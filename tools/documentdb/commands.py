"""MongoDB's commands, by the engine's SQL functions.

What a driver sends goes to the engine as it is, and its answer goes back as it is. What is not the
engine's own:

- An index is built by the command itself, not by the engine's background job, which looks for work
  every two seconds.
- ``runtimeConstants``, by which mongos tells its shards what time it is, and by which tests stop
  the clock: each ``$$NOW`` of such a command is replaced by that instant.
- ``explain`` answers with PostgreSQL's plan, as it is.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any, Final

import bson
import psycopg
from bson.int64 import Int64

from documentdb.engine import Cursor
from documentdb.errors import (
    COMMAND_NOT_FOUND,
    CURSOR_NOT_FOUND,
    WRITE_CONFLICT,
    CommandError,
    command_error,
    packed_error,
    translate_writes,
)
from documentdb.wire import decoded, sequence

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from documentdb.engine import Connection, Engine, Transaction
    from documentdb.wire import Document, Request

_SPEC: Final = "%b::bytea::documentdb_core.bson"
_CURSORS: Final = {
    name: f"SELECT * FROM documentdb_api.{function}_cursor_first_page(%s, {_SPEC})"
    for name, function in {
        "find": "find",
        "aggregate": "aggregate",
        "listCollections": "list_collections",
        "listIndexes": "list_indexes",
    }.items()
}
_WRITES: Final = {
    name: (
        f"SELECT p_result FROM documentdb_api.{name}(%s, {_SPEC}, "
        "%b::bytea::documentdb_core.bsonsequence)"
    )
    for name in ("insert", "update", "delete")
}
_QUERIES: Final = {
    "findAndModify": f"SELECT p_result FROM documentdb_api.find_and_modify(%s, {_SPEC})",
    "count": f"SELECT documentdb_api.count_query(%s, {_SPEC})",
    "distinct": f"SELECT documentdb_api.distinct_query(%s, {_SPEC})",
    "create": f"SELECT documentdb_api.create_collection_view(%s, {_SPEC})",
    "validate": f"SELECT documentdb_api.validate(%s, {_SPEC})",
}
_INDEXES: Final = {
    "createIndexes": (
        f"SELECT documentdb_api_internal.create_indexes_non_concurrently(%s, {_SPEC}, true)"
    ),
    "dropIndexes": f"CALL documentdb_api.drop_indexes(%s, {_SPEC})",
}
_EXPLAINED: Final = {
    name: (
        "EXPLAIN (FORMAT JSON) SELECT document FROM "
        f"documentdb_api_catalog.bson_aggregation_{function}(%s, {_SPEC})"
    )
    for name, function in {"find": "find", "aggregate": "pipeline", "count": "count"}.items()
}
_CREATE: Final = "SELECT documentdb_api.create_collection(%s, %s)"
_MORE: Final = f"SELECT * FROM documentdb_api.cursor_get_more(%s, {_SPEC}, {_SPEC})"
_DONE: Final = bson.encode({"ok": 1.0})


async def run(engine: Engine, request: Request) -> bytes:
    """Run a command and return the document that answers it.

    Raises:
        CommandError: It failed.
    """
    command = decoded(request.body)
    name = next(iter(command))
    if name in _WITHOUT_ENGINE:
        return bson.encode({**_WITHOUT_ENGINE[name](command), "ok": 1.0})
    transaction = await engine.transaction_of(command)
    key = bytes(command["lsid"]["id"]) if transaction else b""
    try:
        async with engine.connection(transaction, command) as connection:
            work = Work(engine, connection, command, request, transaction)
            return await work.run(name)
    except (psycopg.Error, CommandError) as error:
        known = error if isinstance(error, CommandError) else _known(error, transaction)
        if isinstance(error, psycopg.Error) or known.code == WRITE_CONFLICT:
            await engine.end(key, "ROLLBACK")  # it cannot go on
        raise known from error


def _known(error: psycopg.Error, transaction: Transaction | None) -> CommandError:
    message = error.diag.message_primary or str(error)
    return command_error(error.sqlstate or "", message, in_transaction=transaction is not None)


class Work:
    """One command on one connection."""

    def __init__(
        self,
        engine: Engine,
        connection: Connection,
        command: Document,
        request: Request,
        transaction: Transaction | None,
    ) -> None:
        """Stop the clock for it, if it says so."""
        self.engine = engine
        self.connection = connection
        self.command = command
        self.transaction = transaction
        self.database = str(command.get("$db", "test"))
        self.body = request.body
        self.parts = b"".join(request.parts.values()) or None
        instant = command.pop("runtimeConstants", {}).get("localNow")
        if instant is not None:
            self.body = bson.encode(_at(command, instant))
            if self.parts is not None:
                documents = (_at(document, instant) for document in sequence(self.parts))
                self.parts = b"".join(map(bson.encode, documents))

    async def run(self, name: str) -> bytes:
        """Run the command of that name."""
        if name in _CURSORS:
            return await self.open_cursor(name)
        if name in _WRITES:
            return await self.write(name)
        if name in _QUERIES:
            return await self.ask(_QUERIES[name], self.database, self.body)
        if name in _INDEXES:
            return await self.change_indexes(name)
        if name not in _OTHERS:
            raise CommandError(COMMAND_NOT_FOUND, f"no such command: '{name}'")
        return await _OTHERS[name](self)

    async def row(self, statement: str, *values: Any) -> tuple[Any, ...]:
        """Run a statement that gives one row."""
        cursor = await self.connection.execute(statement.encode(), values, binary=True)
        row = await cursor.fetchone()
        return row or ()

    async def ask(self, statement: str, *values: Any) -> bytes:
        """Run a statement that gives the answer."""
        answer: bytes = (await self.row(statement, *values))[0]
        return answer

    async def do(self, statement: str, *values: Any) -> bytes:
        """Run a statement that gives nothing of interest."""
        await self.row(statement, *values)
        return _DONE

    async def write(self, name: str) -> bytes:
        """Insert, update or delete."""
        answer = await self.ask(_WRITES[name], self.database, self.body, self.parts)
        reply = decoded(answer)
        if "writeErrors" not in reply:
            return answer
        is_inside = self.transaction is not None
        return bson.encode(translate_writes(reply, in_transaction=is_inside))

    async def change_indexes(self, name: str) -> bytes:
        """Create or drop indexes."""
        if name == "createIndexes":
            await self.row(_CREATE, self.database, self.command[name])
        reply = decoded(await self.ask(_INDEXES[name], self.database, self.body))
        if not reply.get("ok"):
            raise packed_error(reply)
        return bson.encode({**reply, "ok": 1.0})

    # Cursors

    async def open_cursor(self, name: str) -> bytes:
        """Return the first page, and keep where it goes on."""
        page, continuation, persists, number = await self.row(
            _CURSORS[name], self.database, self.body
        )
        self._keep(number, continuation, persists=bool(persists))
        answer: bytes = page
        return answer

    async def get_more(self) -> bytes:
        """Return the next page."""
        number = self.command["getMore"]
        cursor = self.engine.cursors.pop(number, None)
        if cursor is None:
            raise CommandError(CURSOR_NOT_FOUND, f"cursor id {number} not found")
        page, continuation = await self.row(_MORE, cursor.database, self.body, cursor.continuation)
        self._keep(number, continuation, persists=cursor.connection is not None)
        answer: bytes = page
        return answer

    def _keep(self, number: int, continuation: bytes | None, *, persists: bool) -> None:
        if continuation is not None:
            own = self.connection if persists and self.transaction is None else None
            self.engine.cursors[number] = Cursor(self.database, continuation, own)

    async def kill_cursors(self) -> bytes:
        """Forget cursors."""
        killed = [number for number in self.command["cursors"] if await self.engine.kill(number)]
        return bson.encode({"cursorsKilled": killed, "ok": 1.0})

    # Transactions

    async def commit(self) -> bytes:
        """Commit the transaction."""
        await self.engine.end(bytes(self.command["lsid"]["id"]), "COMMIT")
        return _DONE

    async def abort(self) -> bytes:
        """Abort the transaction."""
        await self.engine.end(bytes(self.command["lsid"]["id"]), "ROLLBACK")
        return _DONE

    # Collections and databases

    async def change_collection(self) -> bytes:
        """Run collMod."""
        name = self.command["collMod"]
        statement = f"SELECT documentdb_api.coll_mod(%s, %s, {_SPEC})"
        return await self.ask(statement, self.database, name, self.body)

    async def drop(self) -> bytes:
        """Drop a collection; none is there to drop is not an error."""
        statement = "SELECT documentdb_api.drop_collection(%s, %s)"
        return await self.do(statement, self.database, self.command["drop"])

    async def drop_database(self) -> bytes:
        """Drop a database."""
        return await self.do("SELECT documentdb_api.drop_database(%s)", self.database)

    async def rename(self) -> bytes:
        """Rename a collection."""
        database, _, old = self.command["renameCollection"].partition(".")
        new = self.command["to"].partition(".")[2]
        statement = "SELECT documentdb_api.rename_collection(%s, %s, %s, %s)"
        return await self.do(statement, database, old, new, bool(self.command.get("dropTarget")))

    async def list_databases(self) -> bytes:
        """List the databases."""
        return await self.ask(f"SELECT documentdb_api.list_databases({_SPEC})", self.body)

    async def collection_stats(self) -> bytes:
        """Return a collection's figures."""
        statement = "SELECT documentdb_api.coll_stats(%s, %s)"
        return await self.ask(statement, self.database, self.command["collStats"])

    async def explain(self) -> bytes:
        """Return PostgreSQL's plan."""
        explained = self.command["explain"]
        name = next(iter(explained))
        if name not in _EXPLAINED:
            raise CommandError(COMMAND_NOT_FOUND, f"no plan of {name!r} can be shown")
        cursor = await self.connection.execute(
            _EXPLAINED[name].encode(), (self.database, bson.encode(explained))
        )
        ((plan,),) = await cursor.fetchall()
        made = plan if isinstance(plan, list) else json.loads(plan)
        return bson.encode({"queryPlanner": made[0]["Plan"], "ok": 1.0})


_OTHERS: Final[Mapping[str, Callable[[Work], Awaitable[bytes]]]] = {
    "getMore": Work.get_more,
    "killCursors": Work.kill_cursors,
    "commitTransaction": Work.commit,
    "abortTransaction": Work.abort,
    "collMod": Work.change_collection,
    "drop": Work.drop,
    "dropDatabase": Work.drop_database,
    "renameCollection": Work.rename,
    "listDatabases": Work.list_databases,
    "collStats": Work.collection_stats,
    "explain": Work.explain,
}


def _hello(_command: Document) -> Document:
    """Introduce ourselves as Azure's gateway does: a router, whose clock is a number."""
    return {
        "ismaster": True,
        "isWritablePrimary": True,
        "msg": "isdbgrid",
        "helloOk": True,
        "maxBsonObjectSize": 16 * 1024**2,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 25_000,
        "localTime": Int64(time.time_ns() // 1_000_000),
        "logicalSessionTimeoutMinutes": 30,
        "minWireVersion": 0,
        "maxWireVersion": 21,
        "readOnly": False,
        "internal": {},
    }


def _build_info(_command: Document) -> Document:
    return {"version": "7.0.0", "versionArray": [7, 0, 0, 0], "bits": 64}


def _set_parameter(command: Document) -> Document:
    """Take MongoDB's monitor for off, as the engine's is here."""
    if command.get("ttlMonitorEnabled") is None:
        raise CommandError(COMMAND_NOT_FOUND, "only ttlMonitorEnabled can be set")
    return {"was": False}


def _nothing(_command: Document) -> Document:
    return {}


_WITHOUT_ENGINE: Final[Mapping[str, Callable[[Document], Document]]] = {
    "hello": _hello,
    "ismaster": _hello,
    "isMaster": _hello,
    "buildInfo": _build_info,
    "buildinfo": _build_info,
    "setParameter": _set_parameter,
    "ping": _nothing,
    "endSessions": _nothing,
}


def _at(value: Any, instant: Any) -> Any:
    """Return a value with an instant in the place of ``$$NOW``."""
    if isinstance(value, dict):
        return {
            name: part if name == "$literal" else _at(part, instant) for name, part in value.items()
        }
    if isinstance(value, list):
        return [_at(part, instant) for part in value]
    return instant if value == "$$NOW" else value

"""The engine's connections, and what lasts longer than a command: transactions and cursors.

Connections are PostgreSQL's. A transaction has one for itself, and so has a cursor whose rest the
engine keeps in the connection; all others serve whichever command comes next.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg

from documentdb.errors import NO_SUCH_TRANSACTION, CommandError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from documentdb.wire import Document

Connection: TypeAlias = "psycopg.AsyncConnection[tuple[Any, ...]]"

_LOCK_MILLISECONDS: Final = 20
"""For how long a transaction waits for a lock: so long it does in Azure's gateway."""


@dataclass(slots=True)
class Cursor:
    """Where a cursor goes on; its connection, if the engine needs the same one for it."""

    database: str
    continuation: bytes
    connection: Connection | None


@dataclass(frozen=True, slots=True)
class Transaction:
    """A client's transaction."""

    number: int
    connection: Connection


@dataclass(slots=True)
class Engine:
    """One database of PostgreSQL with the extension, for all clients.

    Attributes:
        url: The database's.
    """

    url: str
    cursors: dict[int, Cursor] = field(default_factory=dict)
    _idle: list[Connection] = field(default_factory=list)
    _transactions: dict[bytes, Transaction] = field(default_factory=dict)

    @asynccontextmanager
    async def connection(
        self, transaction: Transaction | None, command: Document
    ) -> AsyncIterator[Connection]:
        """Give the transaction's connection, its cursor's, or one that is free.

        A command works no longer than it says.
        """
        limit = int(command.get("maxTimeMS") or 0)
        if transaction is not None:
            await _run(transaction.connection, f"SET LOCAL statement_timeout = {limit}")
            yield transaction.connection
            return
        cursor = self.cursors.get(command.get("getMore", 0))
        connection = (cursor and cursor.connection) or await self._free()
        if limit:
            await _run(connection, f"SET statement_timeout = {limit}")
        try:
            yield connection
            if limit:
                await connection.execute("RESET statement_timeout")
        except BaseException:
            await connection.close()  # whatever state it is in
            raise
        if all(cursor.connection is not connection for cursor in self.cursors.values()):
            self._idle.append(connection)

    async def _free(self) -> Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.closed:
                return connection
        made: Connection = await psycopg.AsyncConnection.connect(self.url, autocommit=True)
        made.prepare_threshold = None
        return made

    async def kill(self, number: int) -> bool:
        """Forget a cursor; say whether there was one."""
        cursor = self.cursors.pop(number, None)
        if cursor is not None and cursor.connection is not None:
            await cursor.connection.close()
        return cursor is not None

    async def prepare(self) -> None:
        """Make sure that the database has the extension."""
        connection = await self._free()
        await connection.execute("CREATE EXTENSION IF NOT EXISTS documentdb CASCADE")
        self._idle.append(connection)

    # Transactions

    async def transaction_of(self, command: Document) -> Transaction | None:
        """Return the transaction that a command is in; its first command begins it."""
        if command.get("autocommit", True):
            return None
        key, number = bytes(command["lsid"]["id"]), int(command["txnNumber"])
        if command.get("startTransaction"):
            await self.end(key, "ROLLBACK")
            is_snapshot = command.get("readConcern", {}).get("level") == "snapshot"
            level = "REPEATABLE READ" if is_snapshot else "READ COMMITTED"
            connection = await self._free()
            await _run(connection, f"BEGIN ISOLATION LEVEL {level}")
            await _run(connection, f"SET LOCAL lock_timeout = {_LOCK_MILLISECONDS}")
            self._transactions[key] = Transaction(number, connection)
        known = self._transactions.get(key)
        if known is None or known.number != number:
            raise CommandError(NO_SUCH_TRANSACTION, f"Cannot continue transaction {number}")
        return known

    async def end(self, key: bytes, statement: str) -> None:
        """End a session's transaction, if it has one, by COMMIT or ROLLBACK."""
        transaction = self._transactions.pop(key, None)
        if transaction is not None:
            await _run(transaction.connection, statement)
            self._idle.append(transaction.connection)


async def _run(connection: Connection, statement: str) -> None:
    """Run a statement of ours; as bytes, for psycopg's types take literal strings only."""
    await connection.execute(statement.encode())

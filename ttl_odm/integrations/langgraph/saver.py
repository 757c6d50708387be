"""A checkpointer for LangGraph's graphs, over the tables of a `CheckpointTables`.

It has LangGraph's methods, synchronous and asynchronous, for both kinds of engines. Their work in a
transaction is in `transactions`. This module must not use the tables' columns in SQL.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_serializable_checkpoint_metadata,
)
from sqlalchemy import Engine, create_engine, make_url
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.integrations.langgraph import transactions
from ttl_odm.integrations.langgraph.tables import CheckpointTables
from ttl_odm.integrations.langgraph.transactions import CheckpointKey
from ttl_odm.sqlalchemy.purge.errors import is_away, is_passing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol
    from sqlalchemy import URL
    from typing_extensions import Self

    from ttl_odm.integrations.langgraph.transactions import Row, StoredCheckpoint

Result = TypeVar("Result")
Saver = TypeVar("Saver", bound="SQLAlchemySaver")

_CHUNK: Final = 20
"""Checkpoints that `list` reads at a time."""
_PATIENCE: Final = 9
"""Conflicts with other transactions that one call survives; a wait in vain counts as three."""


class SQLAlchemySaver(BaseCheckpointSaver[int]):
    """A checkpointer for graphs: ``builder.compile(checkpointer=SQLAlchemySaver(engine, tables))``.

    Once a thread has expired, its checkpoints and writes are no longer found. The next run with its
    `thread_id` begins from nothing, as with a new one, whether or not a sweeper has deleted the old
    rows. Every `put` and `put_writes` restarts the lifetime of the thread.

    With an Engine, the asynchronous methods work in threads. With an AsyncEngine, the synchronous
    ones work in threads other than the event loop's, such as those of nodes that aren't
    ``async def``.
    """

    def __init__(
        self,
        engine: Engine | AsyncEngine,
        tables: CheckpointTables,
        *,
        renew_on_read: bool = False,
        serde: SerializerProtocol | None = None,
    ) -> None:
        """Store where checkpoints are kept, without creating tables.

        Args:
            engine: The engine of the database with the tables.
            tables: The tables, which ``tables.metadata.create_all()`` or a migration has created.
            renew_on_read: Whether `get_tuple` restarts the lifetime of the thread too: each run of
                a graph, and each look at its state.
            serde: Turns values into bytes; LangGraph's own by default.

        Raises:
            TTLConfigurationError: An argument has the wrong type.
        """
        super().__init__(serde=serde)
        if not isinstance(engine, (Engine, AsyncEngine)):
            raise TTLConfigurationError(
                f"SQLAlchemySaver({engine!r}, ...): pass an Engine or an AsyncEngine."
            )
        if not isinstance(tables, CheckpointTables):
            raise TTLConfigurationError(
                f"SQLAlchemySaver(engine, {tables!r}): give CheckpointTables(ttl)."
            )
        self.engine = engine
        self.tables = tables
        self.renew_on_read = renew_on_read
        self._loop: asyncio.AbstractEventLoop | None = None

    @classmethod
    def from_conn_string(
        cls,
        conn_string: str | URL,
        tables: CheckpointTables,
        *,
        renew_on_read: bool = False,
        serde: SerializerProtocol | None = None,
    ) -> OpenedSaver[Self]:
        """Open a checkpointer with an engine of its own, for a ``with`` block.

        For example::

            with SQLAlchemySaver.from_conn_string("sqlite:///chats.db", tables) as saver:
                chat = builder.compile(checkpointer=saver)

        With ``async with``, a URL with an asynchronous driver (``sqlite+aiosqlite://``) makes an
        AsyncEngine. The end of the block closes the engine, ``saver.engine``.

        Args:
            conn_string: SQLAlchemy's URL of the database.
            tables: See the class.
            renew_on_read: See the class.
            serde: See the class.

        Raises:
            TTLConfigurationError: An argument has the wrong type, or (at the start of the block)
                an asynchronous driver is used in a ``with`` that isn't ``async with``.
            sqlalchemy.exc.ArgumentError: The URL isn't one of SQLAlchemy's.
        """
        url = make_url(conn_string)
        is_async = url.get_dialect().is_async
        engine = create_async_engine(url) if is_async else create_engine(url)
        return OpenedSaver(cls(engine, tables, renew_on_read=renew_on_read, serde=serde))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the latest one; None without one."""
        return self._first(self._run(partial(self._read_one, config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Do what `get_tuple` does, asynchronously."""
        return self._first(await self._arun(partial(self._read_one, config)))

    def list(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Iterator[CheckpointTuple]:
        """Yield checkpoints, the latest first.

        Args:
            config: Names a thread, perhaps with a namespace; None for all threads.
            filter: Entries that their metadata must have. Python compares them, not the database.
            before: Names a checkpoint; only older ones are yielded.
            limit: The most checkpoints to yield.
        """
        keys = self._run(partial(self._find_keys, config, filter, before, limit))
        for start in range(0, len(keys), _CHUNK):
            chunk = self._run(partial(self._read, keys[start : start + _CHUNK]))
            yield from map(self._tuple, chunk)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """Do what `list` does, asynchronously."""
        keys = await self._arun(partial(self._find_keys, config, filter, before, limit))
        for start in range(0, len(keys), _CHUNK):
            chunk = await self._arun(partial(self._read, keys[start : start + _CHUNK]))
            for checkpoint in chunk:
                yield self._tuple(checkpoint)

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - every checkpoint is stored whole
    ) -> RunnableConfig:
        """Store a checkpoint, and return the config that names it."""
        key = _key(config, checkpoint_id=checkpoint["id"])
        row = self._checkpoint_row(config, checkpoint, metadata)
        self._run(partial(self._put, key, row))
        return _config(key)

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - as in put
    ) -> RunnableConfig:
        """Do what `put` does, asynchronously."""
        key = _key(config, checkpoint_id=checkpoint["id"])
        row = self._checkpoint_row(config, checkpoint, metadata)
        await self._arun(partial(self._put, key, row))
        return _config(key)

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Store the writes of a task, which belong to the checkpoint that a config names."""
        key = _key(config)
        self._run(partial(self._put_writes, key, task_id, self._write_rows(writes, task_path)))

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        """Do what `put_writes` does, asynchronously."""
        key = _key(config)
        rows = self._write_rows(writes, task_path)
        await self._arun(partial(self._put_writes, key, task_id, rows))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its checkpoints and writes."""
        self._run(partial(self._delete_thread, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """Do what `delete_thread` does, asynchronously."""
        await self._arun(partial(self._delete_thread, str(thread_id)))

    # Each of these is the work of one transaction.

    def _read_one(self, config: RunnableConfig, session: Session) -> Sequence[StoredCheckpoint]:
        criteria = {"checkpoint_ns": "", **_criteria(config)}
        if self.renew_on_read:
            transactions.renew(self.tables, session, criteria["thread_id"])
        keys = transactions.find_keys(self.tables, session, criteria, limit=1)
        return self._read(keys, session)

    def _read(self, keys: Sequence[CheckpointKey], session: Session) -> Sequence[StoredCheckpoint]:
        return transactions.read(self.tables, session, keys)

    def _find_keys(
        self,
        config: RunnableConfig | None,
        details: dict[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
        session: Session,
    ) -> Sequence[CheckpointKey]:
        last = _criteria(before).get("checkpoint_id")
        criteria = _criteria(config)
        return transactions.find_keys(
            self.tables, session, criteria, details=details, before=last, limit=limit
        )

    def _put(self, key: CheckpointKey, row: Row, session: Session) -> None:
        transactions.put(self.tables, session, key, row)

    def _put_writes(
        self, key: CheckpointKey, task_id: str, rows: Sequence[Row], session: Session
    ) -> None:
        transactions.put_writes(self.tables, session, key, task_id, rows)

    def _delete_thread(self, thread_id: str, session: Session) -> None:
        transactions.delete_thread(self.tables, session, thread_id)

    # From LangGraph's values to rows, and back.

    def _checkpoint_row(
        self, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> Row:
        kind, value = self.serde.dumps_typed(checkpoint)
        return {
            "parent_id": _criteria(config).get("checkpoint_id"),
            "type": kind,
            "value": value,
            "details": get_serializable_checkpoint_metadata(config, metadata),
        }

    def _write_rows(self, writes: Sequence[tuple[str, object]], task_path: str) -> Sequence[Row]:
        rows: dict[int, Row] = {}
        for number, (channel, content) in enumerate(writes):
            kind, value = self.serde.dumps_typed(content)
            idx = WRITES_IDX_MAP.get(channel, number)
            row = {"task_path": task_path, "channel": channel, "type": kind, "value": value}
            rows[idx] = {"idx": idx, **row}
        return [*rows.values()]

    def _first(self, checkpoints: Sequence[StoredCheckpoint]) -> CheckpointTuple | None:
        return self._tuple(checkpoints[0]) if checkpoints else None

    def _tuple(self, checkpoint: StoredCheckpoint) -> CheckpointTuple:
        key, parent_id = checkpoint.key, checkpoint.parent_id
        metadata: Any = checkpoint.details
        return CheckpointTuple(
            config=_config(key),
            checkpoint=self.serde.loads_typed(checkpoint.typed),
            metadata=metadata,
            parent_config=_config(key._replace(checkpoint_id=parent_id)) if parent_id else None,
            pending_writes=[
                (write.task_id, write.channel, self.serde.loads_typed(write.typed))
                for write in checkpoint.writes
            ],
        )

    # Transactions.

    def _run(self, work: Callable[[Session], Result]) -> Result:
        """Run the work of one transaction, and retry it after conflicts with others."""
        if isinstance(self.engine, AsyncEngine):
            loop = self._loop_elsewhere()
            return asyncio.run_coroutine_threadsafe(self._arun(work), loop).result()
        patience = _PATIENCE
        while True:
            try:
                with Session(self.engine) as session, session.begin():
                    return work(session)
            except (DBAPIError, StaleDataError) as error:
                patience -= _strain(error)
                if patience <= 0:
                    raise

    async def _arun(self, work: Callable[[Session], Result]) -> Result:
        """Do what `_run` does, asynchronously."""
        if isinstance(self.engine, Engine):
            return await asyncio.to_thread(self._run, work)
        self._loop = asyncio.get_running_loop()
        patience = _PATIENCE
        while True:
            try:
                async with AsyncSession(self.engine) as session, session.begin():
                    return await session.run_sync(work)
            except (DBAPIError, StaleDataError) as error:
                patience -= _strain(error)
                if patience <= 0:
                    raise

    def _loop_elsewhere(self) -> asyncio.AbstractEventLoop:
        """Return the event loop that uses the AsyncEngine; it must be another thread's.

        Raises:
            TTLConfigurationError: No other thread runs such a loop.
        """
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._loop is None or self._loop is here or not self._loop.is_running():
            raise TTLConfigurationError(
                "This SQLAlchemySaver has an AsyncEngine: call the asynchronous methods, such as "
                "graph.ainvoke(), or pass an Engine."
            )
        return self._loop


class OpenedSaver(Generic[Saver]):
    """The context manager from `SQLAlchemySaver.from_conn_string`."""

    def __init__(self, saver: Saver) -> None:
        self._saver = saver

    def __enter__(self) -> Saver:
        engine = self._saver.engine
        if isinstance(engine, AsyncEngine):
            raise TTLConfigurationError(
                f"SQLAlchemySaver.from_conn_string({str(engine.url)!r}, ...): use async with for "
                "an asynchronous driver, or choose a synchronous driver."
            )
        return self._saver

    def __exit__(self, *_: object) -> None:
        engine = self._saver.engine
        if isinstance(engine, Engine):
            engine.dispose()

    async def __aenter__(self) -> Saver:
        return self._saver

    async def __aexit__(self, *_: object) -> None:
        engine = self._saver.engine
        if isinstance(engine, AsyncEngine):
            await engine.dispose()
        else:
            await asyncio.to_thread(engine.dispose)


def _strain(error: DBAPIError | StaleDataError) -> int:
    """Return how much patience an error costs a call; all of it if the call can't succeed."""
    if isinstance(error, (IntegrityError, StaleDataError)):
        # Another transaction has just created this thread or row, or the thread has just expired
        # (`ExpiredError` is a StaleDataError). The other one is done, so a retry soon succeeds.
        return 1
    # A deadlock, or a lock that another transaction held for longer than the database waits.
    return 3 if is_passing(error) and not is_away(error) else _PATIENCE


def _criteria(config: RunnableConfig | None) -> dict[str, str]:
    """Return the parts of a key that a config names."""
    names = (config or {}).get("configurable", {})
    # No checkpoint has an empty id, but the namespace of a graph that isn't nested is empty.
    return {
        name: str(names[name])
        for name in CheckpointKey._fields
        if names.get(name) is not None and (names[name] or name == "checkpoint_ns")
    }


def _key(config: RunnableConfig, **more: str) -> CheckpointKey:
    """Return the key of the checkpoint that a config names, or of another one in its namespace."""
    return CheckpointKey(**{"checkpoint_ns": "", **_criteria(config), **more})


def _config(key: CheckpointKey) -> RunnableConfig:
    """Return the config by which LangGraph names a checkpoint."""
    return {"configurable": key._asdict()}

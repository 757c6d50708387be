"""A checkpointer for LangGraph's graphs, over the tables of a `CheckpointTables`.

LangGraph's methods, synchronous and asynchronous, on either kind of engine. What they do in a
transaction is in `transactions`; this module must not know the tables' columns from within SQL.
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
"""Checkpoints that `list` reads at once."""
_PATIENCE: Final = 9
"""How many conflicts with other transactions one call puts up with; a wait in vain is three."""


class SQLAlchemySaver(BaseCheckpointSaver[int]):
    """A checkpointer for graphs: ``builder.compile(checkpointer=SQLAlchemySaver(engine, tables))``.

    Once a thread has expired, none of its checkpoints and writes is found. The next run with its
    `thread_id` begins from nothing, as with one that was never used, whether a sweeper has deleted
    the old rows or not. Every `put` and `put_writes` restarts the lifetime of the thread.

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
        """Store where checkpoints are kept; this makes no tables.

        Args:
            engine: Of the database that has the tables.
            tables: What ``tables.metadata.create_all()`` or a migration has made.
            renew_on_read: Whether `get_tuple` restarts the lifetime of the thread, too: whatever
                runs a graph or asks for its state.
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

        With ``async with``, the address of an asynchronous driver (``sqlite+aiosqlite://``) makes
        an AsyncEngine. The end of the block closes the engine, ``saver.engine``.

        Args:
            conn_string: SQLAlchemy's address of the database.
            tables: As for the class, and so are the others.
            renew_on_read: Likewise.
            serde: Likewise.

        Raises:
            TTLConfigurationError: An argument has the wrong type, or (at the start of the block)
                an asynchronous driver is used in a ``with`` that isn't ``async with``.
            sqlalchemy.exc.ArgumentError: The address isn't one of SQLAlchemy's.
        """
        url = make_url(conn_string)
        is_async = url.get_dialect().is_async
        engine = create_async_engine(url) if is_async else create_engine(url)
        return OpenedSaver(cls(engine, tables, renew_on_read=renew_on_read, serde=serde))

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the latest; None where there is none."""
        return self._first(self._run(partial(self._read_one, config)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
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
            config: Names a thread, and a namespace in it, or not; None for all threads.
            filter: What their metadata have to have. It is compared here, not by the database.
            before: Names the checkpoint that they have to be older than.
            limit: The most to yield.
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
        """As `list`."""
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
        """As `put`."""
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
        """As `put_writes`."""
        key = _key(config)
        rows = self._write_rows(writes, task_path)
        await self._arun(partial(self._put_writes, key, task_id, rows))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its checkpoints and writes."""
        self._run(partial(self._delete_thread, str(thread_id)))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._arun(partial(self._delete_thread, str(thread_id)))

    # The work of one transaction each.

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

    def _write_rows(self, writes: Sequence[tuple[str, Any]], task_path: str) -> Sequence[Row]:
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
        """Do the work of one transaction, and again where another one was in its way."""
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
        """As `_run`."""
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
        """The event loop that uses an AsyncEngine, which may not be that of this thread."""
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
    """What `SQLAlchemySaver.from_conn_string` returns, for ``with`` and ``async with``."""

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
    """How much of its patience an error costs a call; all of it if it can't succeed."""
    if isinstance(error, (IntegrityError, StaleDataError)):
        # Another transaction has just begun this thread or stored this row, or the thread has just
        # expired (`ExpiredError` is a StaleDataError). It has got on, so this one soon will.
        return 1
    # A deadlock, or a lock that somebody else has kept for longer than the database waits.
    return 3 if is_passing(error) and not is_away(error) else _PATIENCE


def _criteria(config: RunnableConfig | None) -> dict[str, str]:
    """The parts of a key that a config names."""
    named = (config or {}).get("configurable", {})
    # No checkpoint has an empty id, but the namespace of a graph that isn't nested is empty.
    return {
        name: str(named[name])
        for name in CheckpointKey._fields
        if named.get(name) is not None and (named[name] or name == "checkpoint_ns")
    }


def _key(config: RunnableConfig, **more: str) -> CheckpointKey:
    """The key of the checkpoint that a config names, or of another one in its namespace."""
    return CheckpointKey(**{"checkpoint_ns": "", **_criteria(config), **more})


def _config(key: CheckpointKey) -> RunnableConfig:
    """How LangGraph names a checkpoint."""
    return {"configurable": key._asdict()}

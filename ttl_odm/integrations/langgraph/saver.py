"""A checkpointer for LangGraph's graphs, over the tables of a `CheckpointTables`.

Nothing here knows when a thread has expired, or deletes an expired one: the declarations of the
tables do, as for any model.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_id,
    get_checkpoint_metadata,
)
from sqlalchemy import Engine, delete, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession
from sqlalchemy.orm import Session

from ttl_odm.errors import ExpiredError, TTLConfigurationError
from ttl_odm.integrations.langgraph.tables import CheckpointTables
from ttl_odm.sqlalchemy import touch

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata
    from langgraph.checkpoint.serde.base import SerializerProtocol

    Found = TypeVar("Found")
    Row = dict[str, Any]

_CHUNK: Final = 20  # checkpoints that list() reads at once
_ATTEMPTS: Final = 3
# Others have begun the same thread or stored the same row, or the thread has just expired.
_OVERTAKEN: Final = (IntegrityError, ExpiredError)


class _Key(NamedTuple):
    """What a checkpoint is found by."""

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str

    def config(self, checkpoint_id: str | None = None) -> RunnableConfig:
        """How LangGraph names it, or another one of its thread."""
        names = self if checkpoint_id is None else self._replace(checkpoint_id=checkpoint_id)
        return {"configurable": names._asdict()}


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
                f"SQLAlchemySaver({engine!r}, ...): give an Engine or an AsyncEngine."
            )
        if not isinstance(tables, CheckpointTables):
            raise TTLConfigurationError(
                f"SQLAlchemySaver(engine, {tables!r}): give CheckpointTables(ttl)."
            )
        self.engine = engine
        self.tables = tables
        self.renew_on_read = renew_on_read
        self._loop: asyncio.AbstractEventLoop | None = None

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """Return the checkpoint that a config names, or the latest; None where there is none."""
        return self._run(partial(self._get, config))

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
        keys = self._run(partial(self._find, config, filter, before, limit))
        for start in range(0, len(keys), _CHUNK):
            yield from self._run(partial(self._load, keys[start : start + _CHUNK]))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - every checkpoint is stored whole
    ) -> RunnableConfig:
        """Store a checkpoint, and return the config that names it."""
        key = _Key(*_place(config), checkpoint["id"])
        self._run(partial(self._put, self._checkpoint_row(key, config, checkpoint, metadata)))
        return key.config()

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",  # noqa: ARG002 - they are read by their tasks
    ) -> None:
        """Store the writes of a task, which belong to the checkpoint that a config names."""
        key = _Key(*_place(config), _named(config)["checkpoint_id"])
        self._run(partial(self._put_writes, key, task_id, self._write_rows(writes)))

    def delete_thread(self, thread_id: str) -> None:
        """Delete a thread with all its checkpoints and writes."""
        self._run(partial(self._delete, str(thread_id)))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        """As `get_tuple`."""
        return await self._arun(partial(self._get, config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,  # noqa: A002 - LangGraph's name
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        """As `list`."""
        keys = await self._arun(partial(self._find, config, filter, before, limit))
        for start in range(0, len(keys), _CHUNK):
            for one in await self._arun(partial(self._load, keys[start : start + _CHUNK])):
                yield one

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,  # noqa: ARG002 - as in put
    ) -> RunnableConfig:
        """As `put`."""
        key = _Key(*_place(config), checkpoint["id"])
        row = self._checkpoint_row(key, config, checkpoint, metadata)
        await self._arun(partial(self._put, row))
        return key.config()

    async def aput_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",  # noqa: ARG002 - as in put_writes
    ) -> None:
        """As `put_writes`."""
        key = _Key(*_place(config), _named(config)["checkpoint_id"])
        await self._arun(partial(self._put_writes, key, task_id, self._write_rows(writes)))

    async def adelete_thread(self, thread_id: str) -> None:
        """As `delete_thread`."""
        await self._arun(partial(self._delete, str(thread_id)))

    # Each of these is the work of one transaction, for either kind of engine.

    def _get(self, config: RunnableConfig, session: Session) -> CheckpointTuple | None:
        thread_id, namespace = _place(config)
        if self.renew_on_read:
            thread = session.get(self.tables.Thread, thread_id)
            if thread is not None and touch(thread, at_most_every=self.tables.at_most_every):
                session.flush()
        named = {**_named(config), "checkpoint_ns": namespace}
        keys = self._find({"configurable": named}, None, None, 1, session)
        return next(iter(self._load(keys, session)), None)

    def _find(
        self,
        config: RunnableConfig | None,
        wanted: Mapping[str, Any] | None,
        before: RunnableConfig | None,
        limit: int | None,
        session: Session,
    ) -> Sequence[_Key]:
        model = self.tables.Checkpoint
        key = (model.thread_id, model.checkpoint_ns, model.checkpoint_id)
        statement = select(*key, *([model.details] if wanted else []))
        statement = statement.order_by(model.checkpoint_id.desc(), *key[:2])
        if config is not None:
            named = _named(config)
            values = (named.get("thread_id"), named.get("checkpoint_ns"), get_checkpoint_id(config))
            for column, value in zip(key, values, strict=True):
                if value is not None and (value or column is not model.checkpoint_id):
                    statement = statement.where(column == str(value))
        if before is not None and (last := get_checkpoint_id(before)):
            statement = statement.where(model.checkpoint_id < last)
        if not wanted:
            return [_Key(*row) for row in session.execute(statement.limit(limit))]
        fitting = [
            _Key(*names)
            for *names, details in session.execute(statement)
            if all(name in details and details[name] == value for name, value in wanted.items())
        ]
        return fitting[:limit]

    def _load(self, keys: Sequence[_Key], session: Session) -> Sequence[CheckpointTuple]:
        """The checkpoints of some keys, in their order, without those that are gone."""
        groups: dict[tuple[str, str], set[str]] = {}
        for key in keys:
            groups.setdefault(key[:2], set()).add(key.checkpoint_id)
        found: dict[_Key, CheckpointTuple] = {}
        for place, ids in groups.items():
            found |= self._load_of(place, ids, session)
        return [found[key] for key in keys if key in found]

    def _load_of(
        self, place: tuple[str, str], ids: set[str], session: Session
    ) -> dict[_Key, CheckpointTuple]:
        def rows(model: Any, *columns: Any) -> Any:
            here = (model.thread_id == place[0], model.checkpoint_ns == place[1])
            chosen = select(model.checkpoint_id, *columns)
            return chosen.where(*here, model.checkpoint_id.in_(ids))

        # The writes first: what has a live thread afterwards had one before, and all its writes.
        write = self.tables.Write
        writes: dict[str, Any] = {}
        statement = rows(write, write.task_id, write.channel, write.type, write.value)
        result: Any = session.execute(statement.order_by(write.task_id, write.idx))
        for name, task_id, channel, *typed in result:
            value = self.serde.loads_typed(tuple(typed))
            writes.setdefault(name, []).append((task_id, channel, value))
        model = self.tables.Checkpoint
        found = {}
        statement = rows(model, model.parent_id, model.details, model.type, model.value)
        result = session.execute(statement)
        for name, parent, details, *typed in result:
            key = _Key(*place, name)
            found[key] = CheckpointTuple(
                config=key.config(),
                checkpoint=self.serde.loads_typed(tuple(typed)),
                metadata=details,
                parent_config=key.config(parent) if parent else None,
                pending_writes=writes.get(name, []),
            )
        return found

    def _put(self, row: Row, session: Session) -> None:
        self._have_thread(row["thread_id"], session)
        session.merge(self.tables.Checkpoint(**row))

    def _put_writes(
        self, key: _Key, task_id: str, rows: Mapping[int, Row], session: Session
    ) -> None:
        self._have_thread(key.thread_id, session)
        model = self.tables.Write
        names = {**key._asdict(), "task_id": task_id}
        stored = set(session.scalars(select(model.idx).filter_by(**names)))
        for idx, row in rows.items():
            write = model(**names, idx=idx, **row)
            if idx not in stored:
                session.add(write)
            elif idx < 0:  # an error, an interrupt and their like replace the last one
                session.merge(write)

    def _delete(self, thread_id: str, session: Session) -> None:
        # Others who write to this thread wait, and then begin it anew.
        if session.get(self.tables.Thread, thread_id, with_for_update=True) is None:
            return
        for model in (self.tables.Write, self.tables.Checkpoint, self.tables.Thread):
            session.execute(
                delete(model).where(model.thread_id == thread_id),
                execution_options={"keep_last_modified": True, "synchronize_session": False},
            )

    def _have_thread(self, thread_id: str, session: Session) -> None:
        if session.get(self.tables.Thread, thread_id) is None:
            session.add(self.tables.Thread(thread_id=thread_id))
            session.flush()

    def _checkpoint_row(
        self,
        key: _Key,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
    ) -> Row:
        kind, value = self.serde.dumps_typed(checkpoint)
        parent = get_checkpoint_id(config)
        details = get_checkpoint_metadata(config, metadata)
        return {
            **key._asdict(),
            "parent_id": parent,
            "type": kind,
            "value": value,
            "details": details,
        }

    def _write_rows(self, writes: Sequence[tuple[str, Any]]) -> dict[int, Row]:
        """Rows by their numbers within the task."""
        rows: dict[int, Row] = {}
        for number, (channel, value) in enumerate(writes):
            kind, dumped = self.serde.dumps_typed(value)
            idx = WRITES_IDX_MAP.get(channel, number)
            rows[idx] = {"channel": channel, "type": kind, "value": dumped}
        return rows

    def _run(self, work: Callable[[Session], Found]) -> Found:
        """Do the work of one transaction, again where others were faster."""
        if isinstance(self.engine, AsyncEngine):
            loop = self._loop_elsewhere()
            return asyncio.run_coroutine_threadsafe(self._arun(work), loop).result()
        for left in reversed(range(_ATTEMPTS)):
            try:
                with Session(self.engine) as session, session.begin():
                    return work(session)
            except _OVERTAKEN:
                if not left:
                    raise
        raise AssertionError(_ATTEMPTS)

    async def _arun(self, work: Callable[[Session], Found]) -> Found:
        """As `_run`."""
        if isinstance(self.engine, Engine):
            return await asyncio.to_thread(self._run, work)
        self._loop = asyncio.get_running_loop()
        for left in reversed(range(_ATTEMPTS)):
            try:
                async with AsyncSession(self.engine) as session, session.begin():
                    return await session.run_sync(work)
            except _OVERTAKEN:
                if not left:
                    raise
        raise AssertionError(_ATTEMPTS)

    def _loop_elsewhere(self) -> asyncio.AbstractEventLoop:
        """The event loop that uses an AsyncEngine, which may not be that of this thread."""
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        if self._loop is None or self._loop is here or not self._loop.is_running():
            raise TTLConfigurationError(
                "This SQLAlchemySaver has an AsyncEngine: call the asynchronous methods, such as "
                "graph.ainvoke(), or give it an Engine."
            )
        return self._loop


def _place(config: RunnableConfig) -> tuple[str, str]:
    """The thread and the namespace that a config names."""
    named = _named(config)
    return str(named["thread_id"]), named.get("checkpoint_ns", "")


def _named(config: RunnableConfig) -> dict[str, Any]:
    return config.get("configurable", {})

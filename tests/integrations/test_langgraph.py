"""LangGraph's threads expire with all their checkpoints, whatever reads, writes or sweeps."""

from __future__ import annotations

import asyncio
import operator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import pytest
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.errors import EmptyInputError
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, interrupt
from sqlalchemy import MetaData, event, func, select, update
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import DeclarativeBase, Session

from ttl_odm import TTL, ExpireAt, TTLConfigurationError
from ttl_odm.integrations.langgraph import CheckpointTables, SQLAlchemySaver
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from sqlalchemy import Engine
    from sqlalchemy.engine import ExceptionContext
    from sqlalchemy.ext.asyncio import AsyncEngine

    from ttl_odm.testing import TTLClock

HOUR = 3600

LOCK_TIMEOUTS = {
    "sqlite": "PRAGMA busy_timeout = 100",
    "postgresql": "SET lock_timeout = '100ms'",
    "mysql": "SET innodb_lock_wait_timeout = 1",
}

# aiomysql 0.3.2 can't send bytes with PyMySQL 1.2.
ASYNC = pytest.mark.databases("sqlite", "postgres")


class State(TypedDict):
    """What the graph of these tests works on."""

    said: Annotated[list[str], operator.add]


def graph(saver: SQLAlchemySaver, *steps: Callable[[State], State]) -> Any:
    """A graph of some steps one after the other, or of one that answers."""
    builder = StateGraph(State)
    names = [f"step{number}" for number in range(len(steps) or 1)]
    for name, step in zip(names, steps or [answer], strict=True):
        builder.add_node(name, step)
    for first, second in zip([START, *names], [*names, END], strict=True):
        builder.add_edge(first, second)
    return builder.compile(checkpointer=saver)


def answer(state: State) -> State:
    return {"said": [f"answer to {state['said'][-1]}"]}


def of(thread_id: str, **more: str) -> Any:
    return {"configurable": {"thread_id": thread_id, "checkpoint_ns": "", **more}}


# For all tests: a mapping of their own would have each of them compile what the last one has.
TABLES = CheckpointTables(HOUR)
RENEWED_EVERY_TWO_MINUTES = CheckpointTables(HOUR, at_most_every=120)


def make_saver(
    engine: Engine, tables: CheckpointTables = TABLES, **options: Any
) -> SQLAlchemySaver:
    tables.metadata.create_all(engine)
    return SQLAlchemySaver(engine, tables, **options)


async def make_async_saver(engine: AsyncEngine) -> SQLAlchemySaver:
    async with engine.begin() as connection:
        await connection.run_sync(TABLES.metadata.create_all)
    return SQLAlchemySaver(engine, TABLES)


def put(saver: SQLAlchemySaver, config: Any, **values: Any) -> Any:
    return saver.put(config, {**empty_checkpoint(), "channel_values": values}, {}, {})


def counts(saver: SQLAlchemySaver) -> tuple[int, ...]:
    """How many writes, checkpoints and threads are stored, expired or not."""
    tables = saver.tables
    with Session(saver.engine) as session:
        return tuple(
            session.scalar(select(func.count()).select_from(model).options(include_expired()))
            for model in (tables.Write, tables.Checkpoint, tables.Thread)
        )


@pytest.mark.slow
async def test_it_conforms_with_an_engine(engine: Engine) -> None:
    @checkpointer_test(name="SQLAlchemySaver with an Engine")
    async def saver() -> AsyncIterator[SQLAlchemySaver]:
        yield make_saver(engine)

    report = await validate(saver)
    assert report.passed_all_base(), report.to_dict()


@pytest.mark.slow
@ASYNC
async def test_it_conforms_with_an_asyncengine(async_engine: AsyncEngine) -> None:
    @checkpointer_test(name="SQLAlchemySaver with an AsyncEngine")
    async def saver() -> AsyncIterator[SQLAlchemySaver]:
        yield await make_async_saver(async_engine)

    report = await validate(saver)
    assert report.passed_all_base(), report.to_dict()


@pytest.mark.slow
def test_a_graph_goes_on_where_its_thread_lives_and_from_nothing_where_it_has_expired(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    saver = make_saver(engine)
    chat = graph(saver)
    assert chat.invoke({"said": ["a"]}, of("1"))["said"] == ["a", "answer to a"]
    ttl_clock.advance(HOUR - 60)
    assert len(chat.invoke({"said": ["b"]}, of("1"))["said"]) == 4
    ttl_clock.advance(HOUR)
    assert chat.get_state(of("1")).values == {}
    assert list(chat.get_state_history(of("1"))) == []
    assert chat.invoke({"said": ["c"]}, of("1"))["said"] == ["c", "answer to c"]
    assert {len(one.values.get("said", [])) for one in chat.get_state_history(of("1"))} == {0, 1, 2}


@pytest.mark.slow
@ASYNC
async def test_a_graph_does_so_on_an_asyncengine(
    async_engine: AsyncEngine, ttl_clock: TTLClock
) -> None:
    saver = await make_async_saver(async_engine)
    chat = graph(saver)
    await chat.ainvoke({"said": ["a"]}, of("1"))
    assert len((await chat.ainvoke({"said": ["b"]}, of("1")))["said"]) == 4
    ttl_clock.advance(HOUR)
    assert (await chat.aget_state(of("1"))).values == {}
    assert [one async for one in chat.aget_state_history(of("1"))] == []
    assert (await chat.ainvoke({"said": ["c"]}, of("1")))["said"] == ["c", "answer to c"]
    ttl_clock.advance(HOUR)
    report = await AsyncSweeper(async_engine, saver.tables.metadata).run_once()
    assert [one.deleted for one in report.targets] == [1]


@pytest.mark.slow
@ASYNC
async def test_nodes_in_threads_may_use_an_asyncengine(async_engine: AsyncEngine) -> None:
    saver = await make_async_saver(async_engine)
    inner = graph(saver)

    def ask(state: State) -> State:
        return {"said": inner.invoke({"said": ["b"]}, of("2"))["said"]}

    said = (await graph(saver, ask).ainvoke({"said": ["a"]}, of("1")))["said"]
    assert said == ["a", "b", "answer to b"]
    assert (await inner.aget_state(of("2"))).values["said"] == ["b", "answer to b"]
    with pytest.raises(TTLConfigurationError, match="call the asynchronous methods"):
        saver.get_tuple(of("1"))


def test_an_expired_thread_has_no_checkpoint_and_no_write_from_that_instant_on(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    saver = make_saver(engine)
    configs = [put(saver, of(name), said=name) for name in ("1", "2")]
    for config in configs:
        saver.put_writes(config, [("said", "x")], "task")
    with Session(engine) as session, session.begin():
        session.execute(update(saver.tables.Thread).filter_by(thread_id="1").values(ttl=-1))
    ttl_clock.advance(HOUR)
    assert saver.get_tuple(of("2")) is None
    assert saver.get_tuple(configs[1]) is None
    assert list(saver.list(of("2"))) == []
    (left,) = saver.list(None)
    assert left.config == configs[0]
    assert left.checkpoint["channel_values"] == {"said": "1"}
    assert left.pending_writes == [("task", "said", "x")]
    assert counts(saver) == (2, 2, 2)


def test_a_checkpoint_begins_the_thread_anew_under_the_same_keys(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    saver = make_saver(engine)
    checkpoint = empty_checkpoint()
    for said in ("before", "after"):
        config = saver.put(of("1"), {**checkpoint, "channel_values": {"said": said}}, {}, {})
        put(saver, of("1"), said="later")
        found = saver.get_tuple(config)
        assert found is not None
        assert found.checkpoint["channel_values"] == {"said": said}
        assert found.pending_writes == []
        saver.put_writes(config, [("said", "x")], "task")
        assert len(list(saver.list(of("1")))) == 2
        ttl_clock.advance(HOUR)
    assert counts(saver) == (1, 2, 1)


def test_writes_may_come_before_their_checkpoint_and_after_their_thread(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    saver = make_saver(engine)
    checkpoint = empty_checkpoint()
    config = of("1", checkpoint_id=checkpoint["id"])
    saver.put_writes(config, [("said", "x")], "task")
    assert saver.get_tuple(config) is None
    saver.put(of("1"), checkpoint, {}, {})
    ttl_clock.advance(HOUR)
    saver.put_writes(config, [("said", "y")], "task")
    assert saver.get_tuple(config) is None
    saver.put(of("1"), checkpoint, {}, {})
    found = saver.get_tuple(of("1"))
    assert found is not None
    assert found.pending_writes == [("task", "said", "y")]


@pytest.mark.parametrize("renew_on_read", [False, True])
def test_reading_renews_a_thread_where_that_is_asked_for(
    engine: Engine, ttl_clock: TTLClock, *, renew_on_read: bool
) -> None:
    saver = make_saver(engine, renew_on_read=renew_on_read)
    put(saver, of("1"))
    ttl_clock.advance(HOUR - 60)
    assert saver.get_tuple(of("1")) is not None
    ttl_clock.advance(60)
    assert (saver.get_tuple(of("1")) is not None) is renew_on_read
    ttl_clock.advance(HOUR)
    assert saver.get_tuple(of("1")) is None


def test_a_thread_that_was_renewed_is_left_alone_for_some_seconds(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    saver = make_saver(engine, RENEWED_EVERY_TWO_MINUTES, renew_on_read=True)
    put(saver, of("1"))
    ttl_clock.advance(100)
    put(saver, of("1"))
    assert saver.get_tuple(of("1")) is not None
    ttl_clock.advance(HOUR - 100)
    assert saver.get_tuple(of("1")) is None


def test_a_sweep_deletes_writes_and_checkpoints_with_their_threads(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    saver = make_saver(engine)
    for name in ("1", "2"):
        saver.put_writes(put(saver, of(name)), [("said", "x"), ("said", "y")], "task")
    ttl_clock.advance(HOUR - 60)
    put(saver, of("2"))
    ttl_clock.advance(60)
    assert counts(saver) == (4, 3, 2)
    (target,) = Sweeper(engine, saver.tables.metadata).run_once().targets
    assert target.deleted == 1
    assert dict(target.referring) == {"langgraph_writes": 2, "langgraph_checkpoints": 1}
    assert counts(saver) == (2, 2, 1)
    assert len(list(saver.list(of("2")))) == 2


def test_a_thread_may_have_a_ttl_of_its_own(engine: Engine, ttl_clock: TTLClock) -> None:
    saver = make_saver(engine)
    with Session(engine) as session, session.begin():
        session.add(saver.tables.Thread(thread_id="1", ttl=60))
    put(saver, of("1"))
    ttl_clock.advance(60)
    assert saver.get_tuple(of("1")) is None
    put(saver, of("1"))
    ttl_clock.advance(60)
    assert saver.get_tuple(of("1")) is not None


def test_a_thread_is_deleted_with_everything(engine: Engine, ttl_clock: TTLClock) -> None:
    saver = make_saver(engine)
    for name in ("1", "2"):
        saver.put_writes(put(saver, of(name)), [("said", "x")], "task")
    saver.delete_thread("1")
    assert counts(saver) == (1, 1, 1)
    assert [one.config["configurable"]["thread_id"] for one in saver.list(None)] == ["2"]
    ttl_clock.advance(HOUR)
    saver.delete_thread("2")
    saver.delete_thread("no such thread")


@pytest.mark.slow
def test_an_interrupted_graph_is_resumed_while_its_thread_lives(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    def ask(state: State) -> State:
        return {"said": [interrupt("may I?")]}

    chat = graph(make_saver(engine), answer, ask, answer)
    assert "__interrupt__" in chat.invoke({"said": ["a"]}, of("1"))
    ttl_clock.advance(HOUR - 60)
    assert chat.invoke(Command(resume="yes"), of("1"))["said"][2:] == ["yes", "answer to yes"]
    chat.invoke({"said": ["a"]}, of("2"))
    ttl_clock.advance(HOUR)
    assert chat.get_state(of("2")).next == ()


@pytest.mark.slow
def test_a_resumed_thread_that_has_expired_is_one_that_was_never_used(
    engine: Engine, ttl_clock: TTLClock
) -> None:
    def ask(state: State) -> State:
        return {"said": [interrupt(f"after {state['said']}")]}

    chat = graph(make_saver(engine), ask)
    chat.invoke({"said": ["a"]}, of("1"))
    assert chat.get_state(of("1")).interrupts
    ttl_clock.advance(HOUR)
    assert not chat.get_state(of("1")).interrupts  # what docs/langgraph.md looks for
    with pytest.raises(EmptyInputError):
        chat.invoke(None, of("1"))
    late, unused = (chat.invoke(Command(resume="yes"), of(name)) for name in ("1", "unused"))
    assert late["said"] == unused["said"] == []
    assert [late["__interrupt__"][0].value, unused["__interrupt__"][0].value] == ["after []"] * 2


def test_a_connection_string_opens_an_engine_for_a_block(tmp_path: Path) -> None:
    address = f"sqlite:///{tmp_path}/chats.db"
    with SQLAlchemySaver.from_conn_string(address, TABLES, renew_on_read=True) as saver:
        TABLES.metadata.create_all(saver.engine)
        assert saver.renew_on_read
        assert graph(saver).invoke({"said": ["a"]}, of("1"))["said"] == ["a", "answer to a"]
        pool = saver.engine.pool
    assert saver.engine.pool is not pool  # it was disposed of
    with pytest.raises(TTLConfigurationError, match="CheckpointTables"):
        SQLAlchemySaver.from_conn_string(address, 3600)  # type: ignore[arg-type]


async def test_that_of_an_asynchronous_driver_needs_async_with(tmp_path: Path) -> None:
    sync, asynchronous = (f"sqlite{driver}:///{tmp_path}/a.db" for driver in ("", "+aiosqlite"))
    async with SQLAlchemySaver.from_conn_string(asynchronous, TABLES) as saver:
        async with saver.engine.begin() as connection:
            await connection.run_sync(TABLES.metadata.create_all)
        said = (await graph(saver).ainvoke({"said": ["a"]}, of("1")))["said"]
    async with SQLAlchemySaver.from_conn_string(sync, TABLES) as saver:
        assert (await graph(saver).aget_state(of("1"))).values["said"] == said
    with (
        pytest.raises(TTLConfigurationError, match="async with"),
        SQLAlchemySaver.from_conn_string(asynchronous, TABLES),
    ):
        pass


@pytest.mark.slow
def test_a_run_may_take_longer_than_its_thread_lives(engine: Engine, ttl_clock: TTLClock) -> None:
    def think(state: State) -> State:
        ttl_clock.advance(HOUR)
        return answer(state)

    chat = graph(make_saver(engine), think, think, answer)
    assert len(chat.invoke({"said": ["a"]}, of("1"))["said"]) == 4
    assert len(chat.get_state(of("1")).values["said"]) == 4
    assert len(chat.invoke({"said": ["b"]}, of("1"))["said"]) == 8


@pytest.mark.slow
def test_many_may_begin_and_write_one_thread_at_once(engine: Engine) -> None:
    saver = make_saver(engine)
    config = of("1", checkpoint_id=empty_checkpoint()["id"])

    def work(number: int) -> None:
        saver.put_writes(config, [("said", number), ("heard", number)], f"task {number}")
        put(saver, of("1"), number=number)
        put(saver, of(f"thread {number}"))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(24)))
    assert counts(saver) == (48, 48, 25)


@ASYNC
async def test_many_may_do_so_on_an_asyncengine(async_engine: AsyncEngine) -> None:
    saver = await make_async_saver(async_engine)

    async def work(number: int) -> None:
        checkpoint = empty_checkpoint()
        config = await saver.aput(of("1"), checkpoint, {"step": number}, {})
        await saver.aput_writes(config, [("said", number)], "task")

    await asyncio.gather(*map(work, range(8)))
    found = [one async for one in saver.alist(of("1"))]
    assert len(found) == 8
    assert all(one.pending_writes == [("task", "said", one.metadata["step"])] for one in found)


def test_a_write_is_kept_and_an_interrupt_replaced(engine: Engine) -> None:
    saver = make_saver(engine)
    config = put(saver, of("1"))
    for value in ("first", "second"):
        writes = [("said", value), ("__interrupt__", value), ("__error__", value)]
        saver.put_writes(config, writes, "task")
    found = saver.get_tuple(config)
    assert found is not None
    assert {channel: value for _, channel, value in found.pending_writes or ()} == {
        "said": "first",
        "__interrupt__": "second",
        "__error__": "second",
    }


def test_writes_come_in_the_order_in_which_their_tasks_are_applied(engine: Engine) -> None:
    saver = make_saver(engine)
    config = put(saver, of("1"))
    # Collations of databases order these paths in other ways than LangGraph does.
    for task_id, path in [("a", "~b"), ("b", "~B"), ("d", "~a-b"), ("c", "~aa"), ("e", "")]:
        saver.put_writes(config, [("said", f"{path}0"), ("said", f"{path}1")], task_id, path)
    stored = saver.get_tuple(config)
    assert stored is not None
    assert [value for _, _, value in stored.pending_writes or ()] == [
        f"{path}{idx}" for path in ("", "~B", "~a-b", "~aa", "~b") for idx in (0, 1)
    ]


@pytest.mark.slow
def test_a_write_that_waits_in_vain_for_a_lock_is_tried_again(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def wait_briefly(connection: Any, record: Any) -> None:
        cursor = connection.cursor()
        cursor.execute(LOCK_TIMEOUTS[engine.dialect.name])
        cursor.close()
        connection.commit()

    saver = make_saver(engine)
    put(saver, of("1"))
    with engine.connect() as other:
        other.execute(update(TABLES.Thread).values(ttl=HOUR))
        failures = []

        @event.listens_for(engine, "handle_error")
        def let_go(context: ExceptionContext) -> None:
            failures.append(context.original_exception)
            other.rollback()

        put(saver, of("1"), said="x")
    assert len(failures) == 1
    assert len(list(saver.list(of("1")))) == 2


def test_a_checkpoint_that_is_stored_again_is_replaced(engine: Engine) -> None:
    saver = make_saver(engine)
    checkpoint = empty_checkpoint()
    for step in (1, 2):
        saver.put(of("1"), checkpoint, {"step": step}, {})
    assert [one.metadata for one in saver.list(of("1"))] == [{"step": 2}]


def test_long_lists_come_in_order_and_in_part(engine: Engine) -> None:
    saver = make_saver(engine)
    for step in range(24):
        saver.put(of("1"), empty_checkpoint(), {"step": step, "odd": step % 2}, {})
    found = list(saver.list(of("1")))
    assert [one.metadata["step"] for one in found] == list(range(23, -1, -1))
    odd = saver.list(of("1"), filter={"odd": 1}, before=found[9].config, limit=3)
    assert [one.metadata["step"] for one in odd] == [13, 11, 9]


def test_large_values_and_names_that_differ_in_case_are_kept(engine: Engine) -> None:
    saver = make_saver(engine)
    large = b"x" * 100_000
    for name in ("Thread", "thread", "thréad"):
        saver.put_writes(put(saver, of(name), name=name, large=large), [("said", large)], "task")
    for name in ("Thread", "thread", "thréad"):
        (found,) = saver.list(of(name))
        assert found.checkpoint["channel_values"] == {"name": name, "large": large}
        assert found.pending_writes == [("task", "said", large)]


def test_the_tables_may_be_among_those_of_an_application() -> None:
    class Base(DeclarativeBase):
        pass

    tables = CheckpointTables(TTL(HOUR), Base, prefix="chat_")
    assert tables.metadata is Base.metadata
    assert set(Base.metadata.tables) == {"chat_threads", "chat_checkpoints", "chat_writes"}
    metadata = MetaData(schema="chats")
    assert set(CheckpointTables(HOUR, metadata).metadata.tables) == {
        f"chats.langgraph_{name}" for name in ("threads", "checkpoints", "writes")
    }


@pytest.mark.databases("sqlite")
def test_what_is_wrong_is_said(engine: Engine) -> None:
    tables: Any = CheckpointTables(HOUR)
    with pytest.raises(TTLConfigurationError, match="pass a declarative base or a MetaData"):
        CheckpointTables(HOUR, "Base")
    with pytest.raises(TTLConfigurationError, match="pass an Engine or an AsyncEngine"):
        SQLAlchemySaver(tables, engine)  # type: ignore[arg-type]
    with pytest.raises(TTLConfigurationError, match=r"give CheckpointTables\(ttl\)"):
        SQLAlchemySaver(engine, tables.metadata)
    with pytest.raises(TTLConfigurationError, match="has no column 'expires_at'"):
        CheckpointTables(ExpireAt("expires_at"))
    saver = SQLAlchemySaver(create_async_engine("sqlite+aiosqlite://"), tables)
    with pytest.raises(TTLConfigurationError, match="call the asynchronous methods"):
        graph(saver).invoke({"said": ["a"]}, of("1"))

"""`TTLClock` on SQLAlchemy: every statement follows a move, and none is another one afterwards."""

from __future__ import annotations

import subprocess
import sys
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import time_machine
from sqlalchemy import (
    DateTime,
    Engine,
    Table,
    create_engine,
    event,
    func,
    insert,
    lambda_stmt,
    select,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session, mapped_column
from sqlalchemy.schema import CreateTable

from tests.sql.models import web_session
from ttl_odm.sqlalchemy import Archive, ExpiredError, expired, live
from ttl_odm.sqlalchemy.gate import execution
from ttl_odm.sqlalchemy.sweep import leases
from ttl_odm.sqlalchemy.time import clock as database_clock
from ttl_odm.sweeper import AsyncSweeper, Sweeper
from ttl_odm.testing import TTLClock, assert_no_leaks
from ttl_odm.testing.clock import on_sqlalchemy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy.ext.asyncio import AsyncEngine

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
# The finest step that every database keeps.
TICK = timedelta(milliseconds=1)
AT = datetime(2030, 3, 31, 0, 30, 0, 123_000, tzinfo=timezone.utc)


@pytest.fixture
def clock() -> Iterator[TTLClock]:
    with TTLClock() as clock:
        yield clock


@pytest.fixture
def model(engine: Engine) -> Any:
    made = web_session(3600)
    made.metadata.create_all(engine)
    return made


def sent(engine: Engine, work: Callable[[], object]) -> list[str]:
    """What the driver gets while something is done."""
    statements: list[str] = []

    def note(_cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    event.listen(engine, "do_execute", note)
    try:
        work()
    finally:
        event.remove(engine, "do_execute", note)
    return statements


def test_rows_that_take_the_keys_of_expired_ones_are_stamped_by_the_clock(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    with Session(engine) as session:
        session.add_all([model(id="a"), model(id="b")])
        session.commit()
        clock.advance(DAY)
        session.add(model(id="a"))
        session.flush()
        session.add_all([model(id=key) for key in "bcd"])
        session.commit()
        clock.advance(HOUR / 2)
        assert set(session.scalars(select(model.id))) == {*"abcd"}
        clock.advance(HOUR)
        assert not session.scalars(select(model.id)).all()


@pytest.mark.slow
def test_every_kind_of_read_follows_and_is_the_same_as_before_afterwards(
    engine: Engine, model: Any
) -> None:
    table, cache = model.__table__, {}
    kept = select(model.id)
    reads: dict[str, Callable[[Session], list[Any]]] = {
        "entities": lambda s: [row.id for row in s.scalars(select(model))],
        "a statement that was made once": lambda s: list(s.scalars(kept)),
        "a lambda": lambda s: list(s.scalars(lambda_stmt(lambda: select(model.id)))),
        "Core": lambda s: list(s.connection().scalars(select(table.c.id))),
        "a cache of the user's": lambda s: list(
            s.connection().execution_options(compiled_cache=cache).scalars(select(table.c.id))
        ),
        "no cache": lambda s: list(
            s.connection().execution_options(compiled_cache=None).scalars(select(table.c.id))
        ),
        "a count": lambda s: ["a"] * s.scalar(select(func.count()).select_from(model)),  # type: ignore[operator]
        "live()": lambda s: list(
            s.scalars(select(model.id).where(live(model)).execution_options(include_expired=True))
        ),
        "not expired()": lambda s: list(
            s.scalars(
                select(model.id).where(~expired(model)).execution_options(include_expired=True)
            )
        ),
        "get()": lambda s: ["a"] if s.get(model, "a") else [],
        "get() of what is in the session": lambda s: (
            [row.id for row in s.scalars(select(model).execution_options(include_expired=True))]
            if s.get(model, "a")
            else []
        ),
    }  # fmt: skip
    with Session(engine) as session:
        session.add(model(id="a"))
        session.commit()

    def run(answer: list[str]) -> list[str]:
        with Session(engine) as session:

            def ask() -> None:
                for name, read in reads.items():
                    assert read(session) == answer, name

            return sent(engine, ask)

    before = run(["a"])
    with TTLClock() as clock:
        assert run(["a"]) == before
        for move, answer in ((3600, []), (-1800, ["a"]), (1800, []), (-3600, ["a"])):
            clock.advance(move)
            during = run(answer)
            assert not set(during) & set(before) or clock.offset == timedelta(0)
        assert during == before  # it stands at the real now again
        clock.freeze(AT)
        run([])
    assert run(["a"]) == before


def test_stamps_follow(engine: Engine, model: Any, clock: TTLClock) -> None:
    with Session(engine) as session:
        clock.freeze(AT)
        session.add(model(id="flushed"))
        session.execute(insert(model), [{"id": "bulk 1"}, {"id": "bulk 2"}])
        session.execute(insert(model.__table__).values([{"id": "core 1"}, {"id": "core 2"}]))
        session.execute(
            insert(model).from_select(["id"], select(model.id + " copied").where(model.id < "c"))
        )
        assert len(session.scalars(select(model)).all()) == 7
        assert set(session.scalars(select(model.last_modified))) == {AT}
        clock.advance(SECOND)
        row = session.get(model, "flushed")
        row.views = 1
        session.get(model, "bulk 1").touch()
        session.flush()
        session.execute(update(model).where(model.id == "core 1").values(views=1))
        session.execute(update(model), [{"id": "core 2", "views": 1}])
        session.expire_all()
        renewed = select(model.id).where(model.last_modified == AT + SECOND)
        assert set(session.scalars(renewed)) == {"flushed", "bulk 1", "core 1", "core 2"}
        # What is kept has been kept.
        session.execute(
            update(model).values(views=2), execution_options={"keep_last_modified": True}
        )
        assert len(session.scalars(renewed).all()) == 4


def test_the_instant_of_expiry_is_exact(engine: Engine, model: Any, clock: TTLClock) -> None:
    with Session(engine) as session:
        clock.freeze(AT)
        row = model(id="a", ttl=60)
        session.add(row)
        session.commit()
        assert row.expires_at == AT + timedelta(seconds=60)
        clock.freeze(row.expires_at - TICK)
        assert (row.is_expired, row.time_left) == (False, TICK)
        assert session.scalars(select(model.is_expired)).all() == [False]
        clock.advance(TICK)
        assert (row.is_expired, row.time_left) == (True, timedelta(0))
        assert session.scalars(select(model)).all() == []
        assert session.get(model, "a") is None


def test_what_is_known_of_a_row_in_memory_follows(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    clock.freeze()
    with Session(engine, expire_on_commit=False) as session:
        row = model(id="a")
        session.add(row)
        session.commit()
        session.refresh(row)
        assert sent(engine, lambda: session.get(model, "a")) == []
        with clock.advance(HOUR):
            assert row.is_expired
            assert session.get(model, "a") is None
            row.views = 1
            with pytest.raises(ExpiredError):
                session.flush()
            session.rollback()
        row = session.get(model, "a")
        assert row.time_left == HOUR
        with clock.advance(HOUR / 2):
            assert row.time_left == HOUR / 2
            assert row.touch(at_most_every=HOUR) is False
            assert row.touch(at_most_every=HOUR / 4)
            session.commit()
            assert row.time_left == HOUR
        session.expunge(row)
        assert row.time_left == HOUR * 3 / 2


def test_the_helpers_of_a_row_count_from_the_moved_now(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    with Session(engine) as session:
        clock.freeze(AT)
        rows = [model(id=key) for key in ("in", "at", "over")]
        session.add_all(rows)
        session.flush()
        clock.advance(HOUR / 2)
        rows[0].expire_in(10)
        rows[1].expire_at(AT + HOUR + TICK)
        rows[2].expire_in(0)
        session.commit()
        assert rows[0].expires_at == AT + HOUR / 2 + 10 * SECOND
        assert rows[1].expires_at == AT + HOUR + TICK
        assert set(session.scalars(select(model.id))) == {"in", "at"}


def test_the_keys_of_a_row_are_free_once_the_clock_says_so(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    with Session(engine) as session:
        session.add(model(id="a", email="e", views=7))
        session.commit()
        session.expunge_all()
        clock.advance(HOUR)
        session.add(model(id="b", email="e"))
        session.flush()
        clock.advance(HOUR)
        session.add_all([model(id="a"), model(id="b")])
        session.commit()
        rows = session.execute(select(model.id, model.views).order_by(model.id)).all()
        assert rows == [("a", 0), ("b", 0)]


def test_an_upsert_that_meets_an_expired_row_is_an_insert(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    from sqlalchemy.dialects import mysql, postgresql, sqlite

    kinds: dict[str, Any] = {"mysql": mysql, "postgresql": postgresql, "sqlite": sqlite}

    def upsert() -> Any:
        statement = kinds[engine.dialect.name].insert(model).values(id="a", views=100)
        if engine.dialect.name == "mysql":
            return statement.on_duplicate_key_update(views=model.views + 1)
        return statement.on_conflict_do_update(
            index_elements=["id"], set_={"views": model.views + 1}
        )

    with Session(engine) as session:
        views = select(model.views).where(model.id == "a")
        for move, seen in ((0, 100), (3000, 101), (3000, 102), (3600, 100), (1, 101)):
            clock.advance(move)
            session.execute(upsert())
            assert session.scalar(views) == seen


def test_all_of_it_works_in_a_transaction_that_is_rolled_back(
    engine: Engine, model: Any, clock: TTLClock
) -> None:
    if engine.dialect.name == "sqlite":  # Python's driver begins no transaction for a savepoint
        event.listen(engine, "connect", lambda c, _: setattr(c, "isolation_level", None))
        event.listen(engine, "begin", lambda c: c.exec_driver_sql("BEGIN"))
        engine.dispose()
    with engine.connect() as connection:
        outer = connection.begin()
        with Session(bind=connection, join_transaction_mode="create_savepoint") as session:
            session.add(model(id="a"))
            session.commit()
            clock.advance(HOUR)
            assert session.scalars(select(model)).all() == []
            session.add(model(id="a", views=1))
            session.commit()
            assert session.scalars(select(model.views)).all() == [1]
        statements = sent(engine, lambda: clock.advance(HOUR))
        outer.rollback()
    assert statements == []
    with engine.connect() as connection:
        everything = select(model.id).execution_options(include_expired=True)
        assert connection.scalars(everything).all() == []


def test_other_threads_and_other_engines_follow(engine: Engine, model: Any) -> None:
    found: list[Any] = []
    second = create_engine(engine.url)
    with second.connect() as opened, engine.connect() as connection, TTLClock() as clock:
        connection.execute(insert(model).values(id="a"))
        connection.commit()

        def ask() -> None:
            with Session(third) as session:
                found.append(session.scalars(select(model.id)).all())

        clock.advance(HOUR)
        third = create_engine(engine.url)
        thread = threading.Thread(target=ask)
        thread.start()
        thread.join()
        found.append(opened.scalars(select(model.id)).all())
        found.append(connection.scalars(select(model.id)).all())
    with second.connect() as opened:
        found.append(opened.scalars(select(model.id)).all())
    second.dispose()
    third.dispose()
    assert found == [[], [], [], ["a"]]


async def test_asynchronous_sessions_follow(async_engine: AsyncEngine) -> None:
    model = web_session(3600)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine, expire_on_commit=False) as session:
        row = model(id="a")
        session.add_all([row, model(id="b", ttl=-1)])
        await session.commit()
        await session.refresh(row)
        session.expunge(row)
        ids = select(model.id).order_by(model.id)
        with TTLClock() as clock:
            for move, seen in (
                (1800, ["a", "b"]),
                (1800, ["b"]),
                (-1800, ["a", "b"]),
                (HOUR, ["b"]),
            ):
                clock.advance(move)
                assert (await session.scalars(ids)).all() == seen
                assert ((await session.get(model, "a")) is not None) == ("a" in seen)
                assert row.is_expired == ("a" not in seen)
            clock.freeze(AT)
            session.add_all([model(id="a"), model(id="c")])
            await session.commit()
            stamps = await session.scalars(select(model.last_modified).where(model.id != "b"))
            assert set(stamps) == {AT}
            report = await AsyncSweeper(async_engine, [model]).run_once()
            assert (report.problems, report.deleted) == ((), 0)
            clock.advance(HOUR)
            report = await AsyncSweeper(async_engine, [model]).run_once()
            assert (report.problems, report.deleted) == ((), 2)
        await session.commit()  # MariaDB's snapshot is older than the sweep
        assert (await session.scalars(ids)).all() == ["b"]


@pytest.mark.parametrize("sweep", ["index", "scan"])
def test_a_sweeper_judges_by_the_moved_clock_and_its_lease_does_not(
    engine: Engine, clock: TTLClock, sweep: str
) -> None:
    model = web_session(3600, __ttl_sweep__=sweep)
    table = leases.lease_table(model.metadata)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id="a"), model(id="b", ttl=7200), model(id="c", ttl=-1)])
        session.commit()
    sweeper = Sweeper(engine, [model])
    assert sweeper.run_once().deleted == 0
    for seen in ({"b", "c"}, {"c"}):
        clock.advance(HOUR)
        report = sweeper.run_once()
        report.raise_for_failures()
        assert report.deleted == 1
        (target,) = report.targets
        everything = select(model.id).execution_options(include_expired=True)
        with engine.connect() as connection:
            assert set(connection.scalars(everything)) == seen
    with engine.connect() as connection:
        recorded = connection.scalar(select(table.c.recorded_at))
    assert recorded < datetime.now(timezone.utc) + timedelta(minutes=30)
    assert target.oldest_before is None or target.oldest_before < 60


def test_an_archive_tells_when_it_took_a_row_by_the_moved_clock(
    engine: Engine, clock: TTLClock
) -> None:
    model = web_session(3600)
    archive = Table(
        "archived_sessions",
        model.metadata,
        *(column._copy() for column in model.__table__.c if column.name == "id"),
        mapped_column("archived_at", DateTime()).column,
    )
    model.__ttl_archive__ = Archive(archive, archived_at="archived_at")
    model.metadata.create_all(engine)
    clock.freeze(AT)
    with Session(engine) as session:
        session.add(model(id="a"))
        session.commit()
    clock.advance(HOUR)
    assert Sweeper(engine, [model]).run_once().archived == 1
    with engine.connect() as connection:
        (taken,) = connection.scalars(select(archive.c.archived_at))
    assert abs(taken - (AT + HOUR).replace(tzinfo=None)) <= SECOND


def test_what_the_database_does_by_itself_tells_the_real_time(
    engine: Engine, clock: TTLClock
) -> None:
    model = web_session(3600)
    with engine.connect():  # which is when a dialect gets to know its server
        ddl = str(CreateTable(model.__table__).compile(engine))
    clock.advance(HOUR)
    assert " ".join(sent(engine, lambda: model.metadata.create_all(engine))).count(ddl) == 1
    told = "clock_timestamp()" if engine.dialect.name == "postgresql" else "(UTC_TIMESTAMP(6))"
    told = "(julianday('now'))" if engine.dialect.name == "sqlite" else told
    kind = {"postgresql": "timestamptz", "mysql": "DATETIME(6)", "sqlite": "REAL"}
    ddl = f"/* raw */ CREATE TABLE raw (at {kind[engine.dialect.name]} DEFAULT {told})"

    def create() -> None:
        with engine.begin() as connection:
            connection.execute(text(ddl))

    assert ddl in sent(engine, create)
    raw = text("INSERT INTO web_sessions (id, views) VALUES ('a', 0)")
    with engine.begin() as connection:
        connection.execute(raw)
        assert connection.scalars(select(model.id)).all() == []
        clock.advance(-HOUR)
        assert connection.scalars(select(model.id)).all() == ["a"]


def test_raw_sql_that_asks_as_the_docs_say_follows(engine: Engine, clock: TTLClock) -> None:
    told = {
        "sqlite": "CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER)",
        "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
        "postgresql": "CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000000 AS BIGINT)",
    }[engine.dialect.name]
    second = 1000 if engine.dialect.name == "sqlite" else 1_000_000
    with engine.connect() as connection:

        def ask() -> int:
            return round(connection.scalar(text(f"SELECT {told}")) / second)

        before = ask()
        for move in (1.5, -3.25, timedelta(days=400), timedelta(days=-4000)):
            with clock.advance(move):
                seconds = timedelta(seconds=1) * (ask() - before)
                assert abs(seconds - clock.offset) < timedelta(seconds=30)
        for instant in (AT, datetime(1, 1, 2, tzinfo=timezone.utc), AT.replace(year=9999)):
            with clock.freeze(instant):
                assert ask() == round(instant.timestamp())


def test_a_watcher_for_leaks_is_not_disturbed(engine: Engine, model: Any, clock: TTLClock) -> None:
    clock.advance(HOUR)
    with Session(engine) as session, assert_no_leaks(session):
        session.add(model(id="a"))
        session.commit()
        assert len(session.scalars(select(model)).all()) == 1
    with (
        Session(engine) as session,
        pytest.raises(AssertionError, match="web_sessions"),
        assert_no_leaks(session),
    ):
        session.execute(text("SELECT id FROM web_sessions"))


def move_the_host(engine: Engine, model: Any, library: Callable[..., Any]) -> None:
    """See that a library which moves this host's clock moves nothing of the database's."""
    elsewhere = datetime(2050, 1, 1, tzinfo=timezone.utc)
    with Session(engine) as session, TTLClock() as clock:
        row = model(id="a", ttl=DAY)
        session.add(row)
        session.commit()
        with library(elsewhere):
            assert HOUR < row.time_left <= DAY
            with clock.freeze():
                assert clock.frozen_at is not None
                assert clock.frozen_at.year < elsewhere.year
                row.touch()
                session.commit()
                assert row.last_modified == clock.frozen_at
            with clock.advance(2 * DAY):
                assert row.is_expired
                assert session.scalars(select(model)).all() == []
        # The frozen instant may have been a moment ahead.
        assert HOUR < row.time_left <= DAY + SECOND
        with clock.advance(DAY + SECOND), library(elsewhere):
            assert row.is_expired


def test_time_machine_moves_this_host_only(engine: Engine, model: Any) -> None:
    move_the_host(engine, model, time_machine.travel)


FREEZEGUN = """
from freezegun import freeze_time
from sqlalchemy import create_engine
from sqlalchemy.pool import StaticPool

from tests.sql.models import web_session
from tests.testkit.test_sqlalchemy_clock import move_the_host

engine = create_engine("sqlite://", poolclass=StaticPool)
model = web_session(3600)
model.metadata.create_all(engine)
move_the_host(engine, model, freeze_time)
"""


@pytest.mark.slow
def test_freezegun_moves_this_host_only() -> None:
    """In a process of its own, since it looks at every module that has been imported."""
    run = subprocess.run(
        [sys.executable, "-c", FREEZEGUN],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr


def test_nothing_of_it_is_left() -> None:
    def pieces() -> list[Any]:
        return [database_clock.Sample.now, execution.observe, leases._now, on_sqlalchemy._in_use]

    before = pieces()
    with TTLClock():
        assert all(a is not b for a, b in zip(pieces(), before, strict=True))
    assert pieces() == before
    with pytest.raises(RuntimeError), TTLClock() as clock, clock.advance(HOUR):
        raise RuntimeError
    assert pieces() == before


def test_clocks_come_and_go_while_other_threads_send_statements(engine: Engine, model: Any) -> None:
    stop, failures = threading.Event(), []

    def work() -> None:
        try:
            while not stop.is_set():
                with engine.connect() as connection:
                    connection.scalars(select(model.id)).all()
        except Exception as error:  # noqa: BLE001 (it is what we look for)
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(200):
        with TTLClock() as clock:
            clock.advance(HOUR)
    stop.set()
    for thread in threads:
        thread.join()
    assert failures == []

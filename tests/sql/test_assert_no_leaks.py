"""The watcher for raw SQL: what it reports, with which line, and what it lets pass."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    MetaData,
    Table,
    column,
    delete,
    event,
    exists,
    func,
    insert,
    literal_column,
    select,
    table,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession, async_scoped_session, async_sessionmaker
from sqlalchemy.orm import (
    DeclarativeBase,
    Mapped,
    Session,
    aliased,
    mapped_column,
    scoped_session,
    sessionmaker,
)

import ttl_odm
from tests.clocks import age
from tests.sql.models import web_session
from ttl_odm.guard.sqlalchemy.leaks import meant_by
from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import assert_no_leaks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

READ = "SELECT id FROM web_sessions"


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        session.add_all([model(id="a", email="a@b.c"), model(id="b")])
        session.commit()
        yield session


def leaks_of(watched: Any, body: Callable[[], object]) -> list[Any]:
    """What is reported while a body runs; its failure at the end is checked as well."""
    watch = assert_no_leaks(watched)
    leaks = watch.__enter__()
    body()
    with pytest.raises(AssertionError) if leaks else nullcontext() as failure:
        watch.__exit__(None, None, None)
    if failure is not None:
        assert f"({len(leaks)})" in str(failure.value)
        assert all(str(leak) in str(failure.value) for leak in leaks)
    return leaks


def fetch(session: Session, sql: str) -> list[Any]:
    return list(session.execute(text(sql)))


def test_raw_sql_is_reported_with_its_table_and_the_line_that_sent_it(session: Session) -> None:
    with pytest.raises(AssertionError) as failure, assert_no_leaks(session) as leaks:
        fetch(session, READ)

    (leak,) = leaks
    assert (leak.tables, leak.sql) == (("web_sessions",), READ)
    line = inspect.getsourcelines(fetch)[1] + 1
    assert leak.line.endswith(f"test_assert_no_leaks.py:{line} in fetch")
    assert READ in str(failure.value)
    assert leak.line in str(failure.value)


@pytest.mark.parametrize(
    "sql",
    [
        READ,
        "select w.id from web_sessions as w",
        "SELECT a.id FROM web_sessions a, web_sessions b WHERE a.id = b.id",
        "SELECT (SELECT count(*) FROM web_sessions)",
        "WITH w AS (SELECT id FROM web_sessions) SELECT id FROM w",
        "SELECT 1 /* harmless */ FROM /* a comment */ web_sessions -- the end",
        "UPDATE web_sessions SET views = 1",
        "DELETE FROM web_sessions WHERE id = 'x'",
        "INSERT INTO web_sessions (id, views) SELECT 'c', 0 FROM web_sessions WHERE id = 'x'",
    ],
)
def test_every_kind_of_raw_statement_is_found(session: Session, sql: str) -> None:
    (leak,) = leaks_of(session, lambda: session.execute(text(sql)))
    assert leak.tables == ("web_sessions",)
    assert leaks_of(session, lambda: session.connection().exec_driver_sql(sql))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 'FROM web_sessions'",
        "SELECT 1 -- FROM web_sessions",
        "SELECT 1 /* FROM web_sessions */",
        "SELECT web_sessions.id FROM (SELECT 1 AS id) AS web_sessions",
        "SELECT web_sessions FROM (SELECT 1 AS web_sessions) AS old_web_sessions",
        "INSERT INTO web_sessions (id, views, _ts) SELECT 'c', 0, _ts FROM web_sessions LIMIT 1",
        "SELECT id FROM web_sessions WHERE _ts > _ts",
    ],
)
def test_names_elsewhere_and_conditions_on_ts_are_no_leaks(session: Session, sql: str) -> None:
    assert leaks_of(session, lambda: session.execute(text(sql))) == []


def test_an_insert_is_no_leak(session: Session) -> None:
    stamp = {"sqlite": "0", "mysql": "0", "postgresql": "now()"}[session.get_bind().dialect.name]
    sql = f"INSERT INTO web_sessions (id, views, _ts) VALUES ('c', 0, {stamp})"  # noqa: S608
    assert leaks_of(session, lambda: session.execute(text(sql))) == []


def test_what_the_gate_has_seen_is_no_leak(session: Session, model: Any) -> None:
    rows = model.__table__

    def body() -> None:
        for statement in (
            select(model),
            select(rows.c.id),
            select(func.count()).select_from(model),
            select(aliased(model)),
            select(model).where(exists().where(rows.c.id == "a")),
            select(model.id).union(select(model.id)),
            select(model).where(text("web_sessions.views = 0")).order_by(text("web_sessions.id")),
            select(model, literal_column("web_sessions.views + 1")),
            select(model).options(include_expired()),
        ):
            session.execute(statement).all()
        session.execute(update(model).values(views=1))
        session.execute(insert(model).values(id="c"))
        session.execute(delete(model).where(model.id == "c"))
        session.add(model(id="d"))
        session.flush()
        session.get(model, "a").views = 7
        session.flush()

    assert leaks_of(session, body) == []


def test_raw_pieces_inside_of_compiled_statements_are_found(session: Session, model: Any) -> None:
    raw_table = text("web_sessions")
    unknown = table("web_sessions", column("id"))
    # As a table by itself, which MySQL reads even if it is the one that the UPDATE changes.
    views = text("(SELECT n FROM (SELECT count(*) AS n FROM web_sessions AS w) AS counted)")
    for statement in (
        select(text("*")).select_from(raw_table),
        select(model).where(text("web_sessions.id IN (SELECT id FROM web_sessions)")),
        select(model.id, literal_column("(SELECT count(*) FROM web_sessions)")),
        select(model).from_statement(text("SELECT id, views FROM web_sessions")),
        select(text(READ).columns(column("id")).subquery()),
        select(unknown),
        select(model.id).join(unknown.alias(), text("1 = 1")),
        update(model).values(views=views).where(model.id == "x"),
    ):
        (leak,) = leaks_of(session, lambda each=statement: session.execute(each))  # type: ignore[misc]
        assert leak.tables == ("web_sessions",), statement


def test_a_second_table_of_the_same_name_is_a_leak(session: Session) -> None:
    columns = (Column(name) for name in ("id", "views", "_ts"))
    other: Table = Table("web_sessions", MetaData(), *columns)
    assert leaks_of(session, lambda: session.execute(select(other.c.id)))
    stamp = select(select(other.c["_ts"]).limit(1).subquery())  # by itself, as MySQL wants it
    values = {"id": "c", "views": 0, "_ts": stamp.scalar_subquery()}
    assert leaks_of(session, lambda: session.execute(insert(other).values(values))) == []


def test_reading_expired_rows_on_purpose_is_no_leak(session: Session) -> None:
    option = {"include_expired": True}

    def body() -> None:
        session.execute(text(READ), execution_options=option)
        session.execute(text(READ).execution_options(include_expired=True))
        session.connection().exec_driver_sql(READ, execution_options=option)
        whole = select(text("*")).select_from(text("web_sessions"))
        session.execute(whole.options(include_expired()))

    assert leaks_of(session, body) == []


def test_what_ttl_odm_sends_itself_is_no_leak(engine: Engine, model: Any, session: Session) -> None:
    age(session.connection(), "web_sessions", "a", 7200)
    session.commit()

    def body() -> None:
        with Session(engine) as other:
            other.add(model(id="a", email="new@b.c"))
            other.commit()
            age_of_b = select(model.last_modified).where(model.id == "b")
            assert other.scalar(age_of_b) is not None
        Sweeper(engine, model.metadata).run_once()

    assert leaks_of(engine, body) == []


def test_a_session_an_engine_and_a_connection_can_be_watched(engine: Engine, model: Any) -> None:
    factory = sessionmaker(engine)
    scoped = scoped_session(factory)
    copy = engine.execution_options(stream_results=False)
    with factory() as session, engine.connect() as connection, Session(connection) as bound:
        for watched, sender in (
            (session, session),
            (scoped, scoped),
            (engine, connection),
            (engine, session),
            (connection, connection),
            (bound, bound),
        ):
            sent: Any = sender
            assert len(leaks_of(watched, lambda sent=sent: sent.execute(text(READ)))) == 1
        assert leaks_of(connection, lambda: session.execute(text(READ))) == []
    scoped.remove()
    with copy.connect() as connection:
        assert len(leaks_of(copy, lambda: connection.execute(text(READ)))) == 1
        assert len(leaks_of(engine, lambda: connection.execute(text(READ)))) == 1


def test_a_session_with_an_engine_for_each_model_is_watched(engine: Engine, model: Any) -> None:
    with Session(binds={model: engine}) as session:
        by_mapper = {"bind_arguments": {"mapper": model}}
        assert leaks_of(session, lambda: session.execute(text(READ), **by_mapper))


async def test_async_sessions_engines_and_connections_can_be_watched(
    async_engine: AsyncEngine,
) -> None:
    made = web_session(3600)
    async with async_engine.begin() as connection:
        await connection.run_sync(made.metadata.create_all)
    registry = async_scoped_session(async_sessionmaker(async_engine), scopefunc=lambda: 1)

    async def read(sender: Any) -> None:
        await sender.execute(text(READ))

    async with AsyncSession(async_engine) as session, async_engine.connect() as connection:
        pairs: list[tuple[Any, Any]] = [
            (session, session),
            (async_engine, connection),
            (connection, connection),
            (registry, registry),
        ]
        for watched, sender in pairs:
            with pytest.raises(AssertionError), assert_no_leaks(watched) as leaks:
                await read(sender)
            (leak,) = leaks
            line = inspect.getsourcelines(read)[1] + 1
            assert leak.line.endswith(f"test_assert_no_leaks.py:{line} in read")
        with assert_no_leaks(session):
            await session.execute(select(made))
    await registry.remove()


def test_nothing_listens_after_the_end_not_even_after_an_error(
    engine: Engine, model: Any, session: Session
) -> None:
    def fail() -> None:
        fetch(session, READ)
        raise ZeroDivisionError

    listening = engine.dispatch.before_cursor_execute  # type: ignore[attr-defined]
    before = list(listening)
    with pytest.raises(ZeroDivisionError), assert_no_leaks(session):
        fail()
    assert list(listening) == before

    seen: list[str] = []

    def listen(_conn: Any, _cursor: Any, sql: str, *_: Any) -> None:
        seen.append(sql)

    event.listen(engine, "before_cursor_execute", listen)
    with assert_no_leaks(session) as leaks:
        session.scalars(select(model)).all()
    fetch(session, READ)
    assert (leaks, len(seen)) == ([], 2)


def test_a_schema_tells_tables_of_one_name_apart() -> None:
    class Base(DeclarativeBase):
        pass

    class Lodger(TTLMixin, Base):
        __tablename__ = "lodgers"
        __table_args__ = {"schema": "app"}
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    lodgers = Lodger.__table__
    assert meant_by(("lodgers",)) == [lodgers]
    assert meant_by(("db", "app", "lodgers")) == [lodgers]
    assert meant_by(("other", "lodgers")) == []
    assert meant_by(("app", "old_lodgers")) == []

    class Guest(TTLMixin, Base):
        __tablename__ = "lodgers"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    guests = Guest.__table__
    assert meant_by(("lodgers",)) == [guests]
    assert meant_by(("main", "lodgers")) == [guests]
    assert meant_by(("app", "lodgers")) == [lodgers]


def test_importing_the_test_kit_brings_in_neither_sqlalchemy_nor_pytest() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import sys, ttl_odm.testing; print(*sys.modules)"],
        env={**os.environ, "PYTHONPATH": str(Path(ttl_odm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"sqlalchemy", "pytest", "beanie"} & set(run.stdout.split())

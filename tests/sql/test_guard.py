"""A guarded engine: raw SQL sees live rows, is refused, or is warned of; all else is untouched."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import (
    Column,
    ForeignKey,
    MetaData,
    bindparam,
    create_engine,
    delete,
    insert,
    literal_column,
    select,
    table,
    text,
    update,
)
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, aliased, mapped_column

import ttl_odm
from tests.clocks import age
from tests.policies import know_only
from tests.sql.models import web_session
from ttl_odm import TTLConfigurationError
from ttl_odm.guard.sqlalchemy import leaks
from ttl_odm.sqlalchemy import (
    RawSQLError,
    RawSQLWarning,
    TTLMixin,
    guard,
    include_expired,
)
from ttl_odm.sweeper import Sweeper
from ttl_odm.testing import assert_no_leaks

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


@pytest.fixture(autouse=True)
def _no_policies_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    know_only(monkeypatch, "tests.sql", but="tests.sql.following")


READ = "SELECT id FROM web_sessions ORDER BY id"
EVERYTHING = {"include_expired": True}

QUERIES = [
    READ,
    "select s.id from web_sessions as s where s.views >= :views order by 1",
    "SELECT id, :text FROM web_sessions WHERE id <> :id ORDER BY id LIMIT :limit",
    "SELECT s.id, o.id FROM web_sessions s JOIN web_sessions o ON s.views > o.views ORDER BY 1, 2",
    (
        "SELECT s.id, o.id FROM web_sessions s LEFT JOIN web_sessions o ON o.views = s.views - :one"
        " ORDER BY 1, 2"
    ),
    "SELECT web_sessions.id, o.id FROM web_sessions, web_sessions o ORDER BY 1, 2",
    "SELECT s.id FROM (web_sessions s CROSS JOIN web_sessions o) WHERE o.id = 'a' ORDER BY 1",
    "SELECT (SELECT count(*) FROM web_sessions)",
    "SELECT id FROM web_sessions WHERE views IN (SELECT views + 1 FROM web_sessions) ORDER BY 1",
    (
        "SELECT s.id FROM web_sessions s WHERE NOT EXISTS (SELECT 1 FROM web_sessions o"
        " WHERE o.views = s.views - 1) ORDER BY 1"
    ),
    "SELECT s.n FROM (SELECT count(*) AS n FROM web_sessions WHERE views > :zero) s",
    "WITH s AS (SELECT * FROM web_sessions), o AS (SELECT id FROM s) SELECT id FROM o ORDER BY 1",
    (
        "WITH RECURSIVE s AS (SELECT id, views FROM web_sessions WHERE views = 1 UNION ALL"
        " SELECT o.id, o.views FROM web_sessions o JOIN s ON o.views = s.views + 1)"
        " SELECT id FROM s ORDER BY 1"
    ),
    (
        "SELECT id FROM web_sessions UNION ALL SELECT email FROM web_sessions"
        " WHERE email LIKE '%a%' ORDER BY 1"
    ),
    "SELECT views % 2, count(*) FROM web_sessions GROUP BY 1 HAVING count(*) > :zero ORDER BY 1",
    "SELECT /* web_sessions */ min(views) -- web_sessions\n FROM web_sessions",
]
VALUES = {"views": 1, "text": "t", "id": "z", "limit": 9, "one": 1, "zero": 0}

REFUSED = {
    "UPDATE web_sessions SET views = 1": "not a plain SELECT",
    "DELETE FROM web_sessions WHERE id = 'b'": "not a plain SELECT",
    "INSERT INTO web_sessions (id, views, _ts) SELECT 'x', 1, 0 FROM web_sessions": "not a plain",
    "SELECT id FROM web_sessions FOR UPDATE": "don't lock the rows",
    "SELECT id FROM WHERE web_sessions": "sqlglot can't read it",
}
PASSING = [
    "SELECT 1",
    "SELECT 'FROM web_sessions'",
    "SELECT web_sessions.id FROM (SELECT 1 AS id) AS web_sessions",
    "SELECT id FROM web_sessions WHERE _ts = _ts AND id = 'a'",
]


def values_of(sql: str) -> dict[str, object]:
    return {name: value for name, value in VALUES.items() if f":{name}" in sql}


@pytest.fixture
def filled(engine: Engine, model: Any) -> Any:
    """Three rows, of which the first has expired."""
    with Session(engine) as session:
        session.add_all(
            model(id=name, email=f"{name}@a", views=views) for views, name in enumerate("abc", 1)
        )
        session.flush()
        age(session.connection(), "web_sessions", "a", 7200)
        session.commit()
    return model


@contextmanager
def without_expired_rows(engine: Engine) -> Iterator[Connection]:
    """A connection of an engine without a guard, in a transaction that has deleted them."""
    plain = create_engine(engine.url)
    with plain.connect() as connection:
        connection.execute(text("DELETE FROM web_sessions WHERE id = 'a'"))
        yield connection
    plain.dispose()


def answer(connection: Any, sql: str, **kw: Any) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in connection.execute(text(sql), values_of(sql), **kw)]


def driver_sql(engine: Engine, sql: str) -> str:
    """A statement with one parameter ``:id`` as the engine's driver takes it."""
    mark = {"qmark": "?", "format": "%s", "pyformat": "%s", "numeric_dollar": "$1"}
    return sql.replace(":id", mark[engine.dialect.paramstyle])


@pytest.mark.parametrize("sql", QUERIES)
def test_a_query_gives_what_it_gives_where_expired_rows_are_gone(
    engine: Engine, filled: Any, sql: str
) -> None:
    with without_expired_rows(engine) as connection:
        right = answer(connection, sql)
    with engine.connect() as connection:
        everything = answer(connection, sql)
    assert everything != right, "this query proves nothing"

    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        for _ in range(2):
            assert answer(connection, sql) == right
            assert answer(connection, sql, execution_options=EVERYTHING) == everything
        uncached = connection.execution_options(compiled_cache=None)
        assert answer(uncached, sql) == right


def test_text_in_the_orm_and_inside_of_statements_is_rewritten_too(
    engine: Engine, filled: Any
) -> None:
    guard(engine, raw="rewrite")
    lightweight = table("web_sessions", Column("id"))
    whole = text("SELECT id, email, views FROM web_sessions").columns(
        filled.id, filled.email, filled.views
    )
    with Session(engine) as session:
        for statement in (
            select(filled.id).from_statement(whole),
            select(filled).from_statement(whole),
            select(text("id")).select_from(text("web_sessions")),
            select(text("s.id")).select_from(text("web_sessions s")),
            select(lightweight.c.id),
            select(lightweight.alias().c.id),
            select(whole.subquery().c.id),
            select(filled.id).where(text("views >= (SELECT min(views) FROM web_sessions)")),
            text("SELECT id FROM web_sessions WHERE id IN :ids").bindparams(
                bindparam("ids", ["a", "b", "c"], expanding=True)
            ),
        ):
            for _ in range(2):
                rows = session.scalars(statement).all()  # type: ignore[call-overload]
                assert sorted(getattr(row, "id", row) for row in rows) == ["b", "c"], statement
        counted = select(literal_column("(SELECT count(*) FROM web_sessions)"))
        assert session.scalar(counted) == 2
        assert session.scalar(counted.options(include_expired())) == 3
        loaded = select(filled).from_statement(whole).options(include_expired())
        assert len(session.scalars(loaded).all()) == 3


def test_a_drivers_own_sql_is_rewritten_and_its_parameters_stay(
    engine: Engine, filled: Any
) -> None:
    guard(engine, raw="rewrite")
    sql = driver_sql(engine, "SELECT id FROM web_sessions WHERE id <> :id ORDER BY id")
    with engine.connect() as connection:
        for _ in range(2):
            assert connection.exec_driver_sql(sql, ("c",)).scalars().all() == ["b"]
        assert connection.exec_driver_sql(READ).scalars().all() == ["b", "c"]
        every = connection.exec_driver_sql(sql, ("c",), execution_options=EVERYTHING)
        assert every.scalars().all() == ["a", "b"]


def test_a_default_that_changes_acts_at_once(engine: Engine, filled: Any) -> None:
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        for default, ids in ((3600, ["b", "c"]), (36000, ["a", "b", "c"]), (60, ["b", "c"])):
            filled.__ttl__ = default
            assert connection.scalars(text(READ)).all() == ids
            assert connection.exec_driver_sql(READ).scalars().all() == ids
        filled.__ttl__ = None
        assert connection.scalars(text(READ)).all() == ["a", "b", "c"]
        assert connection.exec_driver_sql(READ).scalars().all() == ["a", "b", "c"]


@pytest.mark.parametrize("sql", REFUSED)
def test_what_cannot_be_rewritten_is_not_sent(
    engine: Engine, filled: Any, sent: list[str], sql: str
) -> None:
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        sent.clear()
        for send in (
            lambda: connection.execute(text(sql)),
            lambda: connection.exec_driver_sql(sql),
        ):
            with pytest.raises(RawSQLError, match=REFUSED[sql]) as refused:
                send()
            assert "web_sessions" in str(refused.value)
            assert sql in str(refused.value)
        assert sent == []
        assert connection.scalar(select(filled.views).where(filled.id == "b")) == 2


@pytest.mark.slow
def test_raw_sql_is_refused_unless_it_has_a_condition_or_says_why(
    engine: Engine, filled: Any, sent: list[str]
) -> None:
    guard(engine, raw="raise")
    with engine.connect() as connection:
        sent.clear()
        for sql in (*(query for query in QUERIES if ":" not in query), *REFUSED):
            for _ in range(2):
                with pytest.raises(RawSQLError, match="web_sessions"):
                    connection.execute(text(sql))
                with pytest.raises(RawSQLError, match="web_sessions"):
                    connection.exec_driver_sql(sql)
        with pytest.raises(RawSQLError):
            connection.execute(update(table("web_sessions", Column("views"))).values(views=1))
        assert sent == []
        for sql in PASSING:
            assert connection.execute(text(sql)).all() is not None
            assert connection.exec_driver_sql(sql).all() is not None
        assert len(answer(connection, READ, execution_options=EVERYTHING)) == 3
        every = connection.exec_driver_sql(READ, execution_options=EVERYTHING)
        assert len(every.all()) == 3
        everything = connection.execution_options(include_expired=True)
        assert len(answer(everything, READ)) == 3


def test_a_warning_is_given_once_for_each_text(engine: Engine, filled: Any) -> None:
    guard(engine, raw="warn")
    with engine.connect() as connection, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(3):
            assert len(answer(connection, READ)) == 3
        assert [warning.category for warning in told] == [RawSQLWarning]
        message = str(told[0].message)
        assert READ in message
        assert "web_sessions._ts" in message
        assert "test_guard.py" in message
        for _ in range(2):
            connection.exec_driver_sql(f"{READ} DESC").all()
        answer(connection, f"{READ} ASC", execution_options=EVERYTHING)
        for sql in PASSING:
            connection.execute(text(sql))
        assert len(told) == 2


def test_statements_of_the_gate_and_hot_texts_are_not_parsed(
    engine: Engine, filled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []
    parse = leaks.parse

    def counting(sql: str, *arguments: Any) -> Any:
        parsed.append(sql)
        return parse(sql, *arguments)

    monkeypatch.setattr(leaks, "parse", counting)
    guard(engine, raw="rewrite")
    rows = filled.__table__
    with Session(engine) as session:
        for _ in range(2):
            session.scalars(select(filled)).all()
            session.execute(select(rows.c.id)).all()
            session.execute(select(aliased(filled).id)).all()
            session.execute(update(filled).values(views=7))
            session.execute(insert(filled).values(id=f"n{_}"))
            session.execute(delete(filled).where(filled.id == "n0"))
            session.add(filled(id=f"m{_}"))
            session.flush()
            session.execute(text("SELECT 1"))
            session.connection().exec_driver_sql("SELECT 2")
        assert parsed == []
        for _ in range(3):
            session.execute(text(READ))
            session.connection().exec_driver_sql(f"{READ} DESC")
        assert parsed == [READ, f"{READ} DESC"]


@pytest.mark.parametrize("raw", ["raise", "rewrite"])
def test_what_ttl_odm_sends_itself_passes(engine: Engine, filled: Any, raw: Any) -> None:
    guard(engine, raw=raw)
    Sweeper(engine, filled.metadata).run_once()
    with Session(engine) as session:
        session.add(filled(id="a"))
        session.commit()
        assert len(session.scalars(select(filled)).all()) == 3


def test_the_table_of_a_joined_subclass_lives_as_its_row_does(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Guest(TTLMixin, Base):
        __tablename__ = "guests"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True)

    class Member(Guest):
        __tablename__ = "members"
        id: Mapped[int] = mapped_column(ForeignKey("guests.id"), primary_key=True)

    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Member(id=1), Member(id=2)])
        session.flush()
        age(session.connection(), "guests", 1, 7200)
        session.commit()
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT m.id FROM members m")).all() == [2]
        joined = text("SELECT m.id FROM members m JOIN guests g USING (id)")
        assert connection.scalars(joined).all() == [2]
        assert connection.exec_driver_sql("SELECT id FROM members").scalars().all() == [2]


def test_a_schema_says_which_table_is_meant(engine: Engine, filled: Any) -> None:
    guard(engine, raw="rewrite")
    with engine.connect() as connection:
        default = connection.dialect.default_schema_name
        assert default is not None
        named = f"SELECT s.id FROM {default}.web_sessions s ORDER BY 1"  # noqa: S608
        assert connection.scalars(text(named)).all() == ["b", "c"]
        dialect = connection.dialect
    meant = leaks.meant_by(("elsewhere", "web_sessions"), dialect.default_schema_name)
    assert meant == []


@pytest.mark.slow
def test_where_models_disagree_about_a_name_nothing_is_guessed(engine: Engine, filled: Any) -> None:
    other = web_session(60)
    guard(engine, raw="rewrite")
    with (
        engine.connect() as connection,
        pytest.raises(RawSQLError, match="different policies for a table of that name"),
    ):
        connection.execute(text(READ))
    assert other.__ttl__ == 60


def test_the_answer_can_be_changed_and_copies_of_the_engine_share_it(
    engine: Engine, filled: Any
) -> None:
    copy = engine.execution_options(stream_results=False)
    guard(engine, raw="rewrite")
    for sender in (engine, copy):
        with sender.connect() as connection:
            assert len(answer(connection, READ)) == 2
    guard(engine, raw="raise")
    for sender in (engine, copy):
        with sender.connect() as connection, pytest.raises(RawSQLError):
            answer(connection, READ)
    guard(engine, raw="off")
    with engine.connect() as connection:
        assert len(answer(connection, READ)) == 3
        assert len(connection.exec_driver_sql(READ).all()) == 3


def test_assert_no_leaks_has_nothing_to_say_of_what_was_rewritten(
    engine: Engine, filled: Any
) -> None:
    guard(engine, raw="rewrite")
    with Session(engine) as session, assert_no_leaks(session):
        session.execute(text(READ)).all()
        session.connection().exec_driver_sql(READ).all()
        session.execute(select(table("web_sessions", Column("id")))).all()


@pytest.mark.databases("sqlite")
def test_while_a_migration_runs_raw_sql_is_let_through(engine: Engine, filled: Any) -> None:
    from alembic.config import Config
    from alembic.runtime.environment import EnvironmentContext
    from alembic.script import ScriptDirectory

    guard(engine, raw="raise")
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    environment = EnvironmentContext(config, ScriptDirectory.from_config(config))
    with environment, engine.connect() as connection:
        environment.configure(connection=connection)
        assert len(answer(connection, READ)) == 3
        assert len(connection.exec_driver_sql(READ).all()) == 3
    with engine.connect() as connection:
        with pytest.raises(RawSQLError):
            answer(connection, READ)
        with pytest.raises(RawSQLError):
            connection.exec_driver_sql(READ)


async def test_asynchronous_engines_are_guarded_as_well(async_engine: AsyncEngine) -> None:
    model = web_session(3600)
    async with AsyncSession(async_engine) as session:
        connection = await session.connection()
        await connection.run_sync(model.metadata.create_all)
        session.add_all([model(id="a"), model(id="b")])
        await session.flush()
        await connection.run_sync(age, "web_sessions", "a", 7200)
        await session.commit()
        guard(async_engine, raw="rewrite")
        for _ in range(2):
            assert (await session.scalars(text(READ))).all() == ["b"]
        sql = "SELECT id FROM web_sessions WHERE id <> :id AND id < :id ORDER BY id"
        assert (await session.scalars(text(sql), {"id": "c"})).all() == ["b"]
        connection = await session.connection()
        assert (await connection.exec_driver_sql(READ)).scalars().all() == ["b"]
        guard(async_engine, raw="raise")
        with pytest.raises(RawSQLError):
            await session.execute(text(READ))
        assert len((await session.scalars(select(model))).all()) == 1


NAMES = st.sampled_from(["web_sessions", "web_sessions AS {0}", "(SELECT * FROM web_sessions) {0}"])


@st.composite
def queries(draw: st.DrawFn, depth: int = 2) -> str:
    """A SELECT of ids, in some shape."""
    first = draw(NAMES.filter(lambda name: "{0}" in name)).format("q")
    sql = f"SELECT q.id FROM {first}"  # noqa: S608 - a test's own table
    if draw(st.booleans()):
        kind = draw(st.sampled_from(["JOIN", "LEFT JOIN", "CROSS JOIN"]))
        second = draw(NAMES.filter(lambda name: "{0}" in name)).format("r")
        offset = draw(st.integers(0, 1))
        on = "" if kind == "CROSS JOIN" else f" ON r.views = q.views + {offset}"
        sql += f" {kind} {second}{on}"
    if depth and draw(st.booleans()):
        wanted = draw(st.sampled_from(["IN", "NOT IN"]))
        sql += f" WHERE q.id {wanted} ({draw(queries(depth - 1))})"
    if depth and draw(st.booleans()):
        union = draw(st.sampled_from(["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]))
        sql += f" {union} {draw(queries(depth - 1))}"
    if depth == 2 and draw(st.booleans()):
        sql = f"WITH s AS ({sql}) SELECT s.id FROM s, web_sessions"  # noqa: S608
    return sql


@pytest.fixture(scope="module")
def halves() -> Iterator[tuple[Engine, Engine]]:
    """An engine with expired rows and a guard, and one without either."""
    model = web_session(3600)
    whole, live = create_engine("sqlite://"), create_engine("sqlite://")
    for engine, ids in ((whole, "abcdef"), (live, "bdf")):
        model.metadata.create_all(engine)
        with Session(engine) as session:
            session.add_all(model(id=name, views=ord(name) % 3) for name in ids)
            session.flush()
            for name in {*ids} & {*"ace"}:
                age(session.connection(), "web_sessions", name, 7200)
            session.commit()
    guard(whole, raw="rewrite")
    yield whole, live
    whole.dispose()
    live.dispose()


@pytest.mark.slow
@settings(deadline=None)
@given(sql=queries())
def test_whatever_its_shape_a_query_sees_live_rows(halves: tuple[Engine, Engine], sql: str) -> None:
    whole, live = halves
    with whole.connect() as guarded, live.connect() as plain:
        assert sorted(answer(guarded, sql)) == sorted(answer(plain, sql))


def test_only_engines_and_the_four_answers_are_taken() -> None:
    engine = create_engine("sqlite://")
    with pytest.raises(TTLConfigurationError, match="'always'"):
        guard(engine, raw="always")  # type: ignore[arg-type]
    with pytest.raises(TTLConfigurationError, match="not MetaData"):
        guard(MetaData(), raw="warn")  # type: ignore[arg-type]
    engine.dispose()


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(Path(ttl_odm.__file__).parents[1])},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_parser_is_imported_by_whoever_uses_it_only() -> None:
    assert (
        run("import sys, ttl_odm.sqlalchemy; assert 'sqlglot' not in sys.modules").returncode == 0
    )
    without = "import sys; sys.modules['sqlglot'] = None\n"
    for use in (
        "import ttl_odm.guard.sqlalchemy.engines",
        "from ttl_odm.testing import assert_no_leaks",
    ):
        failed = run(without + use)
        assert failed.returncode == 1
        assert "pip install 'ttl-odm[guard]'" in failed.stderr

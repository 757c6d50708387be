"""Defaults that the database stores: every process follows a change in its next statement."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    MetaData,
    String,
    Table,
    create_engine,
    delete,
    event,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.pool import NullPool

from tests.clocks import age
from tests.guard import GUARD
from tests.locks import wait_until_blocked
from tests.sql.models import web_session
from ttl_odm import TTL, InvalidTTL, Stored, TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy import (
    ExpiredError,
    TTLMixin,
    create_policies,
    enable,
    expired,
    expires_at,
    guard,
    live,
    policy_changes,
    policy_tables,
    set_policy,
    stored_policies,
)
from ttl_odm.sqlalchemy.time.clock import LastModified
from ttl_odm.stored.sqlalchemy import default_cache
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend
    from ttl_odm.testing import TTLClock

HOUR = 3600
EVENTS = (
    *("begin", "commit", "rollback", "before_execute", "after_execute"),
    *("before_cursor_execute", "after_cursor_execute"),
)
OWN = {None: None, -1: -1, 50: 50, 200: 200}
"""Rows that are 100 seconds old, by their own ttl."""


@pytest.fixture
def model(engine: Engine) -> Any:
    return filled(engine, web_session(Stored(HOUR)))


def filled(engine: Engine, model: Any, table: str = "web_sessions") -> Any:
    """Give a model its table, and rows of 100 seconds, one for each own ttl."""
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([model(id=str(own), ttl=own) for own in OWN])
        session.flush()
        for own in OWN:
            age(session.connection(), table, str(own), 100)
        session.commit()
    return model


def change(engine: Engine, model: Any, ttl: Any) -> None:
    with engine.connect() as connection:
        set_policy(connection, model, ttl, by="ann", reason="the audit")


def ids(session: Session, model: Any) -> set[str]:
    return set(session.scalars(select(model.id)))


EXPECTED: dict[int | None, set[str]] = {
    None: {"None", "-1", "50", "200"},
    -1: {"None", "-1", "200"},
    60: {"-1", "200"},
    HOUR: {"None", "-1", "200"},
}


@pytest.mark.parametrize("ttl", EXPECTED)
def test_each_default_means_what_it_means_in_the_code(
    engine: Engine, model: Any, ttl: int | None
) -> None:
    everywhere = {"include_expired": True}
    change(engine, model, ttl)
    with Session(engine) as session:
        assert ids(session, model) == EXPECTED[ttl]
        judged = select(model.id, live(model), expired(model), expires_at(model).is_(None))
        for key, is_live, is_expired, is_endless in session.execute(
            judged, execution_options=everywhere
        ):
            assert is_live == (key in EXPECTED[ttl])
            assert is_expired == (not is_live)
            assert bool(is_endless) == (ttl is None or key == "-1" or (ttl == -1 and key == "None"))
        assert {row.id for row in session.scalars(select(model)) if not row.is_expired} == (
            EXPECTED[ttl]
        )
        counted = session.execute(update(model).values(views=1), execution_options=everywhere)
        assert counted.rowcount == len(EXPECTED[ttl])  # type: ignore[attr-defined]
        assert session.execute(delete(model)).rowcount == len(EXPECTED[ttl])  # type: ignore[attr-defined]


def test_nothing_is_compiled_again_when_it_changes(engine: Engine, model: Any) -> None:
    cache: Any = engine._compiled_cache
    with Session(engine) as session:
        for turn, (ttl, rows) in enumerate((*EXPECTED.items(), *EXPECTED.items())):
            with engine.begin() as connection:
                set_policy(connection, model, ttl, by="ann")
            session.rollback()
            assert ids(session, model) == rows
            if turn == 0:
                before = len(cache)
        assert len(cache) == before


def test_an_engine_with_a_stored_default_gets_no_listeners(engine: Engine, model: Any) -> None:
    """With one, SQLAlchemy looks for listeners at each statement of the engine, also of others."""

    def listeners() -> dict[str, int]:
        return {name: len(tuple(getattr(engine.dispatch, name))) for name in EVENTS}

    before = listeners()
    with Session(engine) as session:
        session.add(model(id="new"))
        session.commit()
        assert session.get(model, "new") is not None
    assert listeners() == before


def test_where_nothing_is_stored_no_row_expires(engine: Engine, model: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("DELETE FROM ttl_odm_policies"))
    with Session(engine) as session:
        assert ids(session, model) == EXPECTED[None]
    assert Sweeper(engine, model).run_once().deleted == 0
    change(engine, model, 60)
    with Session(engine) as session:
        assert ids(session, model) == EXPECTED[60]


@pytest.mark.databases("sqlite")
def test_what_is_no_ttl_expires_nothing(engine: Engine, model: Any) -> None:
    with engine.begin() as connection:
        connection.execute(text("PRAGMA ignore_check_constraints = ON"))
        for odd in (0, -5):
            connection.execute(text("UPDATE ttl_odm_policies SET ttl = :odd"), {"odd": odd})
            assert set(connection.scalars(select(model.id))) == EXPECTED[None]


def test_the_starting_row_is_made_once(engine: Engine, model: Any) -> None:
    with engine.connect() as connection:
        (stored,) = stored_policies(connection)
        assert (stored.name, stored.scope, stored.ttl) == ("web_sessions", None, HOUR)
        assert (stored.changed_by, stored.reason) == (None, None)
        assert stored.changed_at.tzinfo is not None
    change(engine, model, 60)
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        create_policies(connection, model.__table__)
        assert [stored.ttl for stored in stored_policies(connection, model)] == [60]
    model.metadata.drop_all(engine)
    model.metadata.create_all(engine)
    with engine.connect() as connection:
        assert [stored.ttl for stored in stored_policies(connection)] == [HOUR]


def test_changes_are_written_down(engine: Engine, model: Any) -> None:
    with engine.connect() as connection:
        assert set_policy(connection, model, 60, by="ann", reason="the audit") == HOUR
        assert not connection.in_transaction()
        assert set_policy(connection, model.__table__, None, by="bob") == 60
        last, first = policy_changes(connection, model)
        (stored,) = stored_policies(connection, model)
        connection.rollback()
        with connection.begin() as transaction:
            assert set_policy(connection, model, -1, by="eve") is None
            transaction.rollback()
        assert stored_policies(connection) == [stored]
    assert (first.ttl_before, first.ttl_after, first.changed_by) == (HOUR, 60, "ann")
    assert (first.reason, first.name, first.scope) == ("the audit", "web_sessions", None)
    assert (last.ttl_before, last.ttl_after, last.changed_by) == (60, None, "bob")
    assert (stored.ttl, stored.changed_by, stored.reason) == (None, "bob", None)
    assert first.changed_at <= last.changed_at == stored.changed_at


def test_what_a_model_doesnt_allow_is_not_stored(engine: Engine) -> None:
    model = filled(engine, web_session(Stored(HOUR, least=60, most=2 * HOUR)))
    with engine.connect() as connection:
        for ttl in (59, 2 * HOUR + 1, None, -1, 0, "60"):
            with pytest.raises(InvalidTTL, match=r"^WebSession\.__ttl__ = "):
                set_policy(connection, model, ttl, by="ann")  # type: ignore[arg-type]
        with pytest.raises(TTLConfigurationError, match="one default for all rows"):
            set_policy(connection, model, HOUR, scope="acme", by="ann")
        remedy = r"isn't stored in the database: to store it, declare __ttl__ = Stored\(3600\)\."
        with pytest.raises(TTLConfigurationError, match=remedy):
            set_policy(connection, web_session(HOUR), HOUR, by="ann")
        assert policy_changes(connection) == []


def test_a_model_that_takes_it_back_is_refused(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        ids(session, model)
        model.__ttl__ = 60
        with pytest.raises(TTLConfigurationError, match="whether the database stores the default"):
            ids(session, model)
        model.__ttl__ = Stored(60)
        assert ids(session, model) == EXPECTED[HOUR]


def test_a_stored_default_is_that_of_a_whole_table() -> None:
    class Base(DeclarativeBase):
        pass

    class Pet(TTLMixin, Base):
        __tablename__ = "pets"
        __ttl__ = Stored(HOUR)
        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(9))
        __mapper_args__ = {"polymorphic_on": "kind"}

    class Cat(Pet):
        __mapper_args__ = {"polymorphic_identity": "cat"}

    for name, ttl in {"Dog": 60, "Ape": Stored(60)}.items():
        of_its_own = {"__ttl__": ttl, "__mapper_args__": {"polymorphic_identity": name}}
        with pytest.raises(TTLConfigurationError, match=rf"{name}\.__ttl__ = .* on Pet only"):
            type(name, (Pet,), of_its_own)


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_change_is_a_transaction_on_an_engine_in_autocommit(engine: Engine, model: Any) -> None:
    at_once = engine.execution_options(isolation_level="AUTOCOMMIT")
    with at_once.connect() as connection:
        set_policy(connection, model, 60, by="ann")
        with pytest.raises(InvalidTTL):
            set_policy(connection, model, 0, by="ann")
        connection.execute(text("UPDATE web_sessions SET views = 7"))
        connection.rollback()
        assert [stored.ttl for stored in stored_policies(connection, model)] == [60]
        assert connection.scalars(text("SELECT DISTINCT views FROM web_sessions")).all() == [7]
        with pytest.raises(TTLError, match="AUTOCOMMIT, where each statement releases its locks"):
            set_policy(connection, model, 70, by="ann")


# --- processes ------------------------------------------------------------------------------------

PROCESS = """
import sys
from sqlalchemy import create_engine, select
from sqlalchemy.orm import Session
from tests.sql.models import web_session
from ttl_odm import Stored

model = web_session(Stored(3600))
engine = create_engine(sys.argv[1])
with engine.execution_options(isolation_level="AUTOCOMMIT").connect() as connection:
    for line in sys.stdin:
        print(*sorted(connection.scalars(select(model.id))), flush=True)
"""


@contextmanager
def processes(url: str, count: int) -> Iterator[list[subprocess.Popen[str]]]:
    command = [sys.executable, "-c", PROCESS, url]
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    started = [subprocess.Popen(command, **pipes) for _ in range(count)]
    try:
        yield started
    finally:
        for process in started:
            process.communicate(timeout=GUARD)


@pytest.mark.slow
def test_three_processes_agree_in_the_statement_after_a_change(
    engine: Engine, backend: Backend, model: Any
) -> None:
    assert backend.sync_url is not None
    with processes(backend.sync_url, 3) as others:

        def ask() -> list[set[str]]:
            for process in others:
                print("?", file=process.stdin, flush=True)
            return [set(process.stdout.readline().split()) for process in others]  # type: ignore[union-attr]

        for ttl in (HOUR, 60, -1, None, 60, HOUR):
            change(engine, model, ttl)
            assert ask() == [EXPECTED[ttl]] * 3


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_writer_that_takes_its_time_doesnt_fail_a_change(engine: Engine, model: Any) -> None:
    """MariaDB and MySQL have locked the row of the policy for it."""
    with engine.connect() as writer, ThreadPoolExecutor(1) as pool:
        writer.execute(update(model).where(model.id == "None").values(views=1))
        changing = pool.submit(change, engine, model, 60)
        if engine.dialect.name == "postgresql":
            changing.result(GUARD)
        else:
            wait_until_blocked(engine, "%ttl_odm_policies%")
            writer.execute(update(model).where(model.id == "-1").values(views=1))
        writer.commit()
        changing.result(GUARD)
        assert {row.ttl for row in stored_policies(writer)} == {60}


@pytest.mark.slow
@pytest.mark.databases("mariadb", "mysql")
def test_a_change_that_gets_no_lock_in_a_second_tries_again(engine: Engine, model: Any) -> None:
    failed = threading.Event()
    event.listen(engine, "handle_error", lambda _: failed.set())
    with engine.connect() as writer, ThreadPoolExecutor(1) as pool:
        writer.execute(update(model).where(model.id == "None").values(views=1))
        changing = pool.submit(change, engine, model, 60)
        assert failed.wait(GUARD)
        writer.commit()
        changing.result(GUARD)
        assert {row.ttl for row in stored_policies(writer)} == {60}


# --- rows in memory -------------------------------------------------------------------------------


def test_memory_follows_what_this_process_changes(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        row = session.get(model, "None")
        assert row.time_left.total_seconds() == pytest.approx(HOUR - 100, abs=60)
        session.rollback()
        change(engine, model, None)
        assert session.get(model, "None").expires_at is None
        session.rollback()
        change(engine, model, 60)
        assert session.get(model, "None") is None


def test_memory_follows_a_change_that_is_not_committed_yet(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        row = session.get(model, "None")
        set_policy(session.connection(), model, 60, by="ann")
        assert session.get(model, "None") is None
        session.rollback()
        assert session.get(model, "None") is row


@pytest.mark.databases("mariadb", "mysql")  # PostgreSQL's servers have no prepared transactions
def test_memory_follows_a_change_in_two_phases(engine: Engine, model: Any, sent: list[str]) -> None:
    with Session(engine, expire_on_commit=False, twophase=True) as session:
        for _ in range(2):  # the beginning of an engine's first transaction is unknown
            row = session.get(model, "None", populate_existing=True)
            session.commit()
        sent.clear()
        assert session.get(model, "None") is row
        assert sent == []
        with Session(engine, twophase=True) as other:
            set_policy(other.connection(), model, 60, by="ann")
            session.scalars(select(model.id)).all()  # caches the old value
            session.commit()
            other.commit()
        assert session.get(model, "None") is None


def test_memory_asks_once_what_it_knows_is_old(
    engine: Engine, model: Any, sent: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(engine) as session:
        row = session.get(model, "None")
        with engine.connect() as other:
            other.execute(text("UPDATE ttl_odm_policies SET ttl = 60"))  # as by another process
            other.commit()
        session.commit()
        session.refresh(row := session.get(model, "200"))
        sent.clear()
        assert session.get(model, "200") is row
        assert sent == []
        monkeypatch.setattr(default_cache, "monotonic", lambda: float("inf"))
        assert session.get(model, "200") is row
        assert len(sent) == 1  # the row: a transaction as old as the note has nothing newer
        session.rollback()
        sent.clear()
        assert session.get(model, "None") is None
        assert len(sent) == 2  # what is stored, and the row


def test_the_end_of_a_row_isnt_known_before_the_database_was_asked(
    engine: Engine, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Session(engine) as session:
        row = session.get(model, "None")
        session.expunge(row)
        end = row.expires_at
    monkeypatch.setattr(default_cache, "_latest", {})
    with pytest.raises(TTLError, match="The default ttl of WebSession isn't known"):
        row.expires_at  # noqa: B018
    assert end is not None


@pytest.fixture
def tenant(engine: Engine) -> dict[str, Any]:
    """Execution options for a second schema, which has the tables of the model, too."""
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA tenant"))
    return {"schema_translate_map": {None: "tenant"}}


@pytest.mark.databases("postgres")
def test_memory_knows_no_default_where_an_engine_has_several_schemas(
    engine: Engine, model: Any, tenant: dict[str, Any]
) -> None:
    theirs = engine.execution_options(**tenant)
    filled(theirs, model, "tenant.web_sessions")
    with Session(engine) as ours:
        assert ours.get(model, "None").time_left is not None  # cached for the whole engine
    with Session(theirs) as session:
        rows = session.scalars(select(model)).all()
        with theirs.connect() as other:
            other.execute(text("UPDATE tenant.ttl_odm_policies SET ttl = 60"))  # another process
            other.commit()
        assert session.get(model, "None") is None
        change(theirs, model, 50)
        with Session(engine) as ours:
            assert ours.get(model, "None") is not None
        assert session.get(model, "None") is None
        with pytest.raises(TTLError, match=r"WebSession isn't known in Python.*several schemas"):
            rows[0].expires_at  # noqa: B018


@pytest.mark.databases("postgres")
def test_a_statement_with_its_own_schemas_reads_the_default_there(
    engine: Engine, tenant: dict[str, Any]
) -> None:
    theirs = engine.execution_options(**tenant)
    model = filled(theirs, web_session(Stored(HOUR)), "tenant.web_sessions")
    new_engine = create_engine(engine.url, poolclass=NullPool)  # it has read no default yet
    with Session(new_engine) as session:
        ids = session.scalars(select(model.id), execution_options=tenant).all()
        assert sorted(ids) == ["-1", "200", "None"]
        assert session.get(model, "None", execution_options=tenant) is not None


@pytest.mark.every_server
@pytest.mark.parametrize("by", ["flush", "delete"])
def test_an_old_transaction_does_not_write_to_a_new_row_with_the_same_key(
    engine: Engine, model: Any, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    with Session(engine, expire_on_commit=False) as session:
        row = session.get(model, "None")
        session.commit()
        with Session(engine) as other:
            age(other.connection(), "web_sessions", "None", 2 * HOUR)
            other.add(model(id="None", ttl=77))
            other.commit()
        session.connection()
        # The transaction is older than what is known of the default.
        monkeypatch.setattr(default_cache, "monotonic", lambda: float("inf"))
        if by == "flush":
            row.ttl = 88
        else:
            session.delete(row)
        with pytest.raises(ExpiredError, match="WebSession 'None' can't be"):
            session.flush()
    with Session(engine) as session:
        assert session.scalars(select(model.ttl).where(model.id == "None")).all() == [77]


def test_a_flush_doesnt_write_what_has_expired_by_a_new_default(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        row = session.get(model, "None")
        with engine.connect() as other:
            if engine.dialect.name == "sqlite":
                session.rollback()
            other.execute(text("UPDATE ttl_odm_policies SET ttl = 60"))
            other.commit()
        row.views = 7
        if engine.dialect.name not in ("mysql", "mariadb"):  # they have a snapshot by then
            with pytest.raises(ExpiredError):
                session.flush()
        session.rollback()


def test_keys_of_expired_rows_are_free(engine: Engine, model: Any) -> None:
    change(engine, model, 60)
    with Session(engine) as session:
        session.add(model(id="None", views=5))
        session.commit()
        assert session.get(model, "None").views == 5
        session.merge(model(id="50", views=6))
        session.commit()
        assert ids(session, model) == {"None", "-1", "50", "200"}


# --- sweeps ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("sweep", ["index", "scan"])
@pytest.mark.parametrize("ttl", EXPECTED)
def test_sweeps_go_by_what_is_stored(engine: Engine, sweep: str, ttl: int | None) -> None:
    class Base(DeclarativeBase):
        pass

    class WebSession(TTLMixin, Base):
        __tablename__ = "web_sessions"
        __ttl__ = Stored(HOUR)
        __ttl_sweep__ = sweep
        id: Mapped[str] = mapped_column(String(40), primary_key=True)

    model = filled(engine, WebSession)
    change(engine, model, ttl)
    report = Sweeper(engine, model).run_once()
    assert (report.deleted, report.problems) == (len(OWN) - len(EXPECTED[ttl]), ())
    with engine.connect() as connection:
        assert set(connection.scalars(text("SELECT id FROM web_sessions"))) == EXPECTED[ttl]


def test_a_dry_run_counts_by_what_is_stored(engine: Engine, model: Any) -> None:
    change(engine, model, 60)
    (target,) = Sweeper(engine, model, dry_run=True).run_once().targets
    assert target.due == 2


async def test_async_engines_and_sweepers_follow_too(async_engine: AsyncEngine) -> None:
    model = web_session(Stored(HOUR))
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.execute(model.__table__.insert(), [{"id": "a"}, {"id": "b"}])
        await connection.run_sync(lambda sync: age(sync, "web_sessions", "a", 100))
    async with async_engine.connect() as connection:
        assert len((await connection.execute(select(model.id))).all()) == 2
        await connection.rollback()
        await connection.run_sync(set_policy, model, 60, by="ann")
        assert (await connection.execute(select(model.id))).all() == [("b",)]
        assert [p.ttl for p in await connection.run_sync(stored_policies)] == [60]
    assert (await AsyncSweeper(async_engine, model).run_once()).deleted == 1


# --- other ways to a table ------------------------------------------------------------------------


def test_a_clock_of_tests_lets_rows_expire_by_it(
    engine: Engine, model: Any, ttl_clock: TTLClock
) -> None:
    change(engine, model, 500)
    with Session(engine) as session:
        assert "None" in ids(session, model)
        for key, seconds in {"gone": -100, "there": 100}.items():
            with ttl_clock.expiring(model, seconds):
                session.add(model(id=key))
                session.commit()
        assert {"gone", "there"} & ids(session, model) == {"there"}


def test_a_limit_holds_while_ttl_is_on(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "web_sessions"
        __ttl__ = TTL(Stored(HOUR), max_lifetime=80, created="made_at")
        id: Mapped[str] = mapped_column(String(40), primary_key=True)
        made_at: Mapped[datetime | None] = mapped_column(LastModified())

    filled(engine, Cart)
    with Session(engine) as session:
        # _ts is 100 seconds ago, and so are they made.
        session.execute(text("UPDATE web_sessions SET made_at = _ts"))
        session.commit()
        for ttl, rows in {HOUR: set(), -1: set(), None: EXPECTED[None]}.items():
            change(engine, Cart, ttl)
            assert ids(session, Cart) == rows
            assert {row.id for row in session.scalars(select(Cart)) if not row.is_expired} == rows
            session.rollback()
    change(engine, Cart, HOUR)
    assert Sweeper(engine, Cart).run_once().deleted == 4


def test_a_second_table_and_an_enabled_one_have_it_too(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Login(TTLMixin, Base):
        __tablename__ = "logins"
        __ttl__ = Stored(HOUR)
        id: Mapped[int] = mapped_column(primary_key=True)

    class Thing(Base):
        __tablename__ = "things"
        id: Mapped[int] = mapped_column(primary_key=True)
        at: Mapped[int]

    Base.metadata.create_all(engine)
    enable(Thing, TTL(Stored(60), last_modified="at", override=None, unit="s"))
    second = Table("logins", MetaData(), *(Column(c.name, c.type) for c in Login.__table__.c))
    with engine.begin() as connection:
        connection.execute(insert(Login).values(id=1))
        age(connection, "logins", 1, 100)
        assert connection.scalars(select(second.c.id)).all() == [1]
        set_policy(connection, Login, 60, by="ann")
        assert connection.scalars(select(second.c.id)).all() == []
        connection.execute(insert(Thing).values(id=1))
        create_policies(connection, Thing.__table__)  # type: ignore[arg-type]
        assert [stored.name for stored in stored_policies(connection)] == ["logins", "things"]
        assert connection.scalars(select(Thing.id)).all() == [1]


def test_the_tables_may_be_the_applications(engine: Engine) -> None:
    model = web_session(Stored(HOUR))
    policies, changes = policy_tables(model.metadata)
    filled(engine, model)
    change(engine, model, 60)
    with Session(engine) as session:
        assert ids(session, model) == EXPECTED[60]
        assert session.scalars(select(policies.c.ttl)).all() == [60]
        assert session.scalars(select(changes.c.ttl_after)).all() == [60]
        # Nothing is correlated to what a user selects from.
        joined = select(model.id).join(policies, policies.c.name == "web_sessions")
        assert set(session.scalars(joined)) == EXPECTED[60]
        connection = session.connection()
        assert [stored.ttl for stored in stored_policies(connection, model)] == [60]
    model.metadata.drop_all(engine)


@pytest.mark.databases("postgres")
def test_an_upsert_finds_defaults_in_a_schema(engine: Engine) -> None:
    model = web_session(Stored(HOUR))
    policy_tables(model.metadata, schema="policies")
    with engine.begin() as connection:
        connection.execute(text("CREATE SCHEMA policies"))
    filled(engine, model)
    rows = postgresql.insert(model).values([{"id": "None"}, {"id": "50"}])
    values = {"ttl": 300}
    with engine.begin() as connection:
        connection.execute(rows.on_conflict_do_update(index_elements=["id"], set_=values))
        ttls = {row.id: row.ttl for row in connection.execute(select(model.id, model.ttl))}
    assert ttls == {"None": 300, "-1": -1, "200": 200, "50": None}


def test_raw_sql_behind_a_guard_follows(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Login(TTLMixin, Base):
        __tablename__ = "guarded_logins"
        __ttl__ = Stored(HOUR)
        id: Mapped[int] = mapped_column(primary_key=True)

    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(Login).values(id=1))
        age(connection, "guarded_logins", 1, 100)
    guarded = create_engine(engine.url)
    guard(guarded, raw="rewrite")
    raw = "SELECT id FROM guarded_logins"
    for ttl, rows in ((60, []), (HOUR, [1]), (None, [1])):
        change(engine, Login, ttl)
        with guarded.connect() as connection:
            assert list(connection.scalars(text(raw))) == rows
            assert list(connection.exec_driver_sql(raw).scalars()) == rows
    guarded.dispose()

"""Writes go first, and keys are freed once one was taken: where that holds, and where it doesn't.

What frees keys is in test_keys.py, and how it finds rows in test_key_statements.py. Here: that
nothing else is sent where nothing is in the way, that a trial leaves nothing behind, and which
tables, transactions and statements are looked after beforehand.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    String,
    create_engine,
    event,
    func,
    insert,
    literal,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age, family_of
from tests.sql.models import web_session
from tests.sql.statements import beside_inserts
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

POSTGRES = pytest.mark.databases("postgres")
FAILS_ALONE = pytest.mark.databases("sqlite", "mariadb", "mysql")


@pytest.fixture
def session(engine: Engine, model: Any) -> Iterator[Session]:
    with Session(engine) as session:
        session.add(model(id="first"))
        session.commit()  # the clock was looked at, and the table
        yield session


def expire(session: Session, *keys: str, table: str = "web_sessions") -> None:
    session.flush()
    for key in keys:
        age(session.connection(), table, key, 4000)
    session.commit()
    session.expunge_all()


def stored(session: Session, table: str = "web_sessions") -> list[Any]:
    return list(session.scalars(text(f"SELECT id FROM {table} ORDER BY id")))  # noqa: S608


def on_conflict(session: Session, model: Any, **values: Any) -> Any:
    """An upsert that counts what it meets."""
    family = family_of(session.get_bind().dialect)
    if family == "mysql":
        return (
            mysql.insert(model).values(**values).on_duplicate_key_update({"views": model.views + 1})
        )
    construct: Any = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}[family]
    return (
        construct(model)
        .values(**values)
        .on_conflict_do_update(index_elements=["id"], set_={"views": model.views + 1})
    )


# --- nothing in the way: nothing else is sent ----------------------------------------------------


def one_object(session: Session, model: Any) -> None:
    session.add(model(id="new", email="new"))
    session.flush()


def objects(session: Session, model: Any) -> None:
    session.add_all([model(id=f"{n}", email=f"{n}" if n % 2 else None) for n in range(50)])
    session.flush()


def values(session: Session, model: Any) -> None:
    session.execute(insert(model).values(id="new"))


def returned(session: Session, model: Any) -> None:
    assert session.scalar(insert(model).values(id="new").returning(model.id)) == "new"


@pytest.mark.parametrize("write", [one_object, objects, values])
def test_an_insert_sends_nothing_else(
    session: Session, model: Any, sent: list[str], write: Callable[[Session, Any], None]
) -> None:
    sent.clear()
    write(session, model)
    assert beside_inserts(sent) == []


@pytest.mark.databases("sqlite", "postgres", "mariadb")
def test_an_insert_that_returns_something_sends_nothing_else(
    session: Session, model: Any, sent: list[str]
) -> None:
    sent.clear()
    returned(session, model)
    assert beside_inserts(sent) == []


def test_the_text_of_a_statement_is_that_of_a_plain_insert(engine: Engine, model: Any) -> None:
    written = str(insert(model.__table__).values(id="new").inline().compile(engine))
    assert written.startswith("INSERT INTO web_sessions")
    assert "ON " not in written


def many_values(session: Session, model: Any) -> None:
    session.execute(insert(model).values([{"id": "a"}, {"id": "b"}]))


def parameter_sets(session: Session, model: Any) -> None:
    result: Any = session.execute(insert(model.__table__), [{"id": f"{n}"} for n in range(1500)])
    assert result.rowcount == 1500


def selected(session: Session, model: Any) -> None:
    source = select(literal("new", String), literal(0))
    session.execute(insert(model).from_select(["id", "views"], source))


def updated_key(session: Session, model: Any) -> None:
    session.execute(update(model).where(model.id == "first").values(email="new"))


def updated_object(session: Session, model: Any) -> None:
    session.get_one(model, "first").email = "new"
    session.flush()


@FAILS_ALONE
@pytest.mark.parametrize(
    "write", [many_values, parameter_sets, selected, updated_key, updated_object]
)
def test_where_a_statement_fails_alone_no_write_sends_anything_else(
    session: Session, model: Any, sent: list[str], write: Callable[[Session, Any], None]
) -> None:
    sent.clear()
    write(session, model)
    # (Which objects in memory to refresh is asked for on MariaDB and MySQL: no UPDATE RETURNING.)
    reads = 1 if write in {updated_key, updated_object} else 0
    assert len(sent) <= 2 + reads
    assert not [one for one in sent if one.startswith(("DELETE", "SAVEPOINT"))]


@pytest.mark.databases("mariadb", "mysql")
def test_an_upsert_sends_nothing_else_on_innodb(
    session: Session, model: Any, sent: list[str]
) -> None:
    sent.clear()
    session.execute(on_conflict(session, model, id="new"))
    session.execute(on_conflict(session, model, id="first"))
    assert beside_inserts(sent) == []


class Alone(DeclarativeBase):
    pass


class Counter(TTLMixin, Alone):
    """One key and no other."""

    __tablename__ = "counters"
    __ttl__ = 3600

    id: Mapped[str] = mapped_column(String(20), primary_key=True)
    views: Mapped[int] = mapped_column(default=0)


def test_an_upsert_by_the_only_key_sends_nothing_else(engine: Engine, sent: list[str]) -> None:
    Alone.metadata.create_all(engine)
    with Session(engine) as session:
        session.execute(on_conflict(session, Counter, id="a"))
        sent.clear()
        session.execute(on_conflict(session, Counter, id="a"))
        session.execute(on_conflict(session, Counter, id="b"))
        assert beside_inserts(sent) == []
        expire(session, "a", table="counters")
        session.execute(on_conflict(session, Counter, id="a"))
        session.commit()
        assert dict(session.execute(select(Counter.id, Counter.views)).all()) == {"a": 0, "b": 0}


@pytest.mark.databases("sqlite", "postgres")
def test_an_upsert_that_leaves_a_live_row_alone_is_sent_once(
    engine: Engine, sent: list[str]
) -> None:
    Alone.metadata.create_all(engine)
    construct: Any = {"postgresql": postgresql.insert, "sqlite": sqlite.insert}
    upsert = construct[engine.dialect.name](Counter).values(id="a")
    nothing = upsert.on_conflict_do_nothing()
    with Session(engine) as session:
        session.execute(upsert)
        sent.clear()
        session.execute(nothing)
        assert len([one for one in sent if one.startswith("INSERT")]) == 1


# --- something in the way ------------------------------------------------------------------------


def test_rows_of_a_batch_that_met_expired_ones_come_back_in_order(
    session: Session, model: Any
) -> None:
    session.add_all([model(id=f"{n:02}", views=-1) for n in range(0, 30, 3)])
    expire(session, *(f"{n:02}" for n in range(0, 30, 3)))
    rows = [model(id=f"{n:02}", email=f"{n}", views=n) for n in range(30)]
    session.add_all(rows)
    session.flush()
    assert all(row.last_modified is not None for row in rows)
    session.commit()
    session.expunge_all()
    found = session.scalars(select(model).where(model.id != "first").order_by(model.id))
    assert [row.views for row in found] == list(range(30))


def test_values_that_the_database_makes_come_back_to_their_own_objects(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Item(TTLMixin, Own):
        __tablename__ = "items"
        __ttl__ = 3600

        id: Mapped[str] = mapped_column(String(20), primary_key=True)
        name: Mapped[str] = mapped_column(String(20))
        loud: Mapped[str] = mapped_column(String(20), server_default="quiet")

    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Item(id=f"{n}", name="old") for n in (1, 4)])
        expire(session, "1", "4", table="items")
        items = [Item(id=f"{n}", name=f"{n}") for n in range(6)]
        session.add_all(items)
        session.flush()
        assert [(item.id, item.loud) for item in items] == [(f"{n}", "quiet") for n in range(6)]
        stamps = [item.last_modified for item in items]
        session.commit()
        assert [item.last_modified for item in items] == stamps


@pytest.mark.parametrize("live", ["id", "email"])
def test_a_live_row_in_the_way_of_a_batch_is_named_and_nothing_stays(
    session: Session, model: Any, live: str
) -> None:
    session.add_all([model(id="live", email="live@x"), model(id="2", email="2")])
    expire(session, "2")
    rows = [model(id=f"{n}", email=f"{n}") for n in range(5)]
    setattr(rows[3], live, "live" if live == "id" else "live@x")
    session.add_all(rows)
    with pytest.raises(IntegrityError) as caught:
        session.flush()
    session.rollback()
    assert stored(session) == ["2", "first", "live"]
    assert ("email" in str(caught.value.orig)) == (live == "email")


def test_two_rows_of_one_batch_may_not_have_the_same_key(session: Session, model: Any) -> None:
    session.add_all([model(id="a", email="x"), model(id="b", email="y"), model(id="c", email="x")])
    with pytest.raises(IntegrityError):
        session.flush()
    session.rollback()
    assert stored(session) == ["first"]


def test_the_hook_hears_of_a_displaced_row_once(session: Session, model: Any) -> None:
    told: list[Any] = []
    session.add_all([model(id="a"), model(id="b")])
    expire(session, "a", "b")
    model.__ttl_on_purged__ = told.append
    session.add_all([model(id="a"), model(id="b"), model(id="c")])
    session.commit()
    assert sum(purged.count for purged in told) == 2
    assert {purged.reason for purged in told} == {"displaced"}


def test_a_failed_trial_leaves_the_transaction_as_it_was(session: Session, model: Any) -> None:
    session.add(model(id="a"))
    expire(session, "a")
    session.add(model(id="mine"))
    session.flush()
    with session.begin_nested():
        session.add(model(id="a", views=7))
    with pytest.raises(IntegrityError), session.begin_nested():
        session.execute(insert(model).values(id="a"))
    session.commit()
    assert stored(session) == ["a", "first", "mine"]


def test_without_a_transaction_an_expired_row_gives_way_too(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        session.add(model(id="a"))
        expire(session, "a")
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        session.add(model(id="a", views=1))
        session.commit()
        session.expunge_all()
        session.add(model(id="a", views=2))
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
        assert session.scalars(select(model.views)).all() == [1]


@pytest.mark.databases("mariadb", "mysql")
def test_in_a_two_phase_transaction_expired_rows_give_way(engine: Engine, model: Any) -> None:
    with Session(engine) as session:
        session.add_all([model(id=key) for key in "abc"])
        expire(session, *"abc")
    with Session(engine, twophase=True) as session:
        session.add(model(id="a", views=1))
        session.flush()
        session.add_all([model(id=key, views=1) for key in "bcd"])
        session.prepare()
        session.commit()
        assert session.scalars(select(model.views)).all() == [1, 1, 1, 1]


async def test_asynchronous_drivers_try_first_too(async_engine: AsyncEngine) -> None:
    model = web_session(3600)
    statements: list[str] = []
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)

    @event.listens_for(async_engine.sync_engine, "before_cursor_execute")
    def record(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        statements.append(statement)

    async with AsyncSession(async_engine) as session:
        session.add(model(id="first"))
        await session.commit()
        statements.clear()
        session.add(model(id="a"))
        await session.flush()
        session.add_all([model(id=f"{n}") for n in range(10)])
        await session.flush()
        assert beside_inserts(statements) == []
        await session.run_sync(expire, "a", "3", "7")
        session.add_all([model(id="a", views=1), *(model(id=f"{n}", views=1) for n in (3, 5, 7))])
        with pytest.raises(IntegrityError):  # 5 is live
            await session.flush()
        await session.rollback()
        session.add_all([model(id="a", views=1), *(model(id=f"{n}", views=1) for n in (3, 7, 11))])
        await session.commit()
        renewed = select(func.count()).select_from(model).where(model.views == 1)
        assert await session.scalar(renewed) == 4


# --- looked after beforehand ---------------------------------------------------------------------


def looks_first(sent: list[str]) -> bool:
    return any("DELETE FROM web_sessions" in one for one in beside_inserts(sent))


OBSTACLES = {
    "a rule": "CREATE RULE r AS ON INSERT TO web_sessions DO ALSO NOTIFY made",
    "a deferrable key": "ALTER TABLE web_sessions ADD UNIQUE (views) DEFERRABLE",
    "a trigger before": "CREATE TRIGGER t BEFORE INSERT ON web_sessions "
    "FOR EACH ROW EXECUTE FUNCTION noted()",
}
NOTED = """
CREATE TABLE notes (id varchar(40));
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO notes VALUES (NEW.id);
  IF NEW.views < 0 THEN RETURN NULL; END IF;
  RETURN NEW;
END $$
"""


@POSTGRES
@pytest.mark.parametrize("obstacle", OBSTACLES)
def test_tables_that_take_no_on_conflict_are_looked_at_first(
    engine: Engine, model: Any, sent: list[str], obstacle: str
) -> None:
    with Session(engine) as session:
        session.execute(text(NOTED))
        session.execute(text(OBSTACLES[obstacle]))
        session.execute(insert(model.__table__).values(id="a", views=1).inline())
        expire(session, "a")
        sent.clear()
        session.execute(insert(model.__table__).values(id="a", views=2).inline())
        session.commit()
        assert looks_first(sent)
        assert session.scalars(select(model.views)).all() == [2]


@pytest.mark.parametrize("how", ["no_parameters", "do_execute"])
def test_what_is_not_sent_by_the_dialect_is_looked_at_first(
    engine: Engine, model: Any, sent: list[str], how: str
) -> None:
    with Session(engine) as session:
        session.execute(insert(model.__table__).values(id="a", views=1).inline())
        expire(session, "a")
        if how == "do_execute":

            @event.listens_for(engine, "do_execute")
            def send(cursor: Any, statement: str, parameters: Any, _context: Any) -> bool:
                cursor.execute(statement, parameters)
                return True

        sent.clear()
        statement = insert(model.__table__).values(
            id=literal_column("'a'"), views=literal_column("2"), ttl=literal_column("NULL")
        )
        session.execute(statement.inline(), execution_options={"no_parameters": how[0] == "n"})
        session.commit()
        assert session.scalars(select(model.views)).all() == [2]
        assert beside_inserts(sent)[0].startswith(("DELETE", "SELECT"))


@pytest.mark.databases("sqlite", "mariadb", "mysql")
@pytest.mark.parametrize("count", [1, 3])
def test_what_returns_rows_as_a_stream_is_looked_at_first(
    engine: Engine, model: Any, count: int
) -> None:
    """MariaDB tells of an error only after the first rows."""
    with Session(engine.execution_options(stream_results=True)) as session:
        for _ in range(2):
            session.add_all([model(id=str(n), email=str(n)) for n in range(count)])
            expire(session, *map(str, range(count)))
        session.add_all([model(id=str(n), email=str(n)) for n in range(count)])
        session.commit()
        assert len(session.scalars(select(model)).all()) == count


PARTITIONED = """
CREATE TABLE logs (id integer, day integer, _ts timestamptz NOT NULL DEFAULT now(), ttl integer,
                   PRIMARY KEY (id, day)) PARTITION BY LIST (day);
CREATE TABLE logs_1 PARTITION OF logs FOR VALUES IN (1);
CREATE TABLE logs_2 PARTITION OF logs FOR VALUES IN (2);
CREATE TABLE notes (id integer);
CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO notes VALUES (NEW.id);
  RETURN NULL;
END $$;
"""


@POSTGRES
def test_a_partition_may_have_a_trigger_of_its_own(engine: Engine, sent: list[str]) -> None:
    class Own(DeclarativeBase):
        pass

    class Log(TTLMixin, Own):
        __tablename__ = "logs"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True)
        day: Mapped[int] = mapped_column(primary_key=True)

    with engine.begin() as connection:
        connection.exec_driver_sql(PARTITIONED)
    with Session(engine) as session:
        session.execute(insert(Log.__table__).values(id=1, day=1).inline())
        session.commit()
        assert sent[-1].endswith("ON CONFLICT DO NOTHING")
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER t BEFORE INSERT ON logs_2 FOR EACH ROW EXECUTE FUNCTION noted()"
        )
    another = create_engine(engine.url)  # which asks the database anew
    with another.begin() as connection:
        connection.execute(insert(Log.__table__).values(id=1, day=2).inline())
    another.dispose()
    with engine.connect() as connection:
        assert connection.scalars(text("SELECT id FROM notes")).all() == [1]


@POSTGRES
def test_a_key_that_becomes_deferrable_is_an_error_once(
    engine: Engine, model: Any, sent: list[str]
) -> None:
    with Session(engine) as session:
        session.execute(insert(model.__table__).values(id="a", views=1).inline())
        expire(session, "a")
        session.execute(text(OBSTACLES["a deferrable key"]))
        session.commit()
        with pytest.raises(DBAPIError, match="deferrable"):
            session.execute(insert(model.__table__).values(id="b", views=2).inline())
        session.rollback()
        sent.clear()
        session.execute(insert(model.__table__).values(id="a", views=2).inline())
        session.commit()
        assert looks_first(sent)


@POSTGRES
def test_a_row_that_a_trigger_leaves_out_is_inserted_once_and_missed_by_nobody(
    engine: Engine, model: Any
) -> None:
    with Session(engine) as session:
        session.execute(text(NOTED))
        session.execute(text(OBSTACLES["a trigger before"]))
        session.execute(insert(model.__table__).values(id="a", views=-1).inline())
        session.commit()
        assert stored(session) == []
        assert stored(session, "notes") == ["a"]


@POSTGRES
@pytest.mark.parametrize("how", ["engine", "connection", "session"])
@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_in_a_snapshot_a_key_that_was_taken_since_is_an_integrity_error(
    backend: Backend, model: Any, engine: Engine, level: Any, how: str
) -> None:
    assert backend.sync_url is not None
    own = create_engine(backend.sync_url, **({"isolation_level": level} if how == "engine" else {}))
    bind = own.execution_options(isolation_level=level) if how == "connection" else own
    with Session(bind) as session, Session(engine) as other:
        if how == "session":
            session.connection(execution_options={"isolation_level": level})
        assert session.scalars(select(model)).all() == []
        other.add(model(id="a"))
        other.commit()
        session.add(model(id="a"))
        with pytest.raises(IntegrityError):
            session.flush()
    own.dispose()


@POSTGRES
def test_without_a_transaction_a_batch_is_inserted_whole_or_not_at_all(
    engine: Engine, model: Any
) -> None:
    with Session(engine.execution_options(isolation_level="AUTOCOMMIT")) as session:
        session.add(model(id="3"))
        session.flush()
        session.expunge_all()
        session.add_all([model(id=f"{n}") for n in range(6)])
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()
        assert stored(session) == ["3"]


@pytest.mark.databases("sqlite")
def test_a_key_that_settles_conflicts_by_itself_is_looked_at_first(engine: Engine) -> None:
    """SQLite would replace the expired row, of which nobody would hear."""

    class Own(DeclarativeBase):
        pass

    class Page(TTLMixin, Own):
        __tablename__ = "pages"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        slug: Mapped[str] = mapped_column(unique=True, sqlite_on_conflict_unique="REPLACE")

    told: list[Any] = []
    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Page(id=1, slug="a"))
        session.flush()
        age(session.connection(), "pages", 1, 4000)
        session.commit()
        Page.__ttl_on_purged__ = told.append  # type: ignore[attr-defined]
        session.add(Page(id=2, slug="a"))
        session.commit()
        assert [purged.count for purged in told] == [1]
        assert stored(session, "pages") == [2]


@pytest.mark.databases("mariadb", "mysql")
def test_a_table_whose_statements_are_not_undone_is_looked_at_first(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Note(TTLMixin, Own):
        __tablename__ = "web_sessions"
        __ttl__ = 3600
        __ttl_sweep__ = "scan"
        __table_args__ = {"mysql_engine": "MyISAM"}

        id: Mapped[str] = mapped_column(String(20), primary_key=True)

    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Note(id="a"), Note(id="c")])
        expire(session, "c")
        session.add_all([Note(id=key) for key in "bcd"])
        session.commit()
        assert stored(session) == ["a", "b", "c", "d"]
        session.add_all([Note(id=key) for key in "efg"])
        session.commit()


@pytest.mark.every_server
def test_the_keys_of_a_temporary_table_are_free(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Note(TTLMixin, Own):
        __tablename__ = "web_sessions"
        __ttl__ = 3600
        __ttl_sweep__ = "scan"
        __table_args__ = {"prefixes": ["TEMPORARY"]}

        id: Mapped[str] = mapped_column(String(20), primary_key=True)
        name: Mapped[str] = mapped_column(String(20), unique=True)

    with engine.connect() as connection, Session(connection) as session:
        Own.metadata.create_all(connection)
        session.add_all([Note(id="a", name="x"), Note(id="b", name="y")])
        session.commit()
        expire(session, "a")
        session.add(Note(id="c", name="x"))
        session.add(Note(id="a", name="z"))
        session.commit()
        assert stored(session) == ["a", "b", "c"]
        expire(session, "b")
        session.execute(update(Note).where(Note.id == "c").values(name="y"))
        session.commit()
        assert stored(session) == ["a", "c"]


@pytest.mark.databases("mariadb")
def test_a_table_whose_periods_must_not_overlap_is_looked_at_first(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Stay(TTLMixin, Own):
        __tablename__ = "web_sessions"
        __ttl__ = 3600

        id: Mapped[str] = mapped_column(String(20), primary_key=True)
        room: Mapped[int]
        begin: Mapped[date] = mapped_column(default=date(2030, 1, 1))
        end: Mapped[date] = mapped_column(default=date(2030, 1, 2))

    Own.metadata.create_all(engine)
    with engine.begin() as connection:
        for change in (
            "ADD PERIOD FOR lasts (begin, end)",
            "ADD UNIQUE (room, lasts WITHOUT OVERLAPS)",
        ):
            connection.execute(text(f"ALTER TABLE web_sessions {change}"))
    with Session(engine) as session:
        session.add_all([Stay(id="a", room=1), Stay(id="b", room=2)])
        session.commit()
        expire(session, "b")
        session.add(Stay(id="b", room=3))
        session.commit()
        assert stored(session) == ["a", "b"]
        session.add(Stay(id="c", room=1))
        with pytest.raises(IntegrityError):
            session.commit()


def test_a_prefixed_insert_is_looked_at_first(engine: Engine, model: Any, sent: list[str]) -> None:
    prefix = {"postgresql": None, "sqlite": "OR IGNORE", "mysql": "IGNORE"}
    word = prefix[family_of(engine.dialect)]
    if word is None:
        return  # PostgreSQL's INSERT has none
    with Session(engine) as session:
        session.add(model(id="a", views=1))
        expire(session, "a")
        sent.clear()
        session.execute(insert(model).prefix_with(word).values(id="a", views=2))
        session.commit()
        assert session.scalars(select(model.views)).all() == [2]

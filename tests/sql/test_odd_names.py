"""Names of tables, columns and schemas that mean something to SQL, to a driver or to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import sqlalchemy
from sqlalchemy import Integer, String, column, insert, select, table, text, update
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from ttl_odm import Stored
from ttl_odm.sqlalchemy import Archive, TTLMixin, include_expired
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

ODD = {
    "backslash": "back\\slash",
    "last-backslash": "ends\\",
    "quote": "o'clock",
    "quotes": 'a"b`c',
    "dollar": "a$sweep$b$ttl_odm$",
    "percent": "100%(x)s %s %%",
    "braces": "{x}{0}{",
    "colon": "a:b::c",
    "question": "what?",
    "comment": "a--b/*c*/;",
    "60-letters": "l" * 60,
    "63-letters": "n" * 63,
    "variable": "ttl_odm_now",
    "record": "ttl_odm_row",
}
odd = pytest.mark.parametrize("name", [pytest.param(name, id=key) for key, name in ODD.items()])


def thing(name: str, **options: Any) -> Any:
    class Base(DeclarativeBase):
        pass

    class Thing(TTLMixin, Base):
        __tablename__ = name
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        label: Mapped[str] = mapped_column(String(40), unique=True)

    return Thing


def let_pass(connection: Connection, aged: Table, seconds: int, below: Any) -> None:
    """Age the rows whose ids are below a number, past the gate."""
    clock = clock_of(connection.dialect)
    rows = table(aged.name, column("id"), column("_ts"), schema=aged.schema)
    past = clock.literal(f"{clock.now} - {seconds} * {clock.second}")
    connection.execute(update(rows).where(rows.c.id < below).values({"_ts": past}))


def skip_where_sqlalchemy_fails(engine: Engine, name: str) -> None:
    """Skip what fails with any table of such a name, whatever its policy."""
    before_2_1 = engine.dialect.positional and sqlalchemy.__version__.startswith("2.0.")
    if name == ODD["percent"] and (before_2_1 or engine.dialect.driver == "mysqlconnector"):
        pytest.skip("SQLAlchemy takes a part of the name for a parameter")


@odd
def test_a_table_may_have_any_name(engine: Engine, made: Any, name: str) -> None:
    skip_where_sqlalchemy_fails(engine, name)
    model = made(thing(name))
    with Session(engine) as session:
        session.add_all([model(id=number, label=f"l{number}") for number in range(4)])
        session.commit()
        let_pass(session.connection(), model.__table__, 7_200, 3)
        session.commit()
        session.expunge_all()
        assert session.scalars(select(model.id)).all() == [3]
        session.add(model(id=0, label="l1"))  # both keys are an expired row's
        session.commit()
        session.execute(insert(model).values(id=2, label="l2"))
        session.commit()
    report = Sweeper(engine, model).run_once()
    report.raise_for_failures()
    with engine.connect() as connection:
        every = select(model.id).options(include_expired()).order_by(model.id)
        assert connection.scalars(every).all() == [0, 2, 3]


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_big_table_may_be_called_found(engine: Engine, made: Any) -> None:
    """Where a dry run and a fuse count expired rows beside an estimate of all."""
    model = made(thing("found"))
    with engine.begin() as connection:
        numbers = "SELECT n, 'l' || n FROM generate_series(1, 110000) AS n"
        connection.execute(text(f"INSERT INTO found (id, label) {numbers}"))
        let_pass(connection, model.__table__, 7_200, 2_001)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("ANALYZE found"))
    report = Sweeper(engine, model, max_fraction=0.5).run_once()
    report.raise_for_failures()
    assert report.deleted == 2_000


@pytest.mark.parametrize("name", ["deleted", "found"])
def test_an_archive_may_be_called_as_what_is_moved(engine: Engine, made: Any, name: str) -> None:
    class Base(DeclarativeBase):
        pass

    class Kept(Base):
        __tablename__ = name
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Thing(TTLMixin, Base):
        __tablename__ = "things"
        __ttl__ = 3600
        __ttl_archive__ = Archive(Kept)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    made(Thing)
    with engine.begin() as connection:
        connection.execute(insert(Thing), [{"id": number} for number in range(4)])
        let_pass(connection, Base.metadata.tables["things"], 7_200, 3)
    report = Sweeper(engine, Thing).run_once()
    report.raise_for_failures()
    with engine.connect() as connection:
        assert set(connection.scalars(select(Kept.id))) == {0, 1, 2}


@pytest.mark.slow
def test_a_table_with_scopes_may_have_a_name_that_sqlalchemy_gives_too(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    names = [f"anon_{number}" for number in range(1, 6)]
    for name in names:
        members: dict[str, Any] = {
            "__tablename__": name,
            "__ttl__": Stored(3600, by="tenant"),
            "id": mapped_column(Integer, primary_key=True, autoincrement=False),
            "tenant": mapped_column(String(20)),
        }
        type(name, (TTLMixin, Base), members)
    Base.metadata.create_all(engine)
    with engine.begin() as connection:
        for name in names:
            model = Base.metadata.tables[name]
            connection.execute(insert(model).values(id=1, tenant="acme"))
            let_pass(connection, model, 7_200, 2)
    report = Sweeper(engine, Base).run_once()
    report.raise_for_failures()
    assert {target.table: target.deleted for target in report.targets} == dict.fromkeys(names, 1)

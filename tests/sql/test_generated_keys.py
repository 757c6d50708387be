"""Keys of which the database makes a part: what is looked up for them, and what isn't."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    Computed,
    Identity,
    Integer,
    MetaData,
    Sequence,
    String,
    Table,
    UniqueConstraint,
    func,
    insert,
    select,
    text,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age
from tests.sql.statements import beside_inserts, explained
from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import TTLMixin, enable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine


class Base(DeclarativeBase):
    pass


class Visit(TTLMixin, Base):
    __tablename__ = "visits"
    __ttl__ = 3600
    __table_args__ = (UniqueConstraint("person", "day"), UniqueConstraint("room", "code"))

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    person: Mapped[str | None] = mapped_column(String(20))
    day: Mapped[date] = mapped_column(default=func.current_date())
    room: Mapped[int] = mapped_column(server_default="1")
    code: Mapped[str | None] = mapped_column(String(20))


class User(TTLMixin, Base):
    __tablename__ = "users"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str | None] = mapped_column(String(20))
    # Of a generated column, and by a name that is a function's.
    trim: Mapped[str | None] = mapped_column(String(20), Computed("lower(email)", persisted=True))
    handle: Mapped[str | None] = mapped_column(
        String(40), Computed("coalesce(lower(email), 'nobody')", persisted=True), unique=True
    )


class Note(TTLMixin, Base):
    """A table whose keys are all its own."""

    __tablename__ = "notes"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True)
    body: Mapped[str] = mapped_column(String(20), server_default="-")


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        yield session


def expire(session: Session, table: str, *keys: object) -> None:
    session.flush()
    for key in keys:
        age(session.connection(), table, key, 4000)
    session.commit()
    session.expunge_all()


def ids(session: Session, table: str) -> list[Any]:
    return list(session.scalars(text(f"SELECT id FROM {table} ORDER BY id")))  # noqa: S608


@pytest.mark.parametrize("count", [1, 3])
def test_a_key_with_todays_date_is_free(session: Session, count: int) -> None:
    session.add_all([Visit(id=n, person=f"{n}") for n in range(count)])
    expire(session, "visits", *range(count))
    session.add_all([Visit(id=10 + n, person=f"{n}") for n in range(count)])
    session.commit()
    assert ids(session, "visits") == [10 + n for n in range(count)]


def test_a_live_row_is_not_displaced(session: Session) -> None:
    session.add_all([Visit(id=1, person="a"), User(id=1, email="A")])
    session.commit()
    for row in (Visit(id=2, person="a"), User(id=2, email="a")):
        session.add(row)
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()


def test_keys_with_defaults_are_freed_by_one_statement(session: Session, sent: list[str]) -> None:
    session.add(Visit(id=1000))
    expire(session, "visits", 1000)
    session.add_all([Visit(id=n, person=f"{n}", code=f"{n}") for n in range(100)])
    sent.clear()
    session.flush()
    assert beside_inserts(sent) == []
    session.add_all([Visit(id=n, person=f"{n}", code=f"{n}") for n in range(901, 1001)])
    sent.clear()
    session.flush()
    dialect: Any = session.get_bind().dialect
    # InnoDB's are looked up before they are deleted, and on MySQL those of each key by themselves.
    most = 1 if dialect.name != "mysql" else 3 if dialect.is_mariadb else 5
    assert len(beside_inserts(sent)) == most


def test_a_default_outside_of_keys_costs_nothing(session: Session, sent: list[str]) -> None:
    session.add(Note(body="x"))
    session.flush()
    sent.clear()
    session.add(Note())
    session.flush()
    session.execute(insert(Note), [{"body": "a"}, {"body": "b"}])
    assert [each for each in sent if not each.startswith("INSERT")] == []


def test_a_generated_value_may_be_made_of_null(session: Session) -> None:
    session.add(User(id=1))
    expire(session, "users", 1)
    session.add(User(id=2, email=None))
    session.commit()
    assert ids(session, "users") == [2]


def test_updates_of_several_rows_take_generated_keys(session: Session) -> None:
    session.add_all([User(id=n, email=f"old {n}") for n in (1, 2)])
    session.add_all([User(id=n, email=f"{n}") for n in (3, 4)])
    expire(session, "users", 1, 2)
    moved = func.replace(func.replace(User.email, "3", "OLD 1"), "4", "OLD 2")
    session.execute(update(User).where(User.id > 2).values(email=moved))
    session.commit()
    assert ids(session, "users") == [3, 4]


@pytest.mark.parametrize("database_has_it", [False, True])
def test_what_is_new_every_time_is_not_asked_for(
    engine: Engine, sent: list[str], *, database_has_it: bool
) -> None:
    name = {"sqlite": "hex(randomblob(8))", "postgresql": "gen_random_uuid()", "mysql": "uuid()"}
    sql = text(f"({name[engine.dialect.name]})")
    default = {"server_default": sql} if database_has_it else {"default": sql}

    class Own(DeclarativeBase):
        pass

    class Thing(TTLMixin, Own):
        __tablename__ = "things"
        __ttl__ = 3600
        __table_args__ = (UniqueConstraint("place", "token"),)

        id: Mapped[int] = mapped_column(primary_key=True)
        place: Mapped[int]
        token: Mapped[str] = mapped_column(String(40), **default)

    if engine.dialect.name == "postgresql" and not database_has_it:
        sql.text = "(CAST(gen_random_uuid() AS varchar))"
    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Thing(place=1))
        session.flush()
        sent.clear()
        session.add_all([Thing(place=1), Thing(place=1)])
        session.flush()
    assert [statement for statement in sent if "DELETE" in statement] == []
    assert [statement for statement in sent if statement.startswith("SELECT things")] == []


@pytest.mark.databases("postgres")
def test_sequences_are_not_moved_on(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    counter = Sequence("counter", metadata=Own.metadata)

    class Bill(TTLMixin, Own):
        __tablename__ = "bills"
        __ttl__ = 3600
        __table_args__ = (UniqueConstraint("shop", "number"), UniqueConstraint("shop", "line"))

        id: Mapped[int] = mapped_column(Identity(), primary_key=True)
        shop: Mapped[int]
        number: Mapped[int] = mapped_column(counter)
        line: Mapped[int] = mapped_column(server_default=text("nextval('counter')"))

    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Bill(shop=1), Bill(shop=1)])
        session.flush()
        numbers = {n for bill in session.scalars(select(Bill)) for n in (bill.number, bill.line)}
        assert numbers == {1, 2, 3, 4}


def test_defaults_and_generated_columns_of_reflected_tables(engine: Engine) -> None:
    made = MetaData()
    Table(
        "people",
        made,
        Column("id", Integer, primary_key=True, autoincrement=False),
        Column("space", String(20), server_default="main", nullable=False),
        Column("name", String(20)),
        Column("folded", String(20), Computed("lower(name)", persisted=True), unique=True),
        Column("expires", Integer),
        UniqueConstraint("space", "expires"),
    )
    made.create_all(engine)
    with engine.begin() as connection:
        people = Table("people", MetaData(), autoload_with=connection)
        enable(people, ExpireAt("expires", unit="s"))
        connection.execute(text("INSERT INTO people (id, name, expires) VALUES (1, 'Ada', 5)"))
        connection.execute(insert(people).values(id=2, name="ADA", expires=7))
        connection.execute(insert(people).values(id=3, name="eve", expires=7))
        assert [row[0] for row in connection.execute(text("SELECT id FROM people"))] == [3]


@pytest.mark.parametrize("kind", ["default", "generated"])
def test_the_statement_for_such_keys_reads_no_whole_table(session: Session, kind: str) -> None:
    if kind == "default":
        session.add_all([Visit(id=n, person=f"{n}", code=f"{n}") for n in range(2000)])
        row: Any = Visit(id=5000, person="x", code="x")
    else:
        session.add_all([User(id=n + 1, email=f"{n}") for n in range(2000)])
        row = User(id=5000, email="X")
    table = row.__tablename__
    double = type(row)(id=4000, **{"email": "X"} if kind == "generated" else {"person": "x"})
    session.add(double)  # without it nothing is looked for
    expire(session, table, 4000)

    def is_lookup(statement: str) -> bool:
        return table in statement and not statement.startswith("INSERT")

    mysql = session.get_bind().dialect.name == "mysql"
    session.execute(text(f"ANALYZE {'TABLE ' if mysql else ''}{table}"))
    session.add(row)
    with explained(session.get_bind(), is_lookup) as plans:
        session.flush()
    assert plans
    # On SQLite the plan has a scan of no rows, which gives new rows the types of the table's.
    whole = (f"Seq Scan on {table}", f"'{table}', 'ALL'")
    assert not [line for line in plans if any(scan in line for scan in whole)]
    if session.get_bind().dialect.name == "sqlite":
        index = "(room=? AND code=?)" if kind == "default" else "(handle=?)"
        assert [line for line in plans if index in line]

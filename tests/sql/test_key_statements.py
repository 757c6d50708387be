"""The statement that frees keys: how many there are, how it finds rows, what it goes by."""

from __future__ import annotations

import enum
import uuid
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    BigInteger,
    DateTime,
    Enum,
    ForeignKey,
    Index,
    LargeBinary,
    Numeric,
    String,
    UniqueConstraint,
    Uuid,
    event,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.clocks import age, family_of
from tests.sql.models import web_session
from tests.sql.statements import EXPLAIN, beside_inserts, explained
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


class Base(DeclarativeBase):
    pass


class Seat(TTLMixin, Base):
    """A composite key, and a second one."""

    __tablename__ = "seats"
    __ttl__ = 3600
    __table_args__ = (UniqueConstraint("holder", "day"),)

    hall: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    holder: Mapped[str | None] = mapped_column(String(20))
    day: Mapped[int | None]


class Renamed(TTLMixin, Base):
    """Attributes that aren't called as their columns are."""

    __tablename__ = "renamed"
    __ttl__ = 3600

    number: Mapped[int] = mapped_column("id", primary_key=True, autoincrement=False)
    handle: Mapped[str | None] = mapped_column("e-mail %", String(20), unique=True)


class Other(DeclarativeBase):
    pass


class Nick(TTLMixin, Other):
    """Unique indexes over expressions, which MariaDB doesn't have."""

    __tablename__ = "nicks"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    room: Mapped[int]
    name: Mapped[str] = mapped_column(String(20))
    role: Mapped[str | None] = mapped_column(String(20))


# SQLAlchemy gives MySQL's indexes the parentheses of an expression that has no name.
Index("uq_nicks_lower", Nick.room.desc(), func.lower(Nick.name), unique=True).ddl_if("mysql")
Index("uq_nicks_name", Nick.room.desc(), func.lower(Nick.name).label("lower"), unique=True).ddl_if(
    callable_=lambda *_, dialect, **__: dialect.name != "mysql"
)
Index("uq_nicks_role", Nick.room, func.coalesce(Nick.role, "-"), unique=True)
Index("uq_nicks_text", text("(id + 0)"), _table=Nick.__table__, unique=True)


@contextmanager
def statements_of(session: Session) -> Iterator[list[str]]:
    sent: list[str] = []

    def record(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        sent.append(statement)

    engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", record)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", record)


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


def stored(session: Session, table: str) -> list[Any]:
    return list(session.scalars(text(f"SELECT id FROM {table} ORDER BY id")))  # noqa: S608


@pytest.mark.parametrize("count", [1, 2, 1000])
def test_a_flush_needs_no_statement_more_however_many_rows_it_inserts(
    session: Session, count: int
) -> None:
    model = web_session(3600)
    model.metadata.create_all(session.connection())
    session.add(model(id="first"))
    session.flush()  # looks at the database's clock, and at the table
    session.add_all([model(id=f"{n:04}", email=f"{n}@example.org") for n in range(count)])
    with statements_of(session) as sent:
        session.flush()
    assert beside_inserts(sent) == []
    assert len(sent) == 1


def test_a_second_flush_compiles_nothing(session: Session) -> None:
    model = web_session(3600)
    model.metadata.create_all(session.connection())
    cache: Any = session.get_bind()._compiled_cache  # type: ignore[union-attr]
    sizes = []
    for round_ in range(3):
        for count in (1, 7, 30):
            session.add_all([model(id=f"{round_} {count} {n}") for n in range(count)])
            session.add_all(
                [
                    model(id=f"{round_} {n} {count}", email=f"{round_} {n} {count}")
                    for n in range(count)
                ]
            )
            session.flush()
        sizes.append(len(cache))
    assert sizes[0] == sizes[1] == sizes[2]


@pytest.mark.parametrize("count", [1, 2, 7, 450])
def test_composite_keys_are_freed_in_batches_of_any_size(session: Session, count: int) -> None:
    session.add_all([Seat(hall=1, id=n, holder="a", day=n) for n in range(count)])
    session.add(Seat(hall=2, id=1000, holder="a", day=1000))
    expire(session, "seats", *range(count))
    # By the primary key one half of them, by the other key the other half.
    rows = [Seat(hall=1, id=n, holder="b", day=n) for n in range(0, count, 2)]
    rows += [Seat(hall=3, id=n, holder="a", day=n) for n in range(1, count, 2)]
    session.add_all(rows)
    session.commit()
    assert stored(session, "seats") == [*range(count), 1000]
    assert {seat.hall for seat in session.scalars(select(Seat))} <= {1, 2, 3}


@pytest.mark.slow
def test_keys_that_sql_computes_are_freed_in_batches_of_any_size(session: Session) -> None:
    """Each is a condition of its own, which SQLite nests at most 1,000 deep."""
    count = 550
    day, number = literal(0).op("+"), literal(1000).op("+")
    seats = [{"hall": 1, "id": number(n), "holder": "a", "day": day(n)} for n in range(count)]
    session.add_all([Seat(hall=n % 2, id=n, holder="a", day=n) for n in range(count)])
    expire(session, "seats", *range(count))
    session.execute(insert(Seat.__table__).values(seats))
    session.commit()
    assert session.scalars(select(Seat.day).order_by(Seat.day)).all() == list(range(count))
    assert stored(session, "seats") == [1000 + n for n in range(count)]


def test_a_live_row_is_not_displaced_among_many(session: Session) -> None:
    session.add_all([Seat(hall=1, id=n, holder="a", day=n) for n in range(5)])
    expire(session, "seats", 0, 1, 2, 4)
    with pytest.raises(IntegrityError):
        session.execute(insert(Seat), [{"hall": 1, "id": n} for n in range(5)])
    session.rollback()
    assert stored(session, "seats") == [0, 1, 2, 3, 4]


def test_a_key_with_a_null_is_in_nobodys_way(session: Session) -> None:
    session.add_all([Seat(hall=1, id=1, holder="a"), Seat(hall=1, id=2, day=5)])
    expire(session, "seats", 1, 2)
    session.add_all([Seat(hall=1, id=3, holder="a"), Seat(hall=1, id=4, day=5), Seat(hall=1, id=5)])
    session.commit()
    assert stored(session, "seats") == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("count", [1, 100])
def test_the_statement_for_composite_keys_reads_no_whole_table(
    session: Session, count: int
) -> None:
    session.add_all([Seat(hall=n % 7, id=n, holder=f"{n}", day=n % 7) for n in range(2000)])
    session.commit()

    def is_lookup(statement: str) -> bool:
        return "seats" in statement and not statement.startswith("INSERT")

    session.add(Seat(hall=9, id=0, holder="gone"))  # without it nothing is looked for
    expire(session, "seats", 0)
    if session.get_bind().dialect.name == "mysql":
        session.execute(text("ANALYZE TABLE seats"))
    session.add_all([Seat(hall=9, id=n, holder=f"x{n}", day=n % 7) for n in range(count)])
    with explained(session.get_bind(), is_lookup) as plans:
        session.flush()
    assert plans
    assert not [
        each for each in plans if "SCAN seats" in each or "Seq Scan" in each or "'ALL'" in each
    ]


@pytest.mark.databases("mariadb", "mysql")
def test_the_statement_for_many_rows_with_two_keys_reads_no_whole_table(session: Session) -> None:
    session.add_all([Renamed(number=n, handle=f"{n}") for n in range(2000)])
    session.commit()
    session.execute(text("ANALYZE TABLE renamed"))
    session.add(Renamed(number=5000))  # without it nothing is looked for
    expire(session, "renamed", 5000)
    sent: list[tuple[str, Any]] = []

    @event.listens_for(session.connection(), "before_cursor_execute")
    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    session.add_all([Renamed(number=n, handle=f"{n}") for n in range(5000, 5200)])
    session.flush()
    lookup, *_ = [call for call in sent if call[0].lstrip("(").startswith("SELECT")]
    plan = session.connection().exec_driver_sql(f"{EXPLAIN['mysql']} {lookup[0]}", lookup[1])
    assert {row.type for row in plan} <= {"range", "index_merge"}


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


KEYS = {
    "uuid": (Uuid(), lambda n: uuid.UUID(int=n)),
    "text uuid": (Uuid(native_uuid=False), lambda n: uuid.UUID(int=n)),
    "bigint": (BigInteger(), lambda n: 2**40 + n),
    "numeric": (Numeric(10, 2), lambda n: n),
    "bytes": (LargeBinary(20).with_variant(mysql.VARBINARY(20), "mysql"), lambda n: bytes([n])),
    "instant": (DateTime(), lambda n: datetime(2020, 1, n + 1)),  # noqa: DTZ001
    "aware": (DateTime(timezone=True), lambda n: datetime(2020, 1, n + 1, tzinfo=timezone.utc)),
    "enum": (Enum(Colour), lambda n: list(Colour)[n]),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("composite", [False, True])
@pytest.mark.parametrize("count", [1, 2])
def test_keys_of_many_types_are_freed(
    engine: Engine, kind: str, count: int, *, composite: bool
) -> None:
    type_, value = KEYS[kind]

    class Own(DeclarativeBase):
        pass

    class Thing(TTLMixin, Own):
        __tablename__ = "things"
        __ttl__ = 3600
        __table_args__ = (
            UniqueConstraint("code", "id") if composite else UniqueConstraint("code"),
        )

        key: Mapped[int] = mapped_column(primary_key=True)
        id: Mapped[int]
        code: Mapped[Any] = mapped_column(type_)

    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Thing(id=n, code=value(n)) for n in range(2)])
        expire(session, "things", 0, 1)
        session.add_all([Thing(id=n, code=value(n)) for n in range(count)])
        session.commit()
        assert len(stored(session, "things")) == 2
        assert len(session.scalars(select(Thing)).all()) == count


def add_nick(session: Session) -> None:
    session.add(Nick(id=5, room=1, name="ADA", role="x"))
    session.flush()


def add_nicks(session: Session) -> None:
    session.add_all([Nick(id=5, room=1, name="ADA"), Nick(id=6, room=7, name="ADA")])
    session.flush()


def insert_computed_nick(session: Session) -> None:
    values = {"id": 5, "room": 1, "name": func.upper("ada"), "role": "x"}
    session.execute(insert(Nick).values(values))


def insert_selected_nick(session: Session) -> None:
    source = select(literal(5), literal(1), literal("ADA"), literal("x"))
    session.execute(insert(Nick).from_select(["id", "room", "name", "role"], source))


def update_nick(session: Session) -> None:
    session.get_one(Nick, 3).name = "ADA"
    session.flush()


def update_null_nick(session: Session) -> None:
    session.get_one(Nick, 3).role = None
    session.flush()


@pytest.mark.databases("sqlite", "postgres", "mysql")
@pytest.mark.parametrize(
    "write",
    [
        add_nick,
        add_nicks,
        insert_computed_nick,
        insert_selected_nick,
        update_nick,
        update_null_nick,
    ],
    ids=lambda write: write.__name__,
)
def test_values_of_a_unique_index_over_expressions_are_free(
    engine: Engine, write: Callable[[Session], None]
) -> None:
    Other.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Nick(id=1, room=1, name="Ada"), Nick(id=2, room=2, name="Ada")])
        session.add(Nick(id=3, room=1, name="Eve", role="eve"))
        expire(session, "nicks", 1)
        write(session)
        session.commit()
        assert 1 not in stored(session, "nicks")
        assert {2, 3} <= set(stored(session, "nicks"))


@pytest.mark.databases("sqlite", "postgres", "mysql")
def test_a_live_row_keeps_its_value_of_a_unique_index_over_expressions(engine: Engine) -> None:
    Other.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(Nick(id=1, room=1, name="Ada"))
        session.commit()
        session.add(Nick(id=2, room=1, name="ADA", role="x"))
        with pytest.raises(IntegrityError):
            session.commit()
        session.rollback()
        assert stored(session, "nicks") == [1]


def flush(session: Session) -> None:
    session.add(Renamed(number=1, handle="a"))
    session.flush()


def orm_values(session: Session) -> None:
    session.execute(insert(Renamed).values(number=1, handle="a"))


def orm_multi_values(session: Session) -> None:
    session.execute(
        insert(Renamed).values([{"number": 1, "handle": "b"}, {"number": 7, "handle": "a"}])
    )


def orm_bulk(session: Session) -> None:
    session.execute(insert(Renamed), [{"number": 1}, {"number": 7, "handle": "a"}])


def from_select(session: Session) -> None:
    source = select(literal(1), literal("a"))
    session.execute(insert(Renamed).from_select([Renamed.number, Renamed.handle], source))


def orm_update(session: Session) -> None:
    session.execute(update(Renamed).where(Renamed.number == 3).values(number=1, handle="a"))


def orm_update_computed(session: Session) -> None:
    values = {Renamed.number: Renamed.number - 2, "handle": "a"}
    session.execute(update(Renamed).where(Renamed.number == 3).values(values))


@pytest.mark.parametrize(
    "write",
    [flush, orm_values, orm_multi_values, orm_bulk, from_select, orm_update, orm_update_computed],
    ids=lambda write: write.__name__,
)
def test_attributes_may_have_other_names_than_their_columns(
    session: Session, write: Callable[[Session], None]
) -> None:
    session.add_all([Renamed(number=1), Renamed(number=2, handle="a"), Renamed(number=3)])
    expire(session, "renamed", 1, 2)
    write(session)
    session.commit()
    live = {row.number: row.handle for row in session.scalars(select(Renamed))}
    assert 1 in live
    assert "a" in live.values()
    assert stored(session, "renamed") == sorted(live)


def test_an_insert_of_selected_text_works_as_ever(session: Session) -> None:
    source = select(text("1"), text("'a'"))
    session.execute(insert(Renamed).from_select([Renamed.number, Renamed.handle], source))
    assert session.get_one(Renamed, 1).handle == "a"


def test_a_model_that_is_declared_later_restricts_from_then_on(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Order(TTLMixin, Own):
        __tablename__ = "orders"
        __ttl__ = 3600

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    if engine.dialect.name == "sqlite":
        event.listen(engine, "connect", lambda c, _: c.execute("PRAGMA foreign_keys = ON"))
    Own.metadata.create_all(engine)
    with Session(engine) as session:
        for number in (1, 2):
            session.add(Order(id=number))
            session.commit()

        class Line(TTLMixin, Own):
            __tablename__ = "order_lines"
            __ttl__ = 3600

            id: Mapped[int] = mapped_column(primary_key=True)
            order_id: Mapped[int] = mapped_column(ForeignKey("orders.id"))

        Own.metadata.create_all(engine)
        session.add(Line(id=5, order_id=1))
        expire(session, "order_lines", 5)
        expire(session, "orders", 1)
        session.add(Order(id=1))
        session.commit()
        assert stored(session, "order_lines") == []


@pytest.mark.databases("postgres")
def test_keys_are_freed_in_the_schema_that_the_statement_goes_to(session: Session) -> None:
    model = web_session(3600)
    session.execute(text("CREATE SCHEMA tenant"))
    connection = session.connection()
    model.metadata.create_all(connection)
    connection.execute(text("SET search_path = tenant"))
    model.metadata.create_all(connection)
    connection.execute(text("SET search_path = public"))
    session.commit()
    tenant = {"schema_translate_map": {None: "tenant"}}
    for options in ({}, tenant):
        session.execute(insert(model).values(id="k"), execution_options=options)
    for table in ("web_sessions", "tenant.web_sessions"):
        age(session.connection(), table, "k", 4000)
    session.commit()
    session.execute(insert(model).values(id="k"), execution_options=tenant)
    session.commit()
    count = "SELECT count(*) FROM {} WHERE _ts < clock_timestamp() - interval '1 hour'"
    assert session.scalar(text(count.format("web_sessions"))) == 1
    assert session.scalar(text(count.format("tenant.web_sessions"))) == 0


@pytest.mark.parametrize("count", [1, 2, 30])
async def test_asynchronous_drivers_free_keys_alike(async_engine: AsyncEngine, count: int) -> None:
    seats = [{"hall": 1, "id": n, "holder": "a", "day": n} for n in range(count)]
    async with async_engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
    async with AsyncSession(async_engine) as session, AsyncSession(async_engine) as late:
        await session.execute(select(Seat))
        late.add_all([Seat(**seat) for seat in seats])
        await late.run_sync(expire, "seats", *range(count))
        if family_of(async_engine.dialect) != "mysql":  # there the snapshot doesn't show the rows
            await session.rollback()
        session.add_all([Seat(**seat) for seat in seats])
        await session.commit()
        await late.run_sync(expire, "seats", *range(count))
        await session.execute(insert(Seat), seats)
        await session.commit()
        assert len((await session.scalars(select(Seat))).all()) == count

"""Keys whose values the database stores otherwise than they were sent: rounded, padded, cut."""

from __future__ import annotations

import enum
from datetime import datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    CHAR,
    REAL,
    Computed,
    Date,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    Numeric,
    String,
    Time,
    TypeDecorator,
    UniqueConstraint,
    bindparam,
    event,
    func,
    insert,
    literal,
    select,
    text,
    update,
)
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.clocks import age
from tests.sql.statements import explained
from ttl_odm import Follows
from ttl_odm.sqlalchemy import TTLMixin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    Made = type[DeclarativeBase]

NOON = datetime(2024, 1, 1, 12, 0)  # noqa: DTZ001
LATE = datetime(2024, 1, 1, 23, 59, 59, 700_000)  # noqa: DTZ001


class Size(enum.Enum):
    SMALL = 1


class Cents(TypeDecorator[Any]):
    """Thousandths, of which the column keeps hundredths."""

    impl = Numeric(10, 2)
    cache_ok = True

    def process_bind_param(self, value: Any, _: object) -> Any:
        return value if value is None else Decimal(value) / 1000


class Lowered(TypeDecorator[str]):
    """A text that the server changes."""

    impl = CHAR(10)
    cache_ok = True

    def bind_expression(self, bindvalue: Any) -> Any:
        return func.lower(bindvalue)


EVERYWHERE: dict[str, tuple[Any, Any]] = {
    "a decimal with too many digits": (Numeric(10, 2), Decimal("1.236")),
    "half a digit": (Numeric(10, 2), Decimal("2.345")),
    "a decimal from a float": (Numeric(10, 2, asdecimal=False), 1.236),
    "a float": (Float(), 0.1),
    "a short float": (REAL(), 0.1),
    "a short float from a decimal": (REAL(), Decimal("0.1")),
    "a day from an instant": (Date(), NOON),
    "a decorated number": (Cents(), 1236),
    "a text padded with blanks": (CHAR(10), "ab  "),
    "a text that ends with blanks": (String(10), "ab  "),
    "a text with too many blanks": (String(4), "abcd  "),
    "a text that the server changes": (Lowered(), "AB "),
}
MYSQL: dict[str, tuple[Any, Any]] = {
    "an integer from a decimal": (Integer(), Decimal("1.6")),
    "an integer from a float": (Integer(), 2.5),
    "an integer from a text": (Integer(), "1.6"),
    "a fraction of a second": (DateTime(), NOON.replace(microsecond=600_000)),
    "parts of a millisecond": (mysql.DATETIME(fsp=3), NOON.replace(microsecond=600_700)),
    "a timestamp": (mysql.TIMESTAMP(), NOON.replace(microsecond=600_000)),
    "a day from its last half second": (Date(), LATE),
    "a time": (Time(), time(12, 0, 0, 600_000)),
    "a duration": (mysql.TIME(), timedelta(hours=30, microseconds=600_000)),
    "a float with digits": (mysql.FLOAT(7, 4), 0.12345),
    "a double with digits": (mysql.DOUBLE(10, 3), 0.12345),
    "an unsigned decimal": (mysql.DECIMAL(10, 2, unsigned=True), Decimal("1.236")),
    "bytes padded with zeros": (mysql.BINARY(4), b"ab"),
    "bits from bytes": (mysql.BIT(8), b"\x05"),
    "a year of two digits": (mysql.YEAR(), 24),
    "a set": (mysql.SET("a%", "b", "c"), {"c", "a%", "b"}),
    "a set in another order": (mysql.SET("a%", "b", "c"), "c,a%"),
    "a set by its bits": (mysql.SET("a%", "b", "c", retrieve_as_bitwise=True), {"c", "b"}),
    "one of a few": (mysql.ENUM("x", "y"), "x "),
    "a text in another case": (String(10), "ab"),
    "a text of another character set": (mysql.CHAR(10, charset="latin1"), "ä  "),
}
POSTGRES: dict[str, tuple[Any, Any]] = {
    "an integer from a decimal": (Integer(), Decimal("1.6")),
    "a decimal without a declared scale": (Numeric(), Decimal("1.236")),
    "a second": (postgresql.TIMESTAMP(precision=0), NOON.replace(microsecond=600_000)),
    "an aware second": (
        postgresql.TIMESTAMP(timezone=True, precision=0),
        LATE.replace(tzinfo=timezone.utc),
    ),
    "a time": (postgresql.TIME(precision=0), time(12, 0, 0, 600_000)),
    "a duration": (postgresql.INTERVAL(precision=0), timedelta(hours=30, microseconds=600_000)),
    "an array": (postgresql.ARRAY(Numeric(10, 2)), [Decimal("1.236")]),
    "texts padded with blanks": (postgresql.ARRAY(CHAR(4)), ["ab "]),
    "JSON": (postgresql.JSONB(), {"b": 1, "a": [1.0]}),
    "an address": (postgresql.INET(), "10.0.0.1/32"),
}
OLD_KEY, NEW_KEY = 1, 2


def stored(connection: Connection) -> list[Any]:
    return list(connection.scalars(text("SELECT id FROM things ORDER BY id")))


def things(type_: Any) -> Any:
    """A class with a key of a type."""

    class Base(DeclarativeBase):
        pass

    class Thing(TTLMixin, Base):
        __tablename__ = "things"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        code: Mapped[Any] = mapped_column(type_, unique=True)

    return Thing


def check(engine: Engine, type_: Any, old: Any, new: Any) -> None:
    """That an expired row's value is free, and a live row's isn't."""
    model = things(type_)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(model(id=OLD_KEY, code=old))
        session.flush()
        age(session.connection(), "things", OLD_KEY, 4000)
        session.commit()
        session.expunge_all()
        session.add(model(id=NEW_KEY, code=new))
        session.commit()
        assert stored(session.connection()) == [NEW_KEY]
        session.add(model(id=3, code=new))
        with pytest.raises(IntegrityError):
            session.flush()
        session.rollback()
        assert stored(session.connection()) == [NEW_KEY]


@pytest.mark.parametrize("kind", EVERYWHERE)
def test_a_value_is_free_as_it_was_stored(engine: Engine, kind: str) -> None:
    type_, value = EVERYWHERE[kind]
    check(engine, type_, value, value)


# SQLAlchemy 2.1 says so of its own types.
@pytest.mark.filterwarnings("ignore:Type object .* does not refer to an OperatorClass")
@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("kind", MYSQL)
def test_a_value_is_free_as_mysql_stores_it(engine: Engine, kind: str) -> None:
    type_, value = MYSQL[kind]
    new = "AB" if kind == "a text in another case" else value
    check(engine, type_, value, new)


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("kind", POSTGRES)
def test_a_value_is_free_as_postgresql_stores_it(engine: Engine, kind: str) -> None:
    type_, value = POSTGRES[kind]
    check(engine, type_, value, value)


# Every way to write


class Base(DeclarativeBase):
    pass


class Price(TTLMixin, Base):
    __tablename__ = "prices"
    __ttl__ = 3600
    __table_args__ = (UniqueConstraint("shelf", "weight"),)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    amount: Mapped[Decimal | None] = mapped_column(Numeric(10, 2), unique=True)
    shelf: Mapped[int | None]
    weight: Mapped[float | None] = mapped_column(REAL())


SENT = Decimal("1.236")
ROWS = [
    {"id": 11, "amount": SENT, "shelf": 1, "weight": 0.1},
    {"id": 12, "amount": Decimal("2.236"), "shelf": 2, "weight": 0.1},
    {"id": 13, "amount": Decimal("3.25"), "shelf": None, "weight": 0.2},
]
PRICES: Any = Price.__table__


@pytest.fixture
def session(engine: Engine) -> Iterator[Session]:
    """Two expired rows that hold values of the first two of `ROWS`, and two live ones."""
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Price(id=1, amount=SENT), Price(id=2, shelf=2, weight=0.1)])
        session.add_all([Price(id=3, amount=7, shelf=3, weight=0.5), Price(id=4, amount=8)])
        session.flush()
        for key in (1, 2):
            age(session.connection(), "prices", key, 4000)
        session.commit()
        session.expunge_all()
        yield session


def flush_one(s: Session) -> None:
    s.add(Price(**ROWS[0]))
    s.flush()
    s.add(Price(**ROWS[1]))


def flush_many(s: Session) -> None:
    s.add_all([Price(**row) for row in ROWS])


def insert_rows(s: Session) -> None:
    for row in ROWS:
        s.connection().execute(insert(PRICES).values(**row))


def insert_many(s: Session) -> None:
    s.connection().execute(insert(PRICES), ROWS)


def insert_many_values(s: Session) -> None:
    s.connection().execute(insert(PRICES).values(ROWS))


def insert_by_the_orm(s: Session) -> None:
    s.execute(insert(Price), ROWS)


def insert_sql(s: Session) -> None:
    for row in ROWS:
        amount = literal(row["amount"], Numeric(10, 3)) + literal(0)
        s.execute(insert(PRICES).values(**{**row, "amount": amount}))


def insert_selected(s: Session) -> None:
    for row in ROWS:
        values = [literal(value, PRICES.c[name].type) for name, value in row.items()]
        s.execute(insert(PRICES).from_select(list(row), select(*values)))


def insert_or_update(s: Session) -> None:
    name = s.get_bind().dialect.name
    for row in ROWS:
        upsert: Any
        if name == "mysql":
            upsert = mysql.insert(PRICES).values(**row).on_duplicate_key_update(shelf=9)
        else:
            dialect = sqlite if name == "sqlite" else postgresql
            upsert = dialect.insert(PRICES).values(**row)
            upsert = upsert.on_conflict_do_update(index_elements=["id"], set_={"shelf": 9})
        s.execute(upsert)


def insert_in_a_cte(s: Session) -> None:
    if s.get_bind().dialect.name != "postgresql":
        insert_rows(s)
        return
    for row in ROWS:
        new = insert(PRICES).values(**row).returning(PRICES.c.id).cte()
        s.execute(select(new.c.id))


def merge(s: Session) -> None:
    for row in ROWS:
        s.merge(Price(**row))
        s.flush()


def save_mappings(s: Session) -> None:
    s.bulk_insert_mappings(Price, ROWS)  # type: ignore[arg-type]


INSERTS = [
    *(flush_one, flush_many, insert_rows, insert_many, insert_many_values, insert_by_the_orm),
    *(insert_sql, insert_selected, insert_or_update, insert_in_a_cte, merge, save_mappings),
]


@pytest.mark.parametrize("write", INSERTS, ids=lambda write: write.__name__)
def test_an_insert_of_any_form_finds_the_stored_value(
    session: Session, write: Callable[[Session], None]
) -> None:
    write(session)
    session.commit()
    found = list(session.scalars(text("SELECT id FROM prices ORDER BY id")))
    ids = [row["id"] for row in ROWS]
    assert found == [3, 4, *ids][: len(found)]
    assert ids[0] in found
    assert session.scalar(select(func.count()).select_from(Price)) == len(found)


def update_objects(s: Session) -> None:
    s.get_one(Price, 3).amount = SENT
    s.get_one(Price, 4).shelf, s.get_one(Price, 4).weight = 2, 0.1


def update_rows(s: Session) -> None:
    s.connection().execute(update(PRICES).where(PRICES.c.id == 3).values(amount=SENT))
    s.execute(update(Price).where(Price.id == 4).values(shelf=2, weight=0.1))


def update_by_keys(s: Session) -> None:
    s.execute(update(Price), [{"id": 3, "amount": SENT}])
    s.execute(update(Price), [{"id": 4, "shelf": 2, "weight": 0.1}])


def update_many(s: Session) -> None:
    statement = update(PRICES).where(PRICES.c.id == bindparam("key"))
    amounts = [{"key": 3, "new": SENT}, {"key": 4, "new": Decimal("9.876")}]
    s.connection().execute(statement.values(amount=bindparam("new")), amounts)
    shelves = [{"key": 4, "s": 2, "w": 0.1}, {"key": 3, "s": 5, "w": 0.1}]
    s.connection().execute(statement.values(shelf=bindparam("s"), weight=bindparam("w")), shelves)


def update_computed(s: Session) -> None:
    new = PRICES.c.amount * 0 + SENT
    s.execute(update(PRICES).where(PRICES.c.id == 3).values(amount=new))
    s.execute(update(PRICES).where(PRICES.c.id == 4).values(weight=0.1, shelf=PRICES.c.id - 2))


def update_in_part(s: Session) -> None:
    s.execute(update(PRICES).where(PRICES.c.id == 4).values(shelf=2))
    s.execute(update(PRICES).where(PRICES.c.id == 4).values(weight=0.1))
    s.execute(update(PRICES).where(PRICES.c.id == 3).values(amount=SENT))


@pytest.mark.parametrize(
    "write",
    [update_objects, update_rows, update_by_keys, update_many, update_computed, update_in_part],
    ids=lambda write: write.__name__,
)
def test_an_update_of_any_form_finds_the_stored_value(
    session: Session, write: Callable[[Session], None]
) -> None:
    write(session)
    session.commit()
    assert list(session.scalars(text("SELECT id FROM prices ORDER BY id"))) == [3, 4]


# Every driver: what they send has types of its own

OF_DRIVERS = {
    "number": (Numeric(10, 2), Decimal("1.236")),
    "short": (REAL(), 0.1),
    "day": (Date(), NOON),
    "moment": (
        DateTime()
        .with_variant(postgresql.TIMESTAMP(precision=0), "postgresql")
        .with_variant(mysql.DATETIME(fsp=0), "mysql"),
        NOON.replace(microsecond=600_000),
    ),
    "letters": (CHAR(10), "ab  "),
}


def of_drivers() -> Any:
    class Base(DeclarativeBase):
        pass

    columns = {name: mapped_column(type_, unique=True) for name, (type_, _) in OF_DRIVERS.items()}
    names = {"__tablename__": "things", "__ttl__": 3600, **columns}
    names["id"] = mapped_column(Integer, primary_key=True, autoincrement=False)
    return type("Thing", (TTLMixin, Base), names)


def take_again(session: Session, model: Any) -> None:
    """Insert the same values once more, one by one and several at once."""
    for first, number in ((10, 1), (20, 3)):
        values = {name: value for name, (_, value) in OF_DRIVERS.items()}
        for key in (first, first + 1):
            for taken in session.scalars(text("SELECT id FROM things")).all():
                age(session.connection(), "things", taken, 4000)
            session.add(model(id=key, **values))
            session.add_all([model(id=key * 10 + n) for n in range(1, number)])
            session.flush()
            session.commit()
            session.expunge_all()
    assert stored(session.connection()) == [21, 201, 202, 211, 212]


@pytest.mark.every_driver
def test_whatever_the_driver_sends(engine: Engine) -> None:
    model = of_drivers()
    model.metadata.create_all(engine)
    with Session(engine) as session:
        take_again(session, model)


@pytest.mark.every_driver
async def test_whatever_an_asynchronous_driver_sends(async_engine: AsyncEngine) -> None:
    model = of_drivers()
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        await session.run_sync(take_again, model)


# What it costs


def sent_by(session: Session, work: Callable[[], object]) -> list[tuple[str, Any]]:
    sent: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        sent.append((statement, parameters))

    engine = session.get_bind()
    event.listen(engine, "before_cursor_execute", note)
    try:
        work()
    finally:
        event.remove(engine, "before_cursor_execute", note)
    return sent


def asks_for_types(statement: str) -> bool:
    return "format_type" in statement or "column_type" in statement


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_values_that_are_stored_as_they_are_cost_nothing_more(session: Session) -> None:
    values = {"amount": Decimal("1.24"), "shelf": 1}

    def work() -> None:
        for key in (20, 21):
            session.execute(update(Price).values(amount=None))  # frees it, with no statement more
            age(session.connection(), "prices", 1, 4000)
            session.execute(insert(Price).values(id=key, **values))

    session.execute(text("UPDATE prices SET amount = 1.24 WHERE id = 1"))
    statements = [statement for statement, _ in sent_by(session, work)]
    assert not any(map(asks_for_types, statements))
    assert not any("CAST" in statement for statement in statements if "prices" in statement)


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_the_database_is_asked_for_types_once_and_statements_come_from_the_cache(
    session: Session,
) -> None:
    def take(key: int, count: int) -> None:
        for row in session.scalars(text("SELECT id FROM prices")).all():
            age(session.connection(), "prices", row, 4000)
        session.add_all(
            [Price(id=key + n, amount=Decimal(f"{n + 1}.236"), weight=0.1) for n in range(count)]
        )
        session.flush()
        session.commit()
        session.expunge_all()

    cache: Any = session.get_bind()._compiled_cache  # type: ignore[union-attr]
    sizes, asked = [], 0
    for round_ in range(3):

        def work(base: int = 100 * round_) -> None:
            for key, count in ((10, 1), (20, 1), (30, 3), (40, 4), (50, 10)):
                take(base + key, count)

        asked += sum(asks_for_types(statement) for statement, _ in sent_by(session, work))
        sizes.append(len(cache))
    assert asked == 1
    assert sizes[1] == sizes[2]
    assert stored_prices(session) == [2, 3, 4, *range(250, 260)]


def stored_prices(session: Session) -> list[Any]:
    return list(session.scalars(text("SELECT id FROM prices ORDER BY id")))


@pytest.mark.parametrize("count", [2, 3, 150])
def test_converted_parts_of_composite_keys_are_freed_in_batches(
    session: Session, count: int
) -> None:
    session.add_all([Price(id=100 + n, shelf=n, weight=n / 10) for n in range(100, 100 + count)])
    session.add(Price(id=99, shelf=99, weight=0.1))
    session.flush()
    for key in range(200, 200 + count):
        age(session.connection(), "prices", key, 4000)
    session.commit()
    session.expunge_all()
    rows = [{"id": 1000 + n, "shelf": n, "weight": n / 10} for n in range(100, 100 + count)]
    rows.append({"id": 999, "shelf": None, "weight": 0.1})
    session.execute(insert(Price), rows)
    session.commit()
    kept = [key for key in stored_prices(session) if key > 4]
    assert kept == [99, 999, *range(1100, 1100 + count)]


@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("count", [1, 3])
def test_an_index_answers_the_converted_comparison(session: Session, count: int) -> None:
    rows = [
        {"id": 1000 + n, "amount": 100 + n, "shelf": n, "weight": n / 10 + 50} for n in range(2000)
    ]
    session.execute(insert(Price), rows)
    session.commit()
    table = "TABLE " if session.get_bind().dialect.name == "mysql" else ""
    session.execute(text(f"ANALYZE {table}prices"))
    session.commit()

    def is_lookup(statement: str) -> bool:
        is_other = "INSERT" in statement or asks_for_types(statement)
        return "prices" in statement and not is_other

    with explained(session.get_bind(), is_lookup) as plans:
        session.add_all([Price(**row) for row in ROWS[:count]])
        session.flush()
    assert plans
    assert not [line for line in plans if "Seq Scan" in line or "'ALL'" in line]


# Types that only the database knows, and values that it makes


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_the_types_are_those_that_the_database_has(engine: Engine) -> None:
    """A model may say less, or something else."""

    class Own(DeclarativeBase):
        pass

    class Thing(TTLMixin, Own):
        __tablename__ = "things"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        amount: Mapped[Decimal | None] = mapped_column(Numeric(), unique=True)
        at: Mapped[datetime | None] = mapped_column(DateTime(), unique=True)
        fine: Mapped[datetime | None] = mapped_column(DateTime(), unique=True)
        name: Mapped[str | None] = mapped_column(String(20), unique=True)

    Own.metadata.create_all(engine)
    changes = {
        "postgresql": [
            "ALTER COLUMN amount TYPE numeric(10, 2)",
            "ALTER COLUMN at TYPE timestamp(0)",
            "ALTER COLUMN name TYPE char(20)",
        ],
        "mysql": [
            "MODIFY amount decimal(10, 2)",
            "MODIFY fine datetime(6)",
            "MODIFY name char(20)",
        ],
    }
    with engine.begin() as connection:
        for change in changes[engine.dialect.name]:
            connection.execute(text(f"ALTER TABLE things {change}"))
    moment = NOON.replace(microsecond=600_001)
    for values in ({"amount": Decimal("1.236")}, {"at": moment}, {"fine": moment}, {"name": "a "}):
        with Session(engine) as session:
            session.add(Thing(id=1, **values))
            session.flush()
            age(session.connection(), "things", 1, 4000)
            session.commit()
            session.expunge_all()
            session.add(Thing(id=2, **values))
            session.commit()
            assert stored(session.connection()) == [2]
            session.execute(text("DELETE FROM things"))
            session.commit()


@pytest.mark.databases("mariadb", "mysql")
def test_what_a_lenient_server_cuts_off(engine: Engine) -> None:
    with engine.connect() as connection:
        connection.execute(text("SET SESSION sql_mode = ''"))
        connection.commit()
        model = things(String(4))
        model.metadata.create_all(connection)
        with Session(connection) as session:
            session.add(model(id=1, code="abcdef"))
            session.flush()
            age(session.connection(), "things", 1, 4000)
            session.add(model(id=2, code="abcdxyz"))
            session.commit()
            assert stored(connection) == [2]


@pytest.mark.databases("postgres")
def test_a_text_that_ignores_case(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE EXTENSION citext"))
    check(engine, postgresql.CITEXT(), "ann", "ANN")


@pytest.mark.filterwarnings("ignore:Type object .* does not refer to an OperatorClass")
@pytest.mark.databases("postgres")
def test_types_of_the_applications_own(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text("CREATE DOMAIN money_amount AS numeric(10, 2) CHECK (VALUE > 0)"))
    check(engine, postgresql.DOMAIN("money_amount", Numeric()), Decimal("1.236"), Decimal("1.236"))


def test_generated_columns_and_expressions_are_made_of_stored_values(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Thing(TTLMixin, Own):
        __tablename__ = "things"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        amount: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
        weight: Mapped[Decimal | None] = mapped_column(Numeric(10, 2))
        double: Mapped[Decimal | None] = mapped_column(
            Numeric(10, 1), Computed("amount * 3", persisted=True), unique=True
        )

    engine.connect().close()  # so that the dialect knows its server
    has_expressions = not getattr(engine.dialect, "is_mariadb", False)
    if has_expressions:
        expression: Any = func.abs(Thing.weight)
        Index("uq_things", expression, unique=True)
    Own.metadata.create_all(engine)
    writes: list[dict[str, Any]] = [{"amount": Decimal("1.236")}]
    writes += [{"weight": Decimal("1.236")}] if has_expressions else []
    for values in writes:
        with Session(engine) as session:
            session.add(Thing(id=1, **values))
            session.add_all([Thing(id=3), Thing(id=4)])
            session.flush()
            age(session.connection(), "things", 1, 4000)
            session.commit()
            session.expunge_all()
            session.add(Thing(id=2, **values))
            session.commit()
            assert stored(session.connection()) == [2, 3, 4]
            age(session.connection(), "things", 2, 4000)
            session.execute(update(Thing).where(Thing.id == 3).values(**values))
            session.commit()
            assert stored(session.connection()) == [3, 4]
            session.execute(text("DELETE FROM things"))
            session.commit()


def test_keys_of_subclasses_and_of_followers(engine: Engine) -> None:
    class Own(DeclarativeBase):
        pass

    class Thing(TTLMixin, Own):
        __tablename__ = "things"
        __ttl__ = 3600
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str] = mapped_column(String(10))
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "thing"}

    class Box(Thing):
        __tablename__ = "boxes"
        id: Mapped[int] = mapped_column(ForeignKey("things.id"), primary_key=True)
        code: Mapped[Decimal | None] = mapped_column(Numeric(10, 2), unique=True)
        __mapper_args__ = {"polymorphic_identity": "box"}

    class Part(Own):
        __tablename__ = "parts"
        __ttl__ = Follows("thing")
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        code: Mapped[Decimal | None] = mapped_column(Numeric(10, 2), unique=True)
        thing_id: Mapped[int] = mapped_column(ForeignKey("things.id", ondelete="CASCADE"))
        thing: Mapped[Thing] = relationship()

    Own.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([Box(id=1, code=SENT), Thing(id=2)])
        session.flush()
        session.add(Part(id=1, code=SENT, thing_id=1))
        session.flush()
        age(session.connection(), "things", 1, 4000)
        session.commit()
        session.expunge_all()
        session.add(Part(id=2, code=SENT, thing_id=2))
        session.commit()
        session.add(Box(id=3, code=SENT))
        session.commit()
        assert stored(session.connection()) == [2, 3]
        assert list(session.scalars(text("SELECT id FROM parts"))) == [2]


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_each_schema_has_types_of_its_own(engine: Engine) -> None:
    model = things(Numeric())
    name = "other" if engine.dialect.name == "postgresql" else f"{engine.url.database}_other"
    schemas = {"schema_translate_map": {None: name}}
    with engine.begin() as connection:
        connection.execute(text(f"CREATE SCHEMA {name}"))
    try:
        for options, scale in (({}, 2), (schemas, 1)):
            with engine.connect().execution_options(**options) as connection:
                model.metadata.create_all(connection)
                place = f"{name}.things" if options else "things"
                change = {
                    "postgresql": f"ALTER COLUMN code TYPE numeric(10, {scale})",
                    "mysql": f"MODIFY code decimal(10, {scale})",
                }[engine.dialect.name]
                connection.execute(text(f"ALTER TABLE {place} {change}"))
                connection.commit()
                with Session(connection) as session:
                    session.add(model(id=1, code=Decimal("1.26666")))
                    session.flush()
                    age(connection, place, 1, 4000)
                    session.commit()
                    session.expunge_all()
                    session.add(model(id=2, code=Decimal("1.26666")))
                    session.commit()
                    assert list(connection.scalars(text(f"SELECT id FROM {place}"))) == [2]  # noqa: S608
    finally:
        with engine.begin() as connection:
            cascade = " CASCADE" if engine.dialect.name == "postgresql" else ""
            connection.execute(text(f"DROP SCHEMA {name}{cascade}"))

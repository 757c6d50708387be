"""What a sweep deletes, what it leaves, and what it puts up with, on every database."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    ForeignKey,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    func,
    insert,
    inspect,
    select,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, registry

from tests.sql.models import web_session
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import TTLMixin, include_expired
from ttl_odm.sqlalchemy.clock import clock_of
from ttl_odm.sweeper import (
    AsyncSweeper,
    Progress,
    StoreError,
    Sweeper,
    SweepReport,
    TransientStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

HOUR = 3_600
servers = pytest.mark.databases("postgres", "mariadb")
sweeps = pytest.mark.parametrize("sweep", ["index", "scan"])


def cart(ttl: Any = HOUR, sweep: str = "index") -> Any:
    """Declare a model on a base of its own."""

    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = ttl
        __ttl_sweep__ = sweep

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Cart


def add(
    connection: Connection, table: str, rows: Iterable[tuple[Any, int | None, int]], key: str = "id"
) -> None:
    """Write rows of (key, own ttl, age in seconds), raw."""
    clock = clock_of(connection.dialect)
    connection.execute(
        text(
            f"INSERT INTO {table} ({key}, ttl, _ts) "  # noqa: S608 (a test's own table)
            f"VALUES (:key, :ttl, {clock.now} - :age * {clock.second})"
        ),
        [{"key": key, "ttl": ttl, "age": age} for key, ttl, age in rows],
    )


def add_at_once(connection: Connection, table: str, rows: int, ttl: int | None = None) -> None:
    """Write rows that all have the same ``_ts``, two hours ago."""
    add(connection, table, [(number, ttl, 0) for number in range(rows)])
    clock = clock_of(connection.dialect)
    moment = f"{clock.now} - {2 * HOUR} * {clock.second}"
    connection.execute(text(f"UPDATE {table} SET _ts = {moment}"))  # noqa: S608


def left(connection: Connection, model: Any) -> set[Any]:
    """The keys of all rows that are still stored."""
    column = next(iter(getattr(model, "__table__", model).primary_key))
    return set(connection.scalars(select(column).options(include_expired())))


@pytest.fixture
def made(engine: Engine) -> Any:
    """Create a model's tables."""

    def create(model: Any) -> Any:
        model.metadata.create_all(engine)
        return model

    return create


# What is deleted. (default, own ttl) -> seconds that a row lives; None: for ever.

LIFE: dict[tuple[int | None, int | None], int | None] = {
    (None, None): None,
    (None, -1): None,
    (None, 5_000): None,
    (None, 20_000): None,
    (-1, None): None,
    (-1, -1): None,
    (-1, 5_000): 5_000,
    (-1, 20_000): 20_000,
    (10_000, None): 10_000,
    (10_000, -1): None,
    (10_000, 5_000): 5_000,
    (10_000, 20_000): 20_000,
}
AGES = (0, 4_000, 6_000, 9_000, 11_000, 19_000, 21_000, 10**9)
ROWS = {
    number: (own, age)
    for number, (own, age) in enumerate(
        (own, age) for own in (None, -1, 5_000, 20_000) for age in AGES
    )
}


def expected(default: int | None) -> set[int]:
    alive = set()
    for number, (own, age) in ROWS.items():
        life = LIFE[default, own]
        if life is None or age < life:
            alive.add(number)
    return alive


def add_rows(connection: Connection) -> None:
    add(connection, "carts", [(number, own, age) for number, (own, age) in ROWS.items()])


@sweeps
@pytest.mark.parametrize("default", [None, -1, 10_000])
@pytest.mark.parametrize("batch_size", [None, 3])
def test_a_sweep_deletes_what_the_truth_table_says(
    engine: Engine, made: Any, default: int | None, sweep: str, batch_size: int | None
) -> None:
    model = made(cart(default, sweep))
    with engine.begin() as connection:
        add_rows(connection)
    report = Sweeper(engine, model, batch_size=batch_size).run_once()
    with engine.connect() as connection:
        assert left(connection, model) == expected(default)
    assert report.deleted == len(ROWS) - len(expected(default))
    report.raise_for_failures()


@sweeps
@pytest.mark.parametrize("default", [None, -1, 10_000])
async def test_an_asynchronous_sweep_deletes_the_same(
    async_engine: AsyncEngine, default: int | None, sweep: str
) -> None:
    model = cart(default, sweep)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add_rows)
    report = await AsyncSweeper(async_engine, model, batch_size=3).run_once()
    async with async_engine.connect() as connection:
        assert await connection.run_sync(left, model) == expected(default)
    assert report.deleted == len(ROWS) - len(expected(default))
    report.raise_for_failures()


@sweeps
def test_a_changed_default_acts_on_the_next_sweep(engine: Engine, made: Any, sweep: str) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR), (2, None, 30)])
    sweeper = Sweeper(engine, model)
    model.__ttl__ = 3 * HOUR
    assert sweeper.run_once().deleted == 0
    model.__ttl__ = None
    assert sweeper.run_once().targets == ()
    model.__ttl__ = 10
    assert sweeper.run_once().deleted == 2


def test_a_default_that_is_no_ttl_fails_its_table_and_no_other(engine: Engine) -> None:
    carts, sessions = cart(), web_session(HOUR)
    for model in (carts, sessions):
        model.metadata.create_all(engine)
    carts.__ttl__ = 0
    report = Sweeper(engine, [carts, sessions]).run_once()
    assert [each.table for each in report.failed] == ["carts"]
    assert "Cart.__ttl__ = 0 is no ttl" in str(report)
    assert len(report.targets) == 2


def without_checks(connection: Connection) -> None:
    """Let a connection store values that the CHECK on ``ttl`` keeps out."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("PRAGMA ignore_check_constraints = ON"))
    elif connection.dialect.name == "postgresql":
        (check,) = inspect(connection).get_check_constraints("carts")
        connection.execute(text(f"ALTER TABLE carts DROP CONSTRAINT {check['name']}"))
    else:
        connection.execute(text("SET SESSION check_constraint_checks = OFF"))


@pytest.mark.parametrize(("sweep", "gone"), [("scan", {1, 2, 3}), ("index", {3})])
def test_invalid_values_inherit_where_the_table_is_walked_and_wait_in_an_index(
    engine: Engine, made: Any, sweep: str, gone: set[int]
) -> None:
    model = made(cart(HOUR, sweep))
    with engine.connect() as connection:
        without_checks(connection)
        add(
            connection,
            "carts",
            [(1, 0, 2 * HOUR), (2, -2, 2 * HOUR), (3, None, 2 * HOUR), (4, 0, 30), (5, -2, 30)],
        )
        connection.commit()
        connection.invalidate()
    Sweeper(engine, model).run_once()
    with engine.connect() as connection:
        assert left(connection, model) == {1, 2, 3, 4, 5} - gone


# Single-table subclasses


def fleet(base: int | None, bike: int | None, sweep: str) -> Any:
    class Base(DeclarativeBase):
        pass

    class Vehicle(TTLMixin, Base):
        __tablename__ = "vehicles"
        __ttl__ = base
        __ttl_sweep__ = sweep
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "vehicle"}

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        kind: Mapped[str | None] = mapped_column(String(20))

    class Bike(Vehicle):
        __ttl__ = bike
        __mapper_args__ = {"polymorphic_identity": "bike"}

    class FoldingBike(Bike):
        __mapper_args__ = {"polymorphic_identity": "folding"}

    return Vehicle


@sweeps
@pytest.mark.parametrize(
    ("defaults", "gone"),
    [
        ((HOUR, 5 * HOUR), {"vehicle"}),
        ((5 * HOUR, HOUR), {"bike", "folding"}),
        ((HOUR, None), {"vehicle"}),
        ((HOUR, -1), {"vehicle"}),
        ((None, HOUR), {"bike", "folding"}),
        ((-1, HOUR), {"bike", "folding"}),
        ((2 * HOUR, HOUR), {"vehicle", "bike", "folding"}),
    ],
)
def test_subclasses_with_a_default_of_their_own_live_by_it(
    engine: Engine, made: Any, defaults: tuple[Any, Any], gone: set[str], sweep: str
) -> None:
    model = made(fleet(*defaults, sweep))
    kinds = ("vehicle", "bike", "folding")
    with engine.begin() as connection:
        # Those that live longer come first in the index, and fill more than one window.
        add(connection, "vehicles", [(number, None, 3 * HOUR) for number in range(30)])
        connection.execute(text("UPDATE vehicles SET kind = 'bike' WHERE id % 3 = 1"))
        connection.execute(text("UPDATE vehicles SET kind = 'folding' WHERE id % 3 = 2"))
        connection.execute(text("UPDATE vehicles SET kind = 'vehicle' WHERE id % 3 = 0"))
    report = Sweeper(engine, model, batch_size=4).run_once()
    with engine.connect() as connection:
        stay = {number for number in range(30) if kinds[number % 3] not in gone}
        assert left(connection, model) == stay
    (target,) = report.targets
    assert target.skipped == 0
    if sweep == "index":
        assert target.oldest_before == pytest.approx(2 * HOUR, abs=60)
        assert target.oldest_after == 0.0


# Joined subclasses


def zoo(ondelete: str | None) -> Any:
    class Base(DeclarativeBase):
        pass

    class Animal(TTLMixin, Base):
        __tablename__ = "animals"
        __ttl__ = HOUR
        __mapper_args__ = {"polymorphic_on": "kind", "polymorphic_identity": "animal"}

        id: Mapped[int] = mapped_column(primary_key=True)
        kind: Mapped[str] = mapped_column(String(20))

    class Dog(Animal):
        __tablename__ = "dogs"
        __mapper_args__ = {"polymorphic_identity": "dog"}

        dog_id: Mapped[int] = mapped_column(
            ForeignKey(Animal.id, ondelete=ondelete), primary_key=True
        )

    class Puppy(Dog):
        __tablename__ = "puppies"
        __mapper_args__ = {"polymorphic_identity": "puppy"}

        puppy_id: Mapped[int] = mapped_column(
            ForeignKey(Dog.dog_id, ondelete=ondelete), primary_key=True
        )

    return Animal, Dog, Puppy


@pytest.mark.parametrize("ondelete", [None, "CASCADE"])
@pytest.mark.parametrize("batch_size", [None, 1])
def test_rows_of_joined_subclasses_go_with_their_base_row(
    engine: Engine, made: Any, ondelete: str | None, batch_size: int | None
) -> None:
    animal, dog, puppy = zoo(ondelete)
    made(animal)
    with Session(engine) as session:
        session.add_all([animal(id=1), dog(id=2), puppy(id=3), puppy(id=4), puppy(id=5)])
        session.commit()
        clock = clock_of(engine.dialect)
        moment = f"_ts - 7200 * {clock.second}"
        session.execute(text(f"UPDATE animals SET _ts = {moment} WHERE id < 5"))  # noqa: S608
        session.commit()
    report = Sweeper(engine, animal, batch_size=batch_size).run_once()
    report.raise_for_failures()
    assert report.deleted == 4
    with engine.connect() as connection:
        for model in (animal, dog, puppy):
            assert set(connection.execute(text(f"SELECT * FROM {model.__tablename__}"))) != set()  # noqa: S608
            assert left(connection, model.__table__) == {5}


# Foreign keys


def shop(ondelete: str | None = None, order_ttl: int | None = HOUR) -> Any:
    class Base(DeclarativeBase):
        pass

    class Customer(TTLMixin, Base):
        __tablename__ = "customers"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    class Order(TTLMixin, Base):
        __tablename__ = "orders"
        __ttl__ = order_ttl

        id: Mapped[int] = mapped_column(
            ForeignKey(Customer.id, ondelete=ondelete, name="order_customer"),
            primary_key=True,
            autoincrement=False,
        )

    class Zebra(TTLMixin, Base):
        __tablename__ = "zebras"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Customer, Order, Zebra


@pytest.fixture
def enforcing(engine: Engine) -> Iterator[None]:
    """Let SQLite enforce foreign keys, as the others do."""

    def enforce(dbapi_connection: Any, _: Any) -> None:
        if engine.dialect.name == "sqlite":
            dbapi_connection.execute("PRAGMA foreign_keys = ON")

    event.listen(engine, "connect", enforce)
    yield
    event.remove(engine, "connect", enforce)


@pytest.mark.usefixtures("enforcing")
def test_tables_that_refer_to_others_are_swept_first(engine: Engine, made: Any) -> None:
    customer, _, _ = shop()
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, customer.registry).run_once()
    report.raise_for_failures()
    tables = [each.table for each in report.targets]
    assert tables.index("orders") < tables.index("customers")
    assert report.deleted == 2


@pytest.mark.usefixtures("enforcing")
def test_a_child_that_expires_during_the_sweep_does_not_hold_up_its_parent(
    engine: Engine, made: Any
) -> None:
    customer, _, _ = shop()
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR), (2, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
    # As if the child's table had been swept a moment before the child expired.
    report = Sweeper(engine, [customer]).run_once()
    report.raise_for_failures()
    assert report.deleted == 2


@pytest.mark.usefixtures("enforcing")
def test_rows_that_refer_to_others_of_their_table_go_in_batches_too(
    engine: Engine, made: Any
) -> None:
    class Base(DeclarativeBase):
        pass

    class Reply(TTLMixin, Base):
        __tablename__ = "replies"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        answers: Mapped[int | None] = mapped_column(ForeignKey("replies.id"))

    made(Reply)
    with engine.begin() as connection:
        # Those that are answered come first, being older.
        add(connection, "replies", [(number, None, 3 * HOUR - number) for number in range(20)])
        connection.execute(text("UPDATE replies SET answers = id - 10 WHERE id >= 10"))
    report = Sweeper(engine, Reply, batch_size=5).run_once()
    report.raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, Reply) == set()


def test_a_foreign_key_to_a_table_that_is_not_declared_is_passed_over(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Order(TTLMixin, Base):
        __tablename__ = "orders"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(ForeignKey("elsewhere.id"), primary_key=True)

    report = Sweeper(engine, Base).run_once()  # the table is missing
    assert [each.table for each in report.failed] == ["orders"]


@pytest.mark.usefixtures("enforcing")
def test_a_row_that_a_live_row_refers_to_fails_its_table_by_name_and_no_other(
    engine: Engine, made: Any
) -> None:
    customer, _, _ = shop(order_ttl=-1)
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR), (2, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
        add(connection, "zebras", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, customer.metadata).run_once()
    (failed,) = report.failed
    assert failed.table == "customers"
    assert isinstance(failed.error, StoreError)
    assert not isinstance(failed.error, TransientStoreError)
    assert "order_customer" in str(report)
    assert "Key (id)" not in str(report)  # a value of a row
    assert {each.table: each.deleted for each in report.targets}["zebras"] == 1


@pytest.mark.usefixtures("enforcing")
def test_a_foreign_key_that_cascades_takes_its_rows_along(engine: Engine, made: Any) -> None:
    customer, order, _ = shop("CASCADE", order_ttl=-1)
    made(customer)
    with engine.begin() as connection:
        add(connection, "customers", [(1, None, 2 * HOUR)])
        add(connection, "orders", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, customer.metadata).run_once()
    report.raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, order) == set()


# Many rows


@sweeps
@pytest.mark.parametrize("ttl", [None, HOUR])
def test_rows_of_one_instant_are_deleted_in_batches_too(
    engine: Engine, made: Any, sweep: str, ttl: int | None
) -> None:
    model = made(cart(HOUR if ttl is None else -1, sweep))
    with engine.begin() as connection:
        add_at_once(connection, "carts", 2_503, ttl)
    events: list[Progress] = []
    report = Sweeper(engine, model, batch_size=100, on_progress=events.append).run_once()
    assert report.deleted == 2_503
    assert len(events) > 2
    assert all(event.deleted <= event.batch_size for event in events)
    assert sum(event.deleted for event in events) == 2_503


@sweeps
@pytest.mark.parametrize("at_once", [True, False])
def test_max_rows_is_obeyed_to_the_row(engine: Engine, made: Any, sweep: str, at_once: Any) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        if at_once:
            add_at_once(connection, "carts", 250)
        else:
            add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(250)])
    sweeper = Sweeper(engine, model, max_rows=120, batch_size=50)
    first = sweeper.run_once()
    assert (first.deleted, first.limited) == (120, True)
    second, third = sweeper.run_once(), sweeper.run_once()
    assert (second.deleted, second.limited) == (120, True)
    assert (third.deleted, third.limited) == (10, False)


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("ttl", [None, HOUR])
def test_a_hundred_thousand_rows_are_swept(engine: Engine, made: Any, ttl: int | None) -> None:
    model = made(cart(HOUR))
    with engine.begin() as connection:
        now = connection.scalar(text(f"SELECT {clock_of(engine.dialect).now}"))
        connection.execute(
            text(
                "INSERT INTO carts (id, ttl, _ts) WITH RECURSIVE n(i) AS "
                "(SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100000) "
                "SELECT i, :ttl, :began + i / 3 FROM n"
            ),
            {"ttl": ttl, "began": now - 3 * HOUR * 1_000},
        )
        add(connection, "carts", [(0, ttl, 60)])
    report = Sweeper(engine, model).run_once()
    assert report.deleted == 100_000
    with engine.connect() as connection:
        assert left(connection, model) == {0}


@sweeps
async def test_rows_of_one_instant_are_deleted_in_batches_asynchronously(
    async_engine: AsyncEngine, sweep: str
) -> None:
    model = cart(HOUR, sweep)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add_at_once, "carts", 203)
    report = await AsyncSweeper(async_engine, model, max_rows=120, batch_size=50).run_once()
    assert report.deleted == 120
    report = await AsyncSweeper(async_engine, model).run_once()
    assert report.deleted == 83


# Others at work


@servers
@pytest.mark.parametrize("renewal", ["_ts = {now}", "ttl = -1", "ttl = 100000"])
@sweeps
def test_a_row_renewed_between_the_read_and_the_delete_survives(
    engine: Engine, made: Any, sweep: str, renewal: str
) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(20)])
    renewed: list[str] = []

    def renew(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE") and not renewed:
            renewed.append(statement)
            values = renewal.format(now=clock_of(engine.dialect).stamp)
            with engine.begin() as other:
                other.execute(text(f"UPDATE carts SET {values} WHERE id IN (3, 7)"))  # noqa: S608

    event.listen(engine, "before_cursor_execute", renew)
    report = Sweeper(engine, model).run_once()
    assert renewed
    assert report.deleted == 18
    with engine.connect() as connection:
        assert left(connection, model) == {3, 7}


@servers
@sweeps
@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("batch_size", [7, 1_000])
def test_a_row_that_somebody_holds_is_skipped_and_told(
    engine: Engine,
    made: Any,
    sweep: str,
    at_once: Any,
    batch_size: int,
) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        if at_once:
            add_at_once(connection, "carts", 20)
        else:
            add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(20)])
    sweeper = Sweeper(engine, model, batch_size=batch_size)
    with engine.connect() as holder:
        # It never lets go while the sweep is under way: a sweep that waited would never end.
        holder.execute(text("SELECT id FROM carts WHERE id IN (3, 7) FOR UPDATE"))
        report = sweeper.run_once()
        report.raise_for_failures()
        assert (report.deleted, report.skipped) == (18, 2)
        if sweep == "index":
            assert report.targets[0].oldest_after == pytest.approx(HOUR, abs=60)
    assert sweeper.run_once().deleted == 2


@servers
@sweeps
async def test_a_row_that_somebody_holds_is_skipped_asynchronously(
    async_engine: AsyncEngine, sweep: str
) -> None:
    model = cart(HOUR, sweep)
    rows = [(number, None, 2 * HOUR + number) for number in range(20)]
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", rows)
    async with async_engine.connect() as holder:
        await holder.execute(text("SELECT id FROM carts WHERE id IN (3, 7) FOR UPDATE"))
        report = await AsyncSweeper(async_engine, model).run_once()
    report.raise_for_failures()
    assert (report.deleted, report.skipped) == (18, 2)


@pytest.mark.databases("postgres")
def test_a_locked_table_fails_and_no_other(
    engine: Engine, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    carts, sessions = made(cart()), made(web_session(HOUR))
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    with engine.connect() as holder:
        holder.execute(text("LOCK TABLE carts IN ACCESS EXCLUSIVE MODE"))
        report = Sweeper(engine, [carts, sessions]).run_once()
    (failed,) = report.failed
    assert failed.table == "carts"
    assert isinstance(failed.error, TransientStoreError)
    assert "lock timeout" in str(report)


@sweeps
def test_two_sweepers_share_the_work(engine: Engine, made: Any, sweep: str) -> None:
    model = made(cart(HOUR, sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(2_000)])
    reports: list[SweepReport] = []

    def work() -> None:
        reports.append(Sweeper(engine, model, batch_size=100).run_once())

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for report in reports:
        report.raise_for_failures()
    assert sum(report.deleted for report in reports) == 2_000
    with engine.connect() as connection:
        assert left(connection, model) == set()


def test_an_interrupted_batch_is_rolled_back(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(30)])
    batches: list[str] = []

    def interrupt(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE") and "_ts" in statement:
            batches.append(statement)
            if len(batches) == 2:
                raise KeyboardInterrupt

    event.listen(engine, "after_cursor_execute", interrupt)
    with pytest.raises(KeyboardInterrupt):
        Sweeper(engine, model, batch_size=10).run_once()
    with engine.connect() as connection:
        assert len(left(connection, model)) == 20


async def test_a_cancelled_sweep_gives_its_connection_back(async_engine: AsyncEngine) -> None:
    model = cart()
    rows = [(number, None, 2 * HOUR + number) for number in range(30)]
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", rows)
    sweeper = AsyncSweeper(async_engine, model, batch_size=10, on_progress=lambda _: task.cancel())
    task = asyncio.create_task(sweeper.run_once())
    with pytest.raises(asyncio.CancelledError):
        await task
    async with async_engine.connect() as connection:
        assert len(await connection.run_sync(left, model)) == 20
    report = await AsyncSweeper(async_engine, model).run_once()
    assert report.deleted == 20


# Not on SQLite: aiosqlite's thread may go on after the task was cancelled, and hold its lock.
@servers
@pytest.mark.parametrize("word", ["SELECT", "DELETE"])
async def test_a_sweep_cancelled_in_the_middle_of_a_batch_leaves_it_undone(
    async_engine: AsyncEngine, word: str
) -> None:
    model = cart()
    rows = [(number, None, 2 * HOUR + number) for number in range(30)]
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", rows)
    tasks: list[asyncio.Task[SweepReport]] = []

    def cancel(_c: Any, _cursor: Any, statement: str, *_: Any) -> None:
        if tasks and "carts" in statement and statement.startswith(word):
            tasks.pop().cancel()

    event.listen(async_engine.sync_engine, "before_cursor_execute", cancel)
    task = asyncio.create_task(AsyncSweeper(async_engine, model, batch_size=10).run_once())
    tasks.append(task)
    with pytest.raises(asyncio.CancelledError):
        await task
    report = await AsyncSweeper(async_engine, model).run_once()
    assert report.deleted == 30


@servers
def test_a_lost_connection_is_replaced(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(300)])
    broken: list[Progress] = []

    def break_connections(progress: Progress) -> None:
        if broken:
            return
        broken.append(progress)
        other = create_engine(engine.url, isolation_level="AUTOCOMMIT")
        with other.connect() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(
                    text(
                        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                        "WHERE datname = current_database() AND pid <> pg_backend_pid()"
                    )
                )
            else:
                found = connection.execute(
                    text(
                        "SELECT id FROM information_schema.processlist "
                        "WHERE db = DATABASE() AND id <> CONNECTION_ID()"
                    )
                )
                for (thread,) in found.all():
                    connection.execute(text(f"KILL CONNECTION {thread}"))
        other.dispose()

    report = Sweeper(engine, model, batch_size=100, on_progress=break_connections).run_once()
    report.raise_for_failures()
    assert report.deleted == 300


@servers
def test_a_server_out_of_reach_fails_without_telling_the_password(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.0)
    assert backend.sync_url is not None
    url = create_engine(backend.sync_url).url.set(port=1, password="open sesame")
    report = Sweeper(create_engine(url), cart()).run_once()
    (failed,) = report.failed
    assert isinstance(failed.error, TransientStoreError)
    assert "sesame" not in str(report)


def test_a_missing_table_fails_and_no_other(engine: Engine, made: Any) -> None:
    sessions = made(web_session(HOUR))
    report = Sweeper(engine, [cart(), sessions]).run_once()
    (failed,) = report.failed
    assert failed.table == "carts"
    assert isinstance(failed.error, StoreError)
    assert not isinstance(failed.error, TransientStoreError)
    assert [each.table for each in report.targets if each.error is None] == ["web_sessions"]


# What a sweep leaves behind


@servers
def test_a_connection_goes_back_to_the_pool_as_it_came(engine: Engine, made: Any) -> None:
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    questions = {
        "postgresql": "SHOW transaction_isolation",
        "mysql": "SELECT CONCAT(@@tx_isolation, @@innodb_lock_wait_timeout)",
    }
    question = text(questions[engine.dialect.name])
    with engine.connect() as connection:
        if engine.dialect.name == "mysql":
            connection.execute(text("SET SESSION innodb_lock_wait_timeout = 7"))
        before = connection.scalar(question)
    Sweeper(engine, model).run_once()
    assert engine.pool.checkedin() == 1  # type: ignore[attr-defined]
    with engine.connect() as connection:
        assert connection.scalar(question) == before


@servers
@pytest.mark.parametrize("isolation", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_the_isolation_of_the_engine_does_not_matter(backend: Backend, isolation: str) -> None:
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url, isolation_level=isolation)
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR + number) for number in range(20)])
    with engine.connect() as holder:
        holder.execution_options(isolation_level="READ COMMITTED")
        holder.execute(text("SELECT id FROM carts WHERE id = 3 FOR UPDATE"))
        report = Sweeper(engine, model).run_once()
    assert (report.deleted, report.skipped) == (19, 1)
    engine.dispose()


# Tables of all kinds


@pytest.mark.parametrize("own", [None, HOUR])
def test_composite_keys_are_walked(engine: Engine, made: Any, own: int | None) -> None:
    class Base(DeclarativeBase):
        pass

    class Reading(TTLMixin, Base):
        __tablename__ = "Sensor Readings"
        __table_args__ = {"sqlite_with_rowid": False}
        __ttl__ = HOUR
        __ttl_sweep__ = "scan"

        site: Mapped[str] = mapped_column(String(20), primary_key=True)
        order: Mapped[int] = mapped_column("order", primary_key=True, autoincrement=False)

    made(Reading)
    keys = [(site, number) for site in ("a", "b", "c") for number in range(9)]
    with Session(engine) as session:
        session.add_all([Reading(site=site, order=number, ttl=own) for site, number in keys])
        session.commit()
        quote = engine.dialect.identifier_preparer.quote
        clock = clock_of(engine.dialect)
        session.execute(
            text(
                f"UPDATE {quote('Sensor Readings')} SET _ts = _ts - 7200 * {clock.second} "  # noqa: S608
                f"WHERE {quote('order')} <> 4"
            )
        )
        session.commit()
    report = Sweeper(engine, Reading, batch_size=4).run_once()
    assert report.deleted == 24
    with engine.connect() as connection:
        rows = connection.execute(
            select(Reading.site, Reading.order).options(include_expired())
        ).all()
    assert set(map(tuple, rows)) == {(site, 4) for site in ("a", "b", "c")}


@pytest.mark.databases("postgres")
@sweeps
def test_partitions_are_swept_with_their_table(engine: Engine, sweep: str) -> None:
    class Base(DeclarativeBase):
        pass

    class Event(TTLMixin, Base):
        __tablename__ = "events"
        __table_args__ = {"postgresql_partition_by": "LIST (region)"}
        __ttl__ = HOUR
        __ttl_sweep__ = sweep

        region: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
        id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    with engine.begin() as connection:
        Base.metadata.create_all(connection)
        for region in (0, 1):
            connection.execute(
                text(f"CREATE TABLE e{region} PARTITION OF events FOR VALUES IN ({region})")
            )
        connection.execute(
            text(
                "INSERT INTO events (region, id, _ts) "
                "SELECT i % 2, i, now() - (7200 + i) * interval '1 second' "
                "FROM generate_series(0, 99) i"
            )
        )
    with engine.connect() as holder:
        holder.execute(text("SELECT id FROM events WHERE id IN (3, 4) FOR UPDATE"))
        report = Sweeper(engine, Event, batch_size=30).run_once()
        report.raise_for_failures()
        assert (report.deleted, report.skipped) == (98, 2)
    assert Sweeper(engine, Event).run_once().deleted == 2


@pytest.mark.databases("postgres")
@sweeps
def test_a_translated_schema_is_swept(engine: Engine, sweep: str) -> None:
    model = cart(HOUR, sweep)
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "Tenant 1"'))
    tenant = engine.execution_options(schema_translate_map={None: "Tenant 1"})
    model.metadata.create_all(tenant)
    with tenant.begin() as connection:
        add(connection, '"Tenant 1".carts', [(1, None, 2 * HOUR), (2, None, 60)])
    assert Sweeper(tenant, model).run_once().deleted == 1


@pytest.mark.databases("sqlite")
@sweeps
def test_a_table_without_rows_is_swept(engine: Engine, made: Any, sweep: str) -> None:
    report = Sweeper(engine, made(cart(HOUR, sweep))).run_once()
    report.raise_for_failures()
    assert report.deleted == 0


@pytest.mark.databases("postgres")
def test_pages_without_expired_rows_are_passed(engine: Engine, made: Any) -> None:
    model = made(cart(HOUR, "scan"))
    with engine.begin() as connection:
        connection.execute(
            text("INSERT INTO carts (id, _ts) SELECT i, now() FROM generate_series(1, 60000) i")
        )
        connection.execute(
            text("INSERT INTO carts (id, _ts) VALUES (0, now() - interval '2 hours')")
        )
        pages = connection.scalar(text("SELECT pg_relation_size('carts') / 8192"))
    assert pages > 256
    report = Sweeper(engine, model).run_once()
    assert report.deleted == 1
    assert report.targets[0].batches == 2


# What can be swept


@pytest.mark.databases("sqlite")
def test_everything_that_names_tables_can_be_swept(engine: Engine, made: Any) -> None:
    model = made(cart())
    (_, base) = model.__bases__
    for targets in (
        model,
        model.__table__,
        base,
        model.metadata,
        model.registry,
        [model],
        (model.__table__, model),
        {base},
    ):
        report = Sweeper(engine, targets).run_once()
        assert [each.table for each in report.targets] == ["carts"]


@pytest.mark.databases("sqlite")
def test_subclasses_name_the_table_of_their_base(engine: Engine, made: Any) -> None:
    animal, _, puppy = zoo(None)
    made(animal)
    assert [each.table for each in Sweeper(engine, puppy).run_once().targets] == ["animals"]


@pytest.mark.databases("sqlite")
def test_models_that_are_declared_later_are_swept_too(engine: Engine) -> None:
    mapping = registry()
    sweeper = Sweeper(engine, mapping)
    assert str(sweeper.run_once()) == "Swept nothing: no table has TTL switched on."

    @mapping.mapped
    class Late(TTLMixin):
        __tablename__ = "late"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True)

    mapping.metadata.create_all(engine)
    assert [each.table for each in sweeper.run_once().targets] == ["late"]


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize(
    ("targets", "message"),
    [
        (None, "None is nothing to sweep: give a declarative base"),
        ("carts", "'carts' is nothing to sweep"),
        ([42], "42 is nothing to sweep"),
        (Table("plain", MetaData(), Column("id", Integer)), "Table 'plain' has no TTL"),
    ],
)
def test_what_cannot_be_swept_is_refused_at_once(
    engine: Engine, targets: Any, message: str
) -> None:
    with pytest.raises(TTLConfigurationError, match=message):
        Sweeper(engine, targets)


@pytest.mark.databases("sqlite")
def test_a_model_without_ttl_is_refused_by_name(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Plain(Base):
        __tablename__ = "plain"

        id: Mapped[int] = mapped_column(primary_key=True)

    with pytest.raises(TTLConfigurationError, match=r"^Plain has no TTL"):
        Sweeper(engine, [Plain])


@pytest.mark.databases("sqlite")
def test_a_session_is_no_engine(engine: Engine) -> None:
    with (
        Session(engine) as session,
        pytest.raises(TTLConfigurationError, match=r"needs an Engine .* not Session"),
    ):
        Sweeper(session, cart())


@pytest.mark.databases("sqlite")
async def test_an_asynchronous_engine_wants_the_asynchronous_sweeper(
    async_engine: AsyncEngine,
) -> None:
    with pytest.raises(TTLConfigurationError, match=r"with AsyncEngine: use AsyncSweeper\."):
        Sweeper(async_engine, cart())


@pytest.mark.databases("sqlite")
def test_an_engine_wants_the_synchronous_sweeper(engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match=r"with Engine: use Sweeper\."):
        AsyncSweeper(engine, cart())


@pytest.mark.databases("sqlite")
def test_rows_of_other_tables_are_left_alone(engine: Engine) -> None:
    metadata = MetaData()
    plain = Table("plain", metadata, Column("id", Integer, primary_key=True))
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(insert(plain), [{"id": 1}])
    Sweeper(engine, metadata).run_once()
    with engine.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(plain)) == 1

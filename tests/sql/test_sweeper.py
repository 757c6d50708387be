"""What a sweep deletes, of every kind of row and however many, on every database."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    String,
    inspect,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from tests.sql.models import web_session
from ttl_odm import TTL
from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import (
    AsyncSweeper,
    Progress,
    Sweeper,
)

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine


from tests.sql.sweeping import HOUR, add, add_at_once, cart, left, sweeps, zoo

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
    carts.__ttl__ = TTL(lambda: 0)
    report = Sweeper(engine, [carts, sessions]).run_once()
    assert [each.table for each in report.failed] == ["carts"]
    assert "Cart.__ttl__: TTL.default() = 0 is not a ttl" in str(report)
    assert len(report.targets) == 2


def without_checks(connection: Connection) -> None:
    """Let a connection store values that the CHECK on ``ttl`` keeps out."""
    if connection.dialect.name == "sqlite":
        connection.execute(text("PRAGMA ignore_check_constraints = ON"))
    elif getattr(connection.dialect, "is_mariadb", False):
        connection.execute(text("SET SESSION check_constraint_checks = OFF"))
    else:
        (check,) = inspect(connection).get_check_constraints("carts")
        connection.execute(text(f"ALTER TABLE carts DROP CONSTRAINT {check['name']}"))


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


# Many rows


@pytest.mark.slow
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


@pytest.mark.slow
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
        add(connection, "carts", [(0, ttl, 0)])
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

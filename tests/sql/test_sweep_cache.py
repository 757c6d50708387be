"""A sweeper made for each run compiles nothing again: equal sweepers send equal statements.

The engine's cache holds 500 statements, and they are meant to be the application's.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Integer,
    String,
    Table,
    insert,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm import ExpireAfter, ExpireAt, Follows, Stored
from ttl_odm.forecast.change import preview_policy
from ttl_odm.forecast.sql import measure
from ttl_odm.sqlalchemy import Archive, TTLMixin, policy_changes, set_policy, stored_policies
from ttl_odm.sqlalchemy.purge.statements import padded
from ttl_odm.sweeper import AsyncSweeper, Sweeper
from ttl_odm.sweeper.snapshot import look

if TYPE_CHECKING:
    from collections.abc import Callable

    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

LONG_AGO = datetime(2020, 1, 1)  # noqa: DTZ001 (a naive column)


class Base(DeclarativeBase):
    pass


archive = Table(
    "cached_archive",
    Base.metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("at", DateTime),
)


class Archived(TTLMixin, Base):
    __tablename__ = "cached_archived"
    __ttl__ = HOUR
    __ttl_archive__ = Archive(archive, "at")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Scanned(TTLMixin, Base):
    __tablename__ = "cached_scanned"
    __ttl__ = HOUR
    __ttl_sweep__ = "scan"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Loaded(TTLMixin, Base):
    __tablename__ = "cached_loaded"
    __ttl__ = HOUR
    __ttl_purge__ = "orm"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Kept(TTLMixin, Base):
    """Half of its rows are kept by others that refer to them."""

    __tablename__ = "cached_kept"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Keeper(Base):
    __tablename__ = "cached_keepers"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    kept_id: Mapped[int] = mapped_column(ForeignKey("cached_kept.id"), index=True)


class Stamped(TTLMixin, Base):
    __tablename__ = "cached_stored"
    __ttl__ = Stored(HOUR)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Tenant(TTLMixin, Base):
    __tablename__ = "cached_tenants"
    __ttl__ = Stored(HOUR, by="tenant")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    tenant: Mapped[str] = mapped_column(String(20), server_default="acme")


class Ended(Base):
    __tablename__ = "cached_ended"
    __ttl__ = ExpireAt("at")
    __ttl_sweep__ = "index"

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime]


class Order(TTLMixin, Base):
    __tablename__ = "cached_orders"
    __ttl__ = HOUR

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Line(Base):
    """One with a key of two columns."""

    __tablename__ = "cached_lines"
    __ttl__ = Follows("order_id")

    order_id: Mapped[int] = mapped_column(ForeignKey("cached_orders.id"), primary_key=True)
    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


class Part(Base):
    __tablename__ = "cached_parts"
    __ttl__ = Follows(Line, on={"order_id": "order_id", "line_id": "id"})
    __table_args__ = (
        ForeignKeyConstraint(["order_id", "line_id"], ["cached_lines.order_id", "cached_lines.id"]),
    )

    order_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    line_id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)


def cached(engine: Engine) -> list[str]:
    """The SQL of all statements in the engine's cache."""
    cache: Any = engine._compiled_cache
    return [str(compiled) for compiled in cache.values()]


def repeated(engine: Engine) -> int:
    """How many are there again, but for their numbers.

    Which others there are depends on who was busy: a batch that meets a lock has its own.
    """
    statements = cached(engine)
    return len(statements) - len({re.sub(r"\d+", "1", sql) for sql in statements})


def growth(
    engine: Engine,
    work: Callable[[int], object],
    runs: int = 6,
    warm: int = 2,
    measure: Callable[[Engine], int] = repeated,
) -> int:
    """How much a measure of the cache grows by some runs of some work, after the first ones."""
    for run in range(warm):
        work(run)
    before = measure(engine)
    for run in range(warm, runs):
        work(run)
    return measure(engine) - before


def lengths(part: str) -> Callable[[Engine], int]:
    """A measure: in how many different numbers a part occurs in a statement."""
    return lambda engine: len({sql.count(part) for sql in cached(engine)})


def expired(connection: Connection, model: Any, keys: range) -> None:
    add(connection, model.__tablename__, [(key, None, 2 * HOUR) for key in keys])


@pytest.mark.parametrize(
    ("length", "full"),
    [(0, 0), (1, 1), (3, 4), (5, 8), (511, 512), (512, 512), (513, 1_024), (1_025, 1_536)],
)
def test_a_statement_has_few_numbers_of_alternatives(length: int, full: int) -> None:
    alternatives = list(range(length))
    repeated = padded(alternatives)
    assert repeated[:length] == alternatives
    assert repeated[length:] == alternatives[-1:] * (full - length)


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_fifty_sweepers_cache_the_statements_of_one(engine: Engine) -> None:
    model = cart()
    model.metadata.create_all(engine)

    def sweep(run: int) -> None:
        with engine.begin() as connection:
            expired(connection, model, range(run, run + 1))
        sweeper = Sweeper(engine, model)
        assert sweeper.run_once().deleted == 1
        assert not sweeper.status().paused

    assert growth(engine, sweep, 50, measure=lambda engine: len(cached(engine))) == 0


async def test_so_do_asynchronous_ones(async_engine: AsyncEngine) -> None:
    model = cart()
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    cache: Any = async_engine.sync_engine._compiled_cache
    sizes = []
    for _ in range(5):
        await AsyncSweeper(async_engine, model).run_once()
        sizes.append(len(cache))
    assert sizes[-1] == sizes[1]


@pytest.mark.slow
@pytest.mark.every_server
@pytest.mark.parametrize("model", [Archived, Scanned, Loaded, Stamped, Tenant])
def test_sweeps_with_rows_to_delete_add_none(engine: Engine, model: Any) -> None:
    Base.metadata.create_all(engine)

    def sweep(run: int) -> None:
        with engine.begin() as connection:
            expired(connection, model, range(10 * run, 10 * run + 5))
        assert Sweeper(engine, model, batch_size=2).run_once().deleted == 5
        assert Sweeper(engine, model, dry_run=True, lease=False).run_once().due == 0

    assert growth(engine, sweep, warm=3) == 0


@pytest.mark.slow
@pytest.mark.every_server
def test_a_date_and_several_workers_add_none(engine: Engine) -> None:
    Base.metadata.create_all(engine)

    def sweep(run: int) -> None:
        rows = [{"id": 10 * run + number, "at": LONG_AGO} for number in range(5)]
        with engine.begin() as connection:
            connection.execute(insert(Ended.__table__), rows)
        workers = 1 if engine.dialect.name == "sqlite" else 2
        assert Sweeper(engine, Ended, batch_size=1, workers=workers).run_once().deleted == 5

    assert growth(engine, sweep, warm=3) == 0


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_ages_of_stored_defaults_add_none_to_divide_by(engine: Engine) -> None:
    """Workers divide the rows by ages that differ with each sweep."""
    Base.metadata.create_all(engine)

    def sweep(run: int) -> None:
        ages = [(100 * run + number, None, (2 + run) * HOUR + 60 * number) for number in range(40)]
        with engine.begin() as connection:
            add(connection, "cached_stored", ages)
        assert Sweeper(engine, Stamped, batch_size=5, workers=3).run_once().deleted == 40

    assert growth(engine, sweep, warm=3) == 0


@pytest.mark.slow
@pytest.mark.every_server
def test_tenants_with_defaults_of_their_own_add_none(engine: Engine) -> None:
    """However many of them have expired rows."""
    Base.metadata.create_all(engine)
    with engine.connect() as connection:
        for number in range(8):
            scope = f"tenant {number}"
            set_policy(connection, Tenant, 60 + number, scope=scope, by="ann")

    def sweep(run: int) -> None:
        tenants = [8, 4, 3, 2, 1, 5, 6, 7][run]
        with engine.begin() as connection:
            expired(connection, Tenant, range(tenants))
            connection.execute(
                text("UPDATE cached_tenants SET tenant = :tenant WHERE id = :id"),
                [{"id": number, "tenant": f"tenant {number}"} for number in range(tenants)],
            )
        assert Sweeper(engine, Tenant).run_once().deleted == tenants

    of_each = lengths("cached_tenants.tenant IN")
    assert growth(engine, sweep, runs=8, warm=5, measure=of_each) == 0


@pytest.mark.slow
@pytest.mark.every_server
def test_rows_that_must_stay_add_none(engine: Engine) -> None:
    Base.metadata.create_all(engine)

    def sweep(run: int) -> None:
        keys = range(10 * run, 10 * run + 6)
        with engine.begin() as connection:
            expired(connection, Kept, keys)
            rows = [{"id": key, "kept_id": key} for key in keys[::2]]
            connection.execute(insert(Keeper), rows)
        Sweeper(engine, Kept, batch_size=4).run_once()

    assert growth(engine, sweep, warm=3) == 0


@pytest.mark.slow
@pytest.mark.every_server
def test_numbers_of_followers_add_none(engine: Engine) -> None:
    """A key of several columns makes a condition of many parts: there are few lengths of it."""
    Base.metadata.create_all(engine)

    def sweep(run: int) -> None:
        lines = [1, 2, 3, 5, 9, 17, 10, 11, 12, 13, 14, 7, 6][run]
        with engine.begin() as connection:
            expired(connection, Order, range(1))
            rows = [{"id": number} for number in range(lines)]  # raw: their order has expired
            for into in ("cached_lines (order_id, id)", "cached_parts (order_id, line_id)"):
                connection.execute(text(f"INSERT INTO {into} VALUES (0, :id)"), rows)  # noqa: S608
        report = Sweeper(engine, [Order, Line, Part]).run_once()
        assert report.targets[0].referring == {"cached_lines": lines, "cached_parts": lines}

    of_each = lengths("cached_parts.line_id = ")
    assert growth(engine, sweep, runs=13, warm=6, measure=of_each) == 0


@pytest.mark.slow
@pytest.mark.every_server
def test_counts_and_forecasts_add_none(engine: Engine) -> None:
    Base.metadata.create_all(engine)

    def ask(run: int) -> None:
        status = look({"cached_stored": None, "cached_orders": "Order"}, "ttl_odm", None)
        Sweeper(engine, Base).carry_out(status)
        with engine.connect() as connection:
            preview_policy(connection, Stamped, 100 + run)
            preview_policy(connection, Tenant, 100 + run, scope=f"tenant {run}")
            stored_policies(connection, Tenant)
            policy_changes(connection, Tenant)
            measure(connection, Order.__table__, Stored(100 + run))  # type: ignore[arg-type]
        with engine.connect() as connection:
            measure(connection, "cached_ended", ExpireAfter("at", 100 + run))

    assert growth(engine, ask) == 0

"""TIMESTAMP columns of MariaDB and MySQL in sessions whose time zone repeats an hour."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Column,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    String,
    Table,
    UniqueConstraint,
    insert,
    update,
)
from sqlalchemy.dialects.mysql import TIMESTAMP
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from tests.sql.zones import AUTUMN, HOUR, SPRING, around, berlin, drop_zone, in_sql, make_zone
from ttl_odm import ExpireAfter, ExpireAt, Follows
from ttl_odm.sqlalchemy import Archive, TTLMixin, enable
from ttl_odm.sweeper import AsyncSweeper, Hook, Purged, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

pytestmark = pytest.mark.databases("mariadb", "mysql")

ROWS = 120
BATCH = 16
KINDS = [("id", "index"), ("id", "scan"), ("at", "index"), ("id, at", "scan")]
"""The columns of the primary key, and how expired rows are found."""


def events(key: str, policy: Any = None, sweep: Any = "index", **options: Any) -> Table:
    """A table that expires by a TIMESTAMP."""
    table = Table("events", MetaData())
    if key != "at":
        table.append_column(Column("id", Integer, primary_key=True, autoincrement=False))
    is_key = "at" in key
    table.append_column(Column("at", TIMESTAMP(fsp=6), primary_key=is_key, index=not is_key))
    table.append_column(Column("name", String(20)))
    enable(table, policy or ExpireAt("at"), sweep=sweep, **options)
    return table


def write(connection: Connection, instants: list[datetime], *, same: int = 1) -> None:
    """Write a row for each instant, from a session in UTC; so many have the same id."""
    zone = connection.exec_driver_sql("SELECT @@time_zone").scalar_one()
    connection.exec_driver_sql("SET time_zone = '+00:00'")
    has_id = connection.exec_driver_sql("SHOW COLUMNS FROM events LIKE 'id'").all()
    rows = ", ".join(
        f"({f'{number // same}, ' if has_id else ''}{in_sql(at)}, 'n{number}')"
        for number, at in enumerate(instants)
    )
    connection.exec_driver_sql(f"INSERT INTO events VALUES {rows}")  # noqa: S608
    connection.exec_driver_sql(f"SET time_zone = '{zone}'")


def zone_of(engine: Engine) -> Any:
    with engine.connect() as connection:
        return connection.exec_driver_sql("SELECT @@time_zone").scalar_one()


def names(connection: Connection, table: str = "events") -> set[str]:
    return set(connection.exec_driver_sql(f"SELECT name FROM {table}").scalars())  # noqa: S608


ALL = {f"n{number}" for number in range(ROWS)}


@pytest.mark.parametrize("change", [AUTUMN, SPRING])
@pytest.mark.parametrize(("key", "sweep"), KINDS)
def test_a_sweep_deletes_all_rows_around_a_change_of_clocks(
    engine: Engine, key: str, sweep: str, change: datetime
) -> None:
    table = events(key, sweep=sweep)
    table.create(engine)
    with berlin(engine) as zone:
        with engine.begin() as connection:
            write(connection, around(change, ROWS), same=ROWS if "at" in key else 1)
        report = Sweeper(engine, table, batch_size=BATCH, lease=False).run_once()
        report.raise_for_failures()
        with engine.connect() as connection:
            assert names(connection) == set()
        assert report.deleted == ROWS
        assert zone_of(engine) == zone


@pytest.mark.parametrize(("key", "sweep"), KINDS)
async def test_an_asynchronous_sweep_deletes_them_too(
    async_engine: AsyncEngine, key: str, sweep: str
) -> None:
    table = events(key, sweep=sweep)
    async with async_engine.begin() as connection:
        await connection.run_sync(table.create)
        await connection.run_sync(write, around(AUTUMN, ROWS), same=ROWS if "at" in key else 1)
        zone = await connection.run_sync(make_zone)
    async with async_engine.connect() as connection:  # the pool's only one
        await connection.exec_driver_sql(f"SET time_zone = '{zone}'")
    report = await AsyncSweeper(async_engine, table, batch_size=BATCH, lease=False).run_once()
    report.raise_for_failures()
    async with async_engine.begin() as connection:
        now_in = await connection.exec_driver_sql("SELECT @@time_zone")
        assert now_in.scalar_one() == zone
        assert await connection.run_sync(names) == set()
        await connection.exec_driver_sql("SET time_zone = '+00:00'")
        await connection.run_sync(drop_zone, zone)
    assert report.deleted == ROWS


@pytest.mark.parametrize("key", ["id", "id, at"])
def test_a_row_that_shows_the_same_time_as_an_expired_one_stays(engine: Engine, key: str) -> None:
    with engine.connect() as connection:
        now = connection.exec_driver_sql("SELECT UNIX_TIMESTAMP()").scalar_one()
    # At this moment the rows before the change are expired ones.
    table = events(key, ExpireAfter("at", int(now - AUTUMN.timestamp())))
    table.create(engine)
    some = [number for number in range(ROWS) if abs(number - ROWS / 2) > ROWS / 6]
    instants = around(AUTUMN, ROWS)
    with berlin(engine):
        with engine.begin() as connection:
            write(
                connection, [instants[number] for number in some], same=ROWS if "at" in key else 1
            )
        for _ in range(2):
            sweeper = Sweeper(engine, table, batch_size=BATCH, lease=False)
            sweeper.run_once().raise_for_failures()
        with engine.connect() as connection:
            expired = sum(number < ROWS / 2 for number in some)
            assert names(connection) == {f"n{n}" for n in range(expired, len(some))}


def test_a_dry_run_counts_every_row_of_that_hour(engine: Engine) -> None:
    table = events("id, at")
    table.create(engine)
    with berlin(engine):
        with engine.begin() as connection:
            write(connection, around(AUTUMN, ROWS))
        report = Sweeper(engine, table, dry_run=True, lease=False).run_once()
        assert report.due == ROWS
        with engine.connect() as connection:
            assert names(connection) == ALL


@pytest.mark.parametrize("key", ["id", "id, at"])
def test_an_archive_gets_each_row_with_its_instant(engine: Engine, key: str) -> None:
    table = events(key)
    columns = (Column(column.name, column.type) for column in table.c)
    old = Table("old_events", table.metadata, Column("number", Integer, primary_key=True), *columns)
    enable(table, ExpireAt("at"), archive=Archive(old))
    table.metadata.create_all(engine)
    instants = around(AUTUMN, ROWS)
    with berlin(engine):
        with engine.begin() as connection:
            write(connection, instants)
        report = Sweeper(engine, table, batch_size=BATCH, lease=False).run_once()
        report.raise_for_failures()
        assert report.deleted == ROWS
        with engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT name, UNIX_TIMESTAMP(at) FROM old_events")
            assert {name: float(at) for name, at in rows} == {
                f"n{number}": at.timestamp() for number, at in enumerate(instants)
            }


def test_a_hook_gets_each_row_in_utc(engine: Engine) -> None:
    purged: list[Purged] = []
    table = events("id, at", on_purged=Hook(purged.append, rows=True))
    table.create(engine)
    instants = around(AUTUMN, ROWS)
    with berlin(engine):
        with engine.begin() as connection:
            write(connection, instants)
        Sweeper(engine, table, batch_size=BATCH, lease=False).run_once().raise_for_failures()
    rows = {row["name"]: row["at"] for batch in purged for row in batch.rows or ()}
    assert rows == {f"n{n}": at.replace(tzinfo=None) for n, at in enumerate(instants)}


def test_several_workers_delete_every_row_of_that_hour(engine: Engine) -> None:
    table = events("id")
    table.create(engine)
    with berlin(engine):
        with engine.begin() as connection:
            write(connection, around(AUTUMN, ROWS))
        sweeper = Sweeper(engine, table, batch_size=BATCH, workers=2, lease=False)
        report = sweeper.run_once()
        report.raise_for_failures()
        assert report.deleted == ROWS


class Base(DeclarativeBase):
    pass


class Visit(Base):
    __tablename__ = "events"
    __ttl__ = ExpireAt("at")

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(TIMESTAMP(fsp=6), primary_key=True)
    name: Mapped[str] = mapped_column(String(20))


class Note(Base):
    __tablename__ = "notes"
    __ttl__ = Follows("visit")
    __table_args__ = (ForeignKeyConstraint(["visit_id", "visit_at"], ["events.id", "events.at"]),)

    id: Mapped[int] = mapped_column(primary_key=True)
    visit_id: Mapped[int]
    visit_at: Mapped[datetime] = mapped_column(TIMESTAMP(fsp=6))
    visit: Mapped[Visit] = relationship()


@pytest.mark.slow
def test_followers_of_rows_of_that_hour_go_with_them(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    with berlin(engine) as zone:
        with engine.begin() as connection:
            write(connection, around(AUTUMN, ROWS), same=ROWS)
            connection.exec_driver_sql("SET time_zone = '+00:00'")
            copied = "SELECT ROW_NUMBER() OVER (ORDER BY at), id, at FROM events"
            connection.exec_driver_sql(f"INSERT INTO notes {copied}")
            connection.exec_driver_sql(f"SET time_zone = '{zone}'")
        report = Sweeper(engine, Visit, batch_size=BATCH, lease=False).run_once()
        report.raise_for_failures()
        assert report.deleted == 2 * ROWS
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM notes").scalar() == 0


@pytest.mark.slow
def test_the_orm_deletes_every_row_of_that_hour(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Visit, "__ttl_purge__", "orm", raising=False)
    Base.metadata.create_all(engine)
    with berlin(engine):
        with engine.begin() as connection:
            write(connection, around(AUTUMN, ROWS), same=ROWS)
        report = Sweeper(engine, Visit, batch_size=BATCH, lease=False).run_once()
        report.raise_for_failures()
        assert report.deleted == ROWS


def test_tables_without_a_timestamp_are_swept_in_the_zone_of_the_session(engine: Engine) -> None:
    zones: list[Any] = []

    def note(purged: Purged) -> None:
        zones.append(purged.transaction.exec_driver_sql("SELECT @@time_zone").scalar_one())

    table = Table("plain", MetaData(), Column("id", Integer, primary_key=True))
    table.append_column(Column("at", Integer))
    enable(table, ExpireAt("at", unit="s"), on_purged=note)
    table.create(engine)
    with berlin(engine) as zone:
        with engine.begin() as connection:
            connection.exec_driver_sql("INSERT INTO plain VALUES (1, 1)")
        Sweeper(engine, table, lease=False).run_once().raise_for_failures()
    assert zones == [zone]


@pytest.mark.every_driver
def test_the_keys_of_expired_rows_of_that_hour_are_free(engine: Engine) -> None:
    table = events("id, at")
    table.append_constraint(UniqueConstraint("name"))
    table.create(engine)
    never = datetime(2037, 1, 1)  # noqa: DTZ001 (what a TIMESTAMP is bound with)
    with berlin(engine) as zone:
        with engine.begin() as connection:
            write(connection, around(AUTUMN, 20), same=20)
        with engine.begin() as connection:
            for number in range(20):
                values = {"id": 9, "at": never + timedelta(seconds=number), "name": f"n{number}"}
                connection.execute(insert(table), values)
            rows = connection.exec_driver_sql("SELECT count(*) FROM events WHERE id = 9")
            assert rows.scalar() == 20
            assert connection.exec_driver_sql("SELECT @@time_zone").scalar() == zone


@pytest.mark.every_driver
async def test_they_are_free_for_an_asynchronous_write(async_engine: AsyncEngine) -> None:
    table = events("id, at")
    table.append_constraint(UniqueConstraint("name"))
    never = datetime(2037, 1, 1)  # noqa: DTZ001 (what a TIMESTAMP is bound with)
    async with async_engine.begin() as connection:
        await connection.run_sync(table.create)
        await connection.run_sync(write, around(AUTUMN, 20), same=20)
        zone = await connection.run_sync(make_zone)
    async with async_engine.begin() as connection:
        await connection.exec_driver_sql(f"SET time_zone = '{zone}'")
        for number in range(20):
            values = {"id": 9, "at": never + timedelta(seconds=number), "name": f"n{number}"}
            await connection.execute(insert(table), values)
        rows = await connection.exec_driver_sql("SELECT count(*), MIN(id) FROM events")
        assert rows.one() == (20, 9)
        assert (await connection.exec_driver_sql("SELECT @@time_zone")).scalar() == zone
        await connection.exec_driver_sql("SET time_zone = '+00:00'")
    async with async_engine.begin() as connection:
        await connection.run_sync(drop_zone, zone)


def test_a_session_keeps_its_zone_where_an_expired_row_has_to_stay(engine: Engine) -> None:
    table = events("id, at")
    table.append_constraint(UniqueConstraint("name"))
    Table(
        "notes",
        table.metadata,
        Column("id", Integer, primary_key=True),
        Column("event_id", Integer),
        Column("event_at", TIMESTAMP(fsp=6)),
        ForeignKeyConstraint(["event_id", "event_at"], ["events.id", "events.at"]),
    )
    table.metadata.create_all(engine)
    never = datetime(2037, 1, 1)  # noqa: DTZ001 (what a TIMESTAMP is bound with)
    with berlin(engine) as zone:
        with engine.begin() as connection:
            write(connection, [AUTUMN])
            connection.exec_driver_sql("SET time_zone = '+00:00'")
            connection.exec_driver_sql("INSERT INTO notes SELECT 1, id, at FROM events")
            connection.exec_driver_sql(f"SET time_zone = '{zone}'")
        with engine.connect() as connection:
            with pytest.raises(IntegrityError):
                connection.execute(insert(table).values(id=9, at=never, name="n0"))
            assert connection.exec_driver_sql("SELECT @@time_zone").scalar() == zone


class Stays(DeclarativeBase):
    pass


class Stay(TTLMixin, Stays):
    __tablename__ = "stays"
    __ttl__ = 3600

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    at: Mapped[datetime] = mapped_column(TIMESTAMP(fsp=6), unique=True)


class Meal(Stays):
    __tablename__ = "meals"
    __ttl__ = Follows(Stay, on={"stay_at": "at"}, renews=True)

    id: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    stay_at: Mapped[datetime] = mapped_column(TIMESTAMP(fsp=6), index=True)
    name: Mapped[str] = mapped_column(String(20))


def write_stays(connection: Connection, *, last_modified: str) -> None:
    """Two stays an hour apart, which Berlin's clocks show as one time, and a meal of each."""
    zone = connection.exec_driver_sql("SELECT @@time_zone").scalar_one()
    connection.exec_driver_sql("SET time_zone = '+00:00'")
    for number, at in enumerate([AUTUMN - HOUR / 2, AUTUMN + HOUR / 2]):
        stay = f"({number}, {in_sql(at)}, {last_modified})"
        connection.exec_driver_sql(f"INSERT INTO stays (id, at, _ts) VALUES {stay}")  # noqa: S608
        meal = f"({number}, {in_sql(at)}, 'dinner')"
        connection.exec_driver_sql(f"INSERT INTO meals VALUES {meal}")  # noqa: S608
    connection.exec_driver_sql(f"SET time_zone = '{zone}'")


@pytest.mark.parametrize("number", [0, 1])
def test_a_write_renews_its_own_parent_of_that_hour(engine: Engine, number: int) -> None:
    Stays.metadata.create_all(engine)
    with berlin(engine) as zone:
        with engine.begin() as connection:
            write_stays(connection, last_modified="(UNIX_TIMESTAMP() - 600) * 1000000")
        with engine.begin() as connection:
            meal = update(Meal).where(Meal.id == number).values(name="supper")
            connection.execute(meal)
            assert connection.exec_driver_sql("SELECT @@time_zone").scalar() == zone
            old = "SELECT id FROM stays WHERE _ts < (UNIX_TIMESTAMP() - 300) * 1000000"
            assert connection.exec_driver_sql(old).scalars().all() == [1 - number]


def test_followers_by_other_columns_of_that_hour_go_with_their_parents(engine: Engine) -> None:
    Stays.metadata.create_all(engine)
    with berlin(engine):
        with engine.begin() as connection:
            write_stays(connection, last_modified="1")
        report = Sweeper(engine, Stay, lease=False).run_once()
        report.raise_for_failures()
        assert report.deleted == 4


@pytest.mark.every_driver
def test_their_parents_keys_are_free(engine: Engine) -> None:
    Stays.metadata.create_all(engine)
    with berlin(engine):
        with engine.begin() as connection:
            write_stays(connection, last_modified="1")
        never = datetime(2037, 1, 1)  # noqa: DTZ001 (what a TIMESTAMP is bound with)
        for number in range(2):
            with Session(engine) as session:
                session.add(Stay(id=number, at=never + timedelta(seconds=number)))
                session.commit()
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM meals").scalar() == 0

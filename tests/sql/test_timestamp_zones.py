"""MariaDB's and MySQL's TIMESTAMP in a session whose clocks show an hour twice."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import Column, Integer, MetaData, String, Table, UniqueConstraint, insert
from sqlalchemy.dialects.mysql import TIMESTAMP

from tests.sql.zones import HOUR, around, changed_clocks, shown
from ttl_odm import ExpireAt
from ttl_odm.sqlalchemy import Archive, enable
from ttl_odm.sweeper import AsyncSweeper, Hook, Purged, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

pytestmark = pytest.mark.databases("mariadb", "mysql")

ROWS = 300


def events(key: str, sweep: Any = "index") -> Table:
    """A table that expires by a TIMESTAMP, which may be its key, or part of it."""
    table = Table("events", MetaData())
    if key != "at":
        table.append_column(Column("id", Integer, primary_key=key != "at", autoincrement=False))
    table.append_column(
        Column("at", TIMESTAMP(fsp=6), primary_key="at" in key, index="at" not in key)
    )
    table.append_column(Column("name", String(20)))
    enable(table, ExpireAt("at"), sweep=sweep)
    return table


def write(engine: Engine, table: Table, instants: list[datetime]) -> None:
    """Write rows by a session in UTC."""
    with engine.begin() as connection:
        zone = connection.exec_driver_sql("SELECT @@time_zone").scalar()
        connection.exec_driver_sql("SET time_zone = '+00:00'")
        names = [column.name for column in table.c]
        for number, at in enumerate(instants):
            values = {"id": f"{number % 7}", "at": f"'{shown(at)}'", "name": f"'n{number}'"}
            if not table.c.at.primary_key:
                values["id"] = f"{number}"
            some = ", ".join(values[name] for name in names)
            connection.exec_driver_sql(f"INSERT INTO events VALUES ({some})")  # noqa: S608
        connection.exec_driver_sql(f"SET time_zone = '{zone}'")


@pytest.mark.parametrize("back", [True, False])
@pytest.mark.parametrize(
    ("key", "sweep"), [("id", "index"), ("id", "scan"), ("at", "index"), ("id, at", "scan")]
)
def test_all_rows_around_a_change_of_clocks_go(
    engine: Engine,
    key: str,
    sweep: str,
    back: bool,  # noqa: FBT001
) -> None:
    table = events(key, sweep)
    table.create(engine)
    with changed_clocks(engine, back=back) as change:
        write(engine, table, around(change, ROWS))
        report = Sweeper(engine, table, batch_size=32).run_once()
        report.raise_for_failures()
        assert report.deleted == ROWS
        with engine.connect() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM events").scalar() == 0
            zone = connection.exec_driver_sql("SELECT @@time_zone").scalar()
            assert str(zone).startswith("Ttl/Odm")


@pytest.mark.parametrize("key", ["id", "id, at"])
def test_rows_of_that_hour_stay_until_they_expire(engine: Engine, key: str) -> None:
    table = events(key)
    table.create(engine)
    with changed_clocks(engine, ago=0) as change:
        write(engine, table, around(change, ROWS, spread=HOUR))
        for _ in range(2):
            Sweeper(engine, table, batch_size=32).run_once().raise_for_failures()
        with engine.connect() as connection:
            expired = "UNIX_TIMESTAMP(at) <= UNIX_TIMESTAMP(UTC_TIMESTAMP()) - 7200"
            rows = connection.exec_driver_sql(f"SELECT SUM({expired}), COUNT(*) FROM events")  # noqa: S608
            due, stored = rows.one()
        assert not due
        assert ROWS // 2 - 40 < stored <= ROWS // 2


@pytest.mark.parametrize("key", ["id", "id, at"])
@pytest.mark.parametrize("mode", ["archive", "hook"])
def test_archives_and_hooks_get_every_row_of_that_hour(engine: Engine, key: str, mode: str) -> None:
    heard: list[Purged] = []
    table = events(key)
    kept = Table(
        "old_events",
        table.metadata,
        Column("number", Integer, primary_key=True),
        *(Column(column.name, column.type) for column in table.c),
    )
    enable(
        table,
        ExpireAt("at"),
        archive=Archive(kept) if mode == "archive" else None,
        on_purged=Hook(heard.append, rows=True) if mode == "hook" else None,
    )
    table.metadata.create_all(engine)
    with changed_clocks(engine) as change:
        instants = around(change, ROWS)
        write(engine, table, instants)
        report = Sweeper(engine, table, batch_size=64).run_once()
        report.raise_for_failures()
        assert report.deleted == ROWS
        if mode == "hook":
            names = [row["name"] for purged in heard for row in purged.rows or ()]
            assert sorted(names) == sorted(f"n{number}" for number in range(ROWS))
            return
        with engine.connect() as connection:
            rows = connection.exec_driver_sql("SELECT name, UNIX_TIMESTAMP(at) FROM old_events")
            assert {name: float(at) for name, at in rows} == {
                f"n{number}": at.timestamp() for number, at in enumerate(instants)
            }


def test_several_workers_delete_every_row_of_that_hour(engine: Engine) -> None:
    table = events("id")
    table.create(engine)
    with changed_clocks(engine) as change:
        write(engine, table, around(change, ROWS))
        report = Sweeper(engine, table, batch_size=16, workers=2).run_once()
        report.raise_for_failures()
        assert report.deleted == ROWS


async def test_they_go_asynchronously(async_engine: AsyncEngine) -> None:
    table = events("id, at", "scan")
    async with async_engine.begin() as connection:
        await connection.run_sync(table.create)
        await connection.run_sync(
            lambda inside: inside.exec_driver_sql(
                "INSERT INTO events (id, at) VALUES (1, '2020-01-01'), (1, '2020-01-02')"
            )
        )
    report = await AsyncSweeper(async_engine, table, batch_size=1).run_once()
    report.raise_for_failures()
    assert report.deleted == 2


def test_a_write_takes_the_key_of_an_expired_row_of_that_hour(engine: Engine) -> None:
    table = events("id, at")
    table.append_constraint(UniqueConstraint("name"))
    table.create(engine)
    with changed_clocks(engine) as change:
        instants = around(change, 20)
        write(engine, table, instants)
        with engine.begin() as connection:
            for number in range(20):
                never = {"at": datetime(2037, 1, 1) + timedelta(seconds=number)}  # noqa: DTZ001
                connection.execute(insert(table).values(id=9, name=f"n{number}", **never))
            count = connection.exec_driver_sql("SELECT count(*) FROM events").scalar()
        assert count == 20

"""A sweeper doesn't wait with rows of its own locked, so it is not part of anybody's deadlock."""

from __future__ import annotations

from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import insert, text

from tests.faults.carts import HOUR, add, cart, create, kept, left
from tests.locks import A_WHILE, WAITS
from ttl_odm.sweeper import Skip, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine

    from ttl_odm.sweeper import SweepReport

# Locks are each server's own.
pytestmark = pytest.mark.every_server

HOLD = "UPDATE carts SET ttl = ttl WHERE id = :id"


def somebody_waits(connection: Connection) -> bool:
    """Whether a session of this database waits for a lock."""
    dialect: Any = connection.dialect
    waits = WAITS["mariadb" if dialect.is_mariadb else "mysql"]
    return bool(connection.scalar(text(waits)))


def swept_beside(writer: Connection, sweeper: Sweeper, *, wants: int) -> SweepReport:
    """Sweep; if the sweeper ever waits, the writer wants a row that it may have locked."""
    reports: list[Any] = []
    sweeping = Thread(target=lambda: reports.append(sweeper.run_once()))
    sweeping.start()
    while sweeping.is_alive():
        if somebody_waits(writer):
            writer.execute(text(HOLD), {"id": wants})
        sweeping.join(A_WHILE)
    (report,) = reports
    return report


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("mode", ["plain", "archive", "hook"])
def test_a_writer_that_holds_one_row_and_wants_another_is_no_victim(
    engine: Engine, mode: str
) -> None:
    model = cart(mode)
    with engine.begin() as connection:
        create(connection, model)
        # Each expired a second after the one before it; the server may want to read all of these
        # rather than look some up.
        add(connection, range(1, 31), age=2 * HOUR)
    with engine.connect() as writer:
        writer.execute(text(HOLD), {"id": 2})
        report = swept_beside(writer, Sweeper(engine, model), wants=3)
        writer.execute(text(HOLD), {"id": 3})
        writer.commit()
    assert (report.deleted, report.problems) == (29, ())
    assert report.targets[0].skips == {Skip.LOCKED: 1}
    with engine.connect() as connection:
        assert left(connection, model) == {2}


@pytest.mark.databases("mariadb", "mysql")
def test_what_a_trigger_changes_is_waited_for(engine: Engine) -> None:
    model = cart("plain")
    with engine.begin() as connection:
        create(connection, model)
        add(connection, [1, 2, 3], age=2 * HOUR)
        connection.execute(insert(kept).values(id=0))
        connection.exec_driver_sql(
            "CREATE TRIGGER counting AFTER DELETE ON carts FOR EACH ROW UPDATE kept SET id = id + 1"
        )
    deleted: list[int] = []

    def sweep() -> None:
        while not sum(deleted):
            deleted.append(Sweeper(engine, model).run_once().deleted)

    with engine.connect() as writer:
        writer.execute(text("UPDATE kept SET id = id + 10"))
        sweeping = Thread(target=sweep)
        sweeping.start()
        while not somebody_waits(writer):
            sweeping.join(A_WHILE)
        writer.commit()
        sweeping.join()
    assert sum(deleted) == 3
    with engine.connect() as connection:
        assert connection.scalar(text("SELECT id FROM kept")) == 13

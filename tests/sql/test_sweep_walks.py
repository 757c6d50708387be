"""A walk without an index reaches all rows, in whatever order the database has their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import (
    Enum,
    String,
    Time,
    column,
    func,
    insert,
    literal,
    literal_column,
    select,
    table,
)
from sqlalchemy.dialects import mysql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from ttl_odm.sqlalchemy import TTLMixin
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Pace, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

STATES = ["paid", "open", "closed"]
"""Not in the order of the alphabet."""

ROWS = table("tickets", column("kind"), column("number"), column("_ts"))
"""The table without a policy."""


def tickets(type_: Any) -> Any:
    class Base(DeclarativeBase):
        pass

    class Ticket(TTLMixin, Base):
        __tablename__ = "tickets"
        __ttl__ = 60
        __ttl_sweep__ = "scan"

        kind: Mapped[Any] = mapped_column(type_, primary_key=True)
        number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)

    return Ticket


def left(engine: Engine, type_: Any, kinds: list[str], declared: Any = None) -> int | None:
    """Sweep five expired rows of each kind, three at a time; return how many are left."""
    model, swept = tickets(type_), tickets(type_ if declared is None else declared)
    model.metadata.create_all(engine)
    clock = clock_of(engine.dialect)
    past: Any = literal_column(f"{clock.now} - 100 * {clock.second}")
    raw = String() if engine.dialect.name in ("mysql", "mariadb") else type_
    with engine.begin() as connection:
        for kind in kinds:
            for number in range(5):
                row = select(literal(kind, raw), literal(number), past)
                connection.execute(insert(ROWS).from_select(list(ROWS.c), row))
    (target,) = Sweeper(engine, swept, pace=Pace(3, 1, 3, 1.0)).run_once().targets
    assert target.error is None
    with engine.connect() as connection:
        return connection.scalar(select(func.count()).select_from(ROWS))


@pytest.mark.every_server
def test_an_enumeration_is_walked(engine: Engine) -> None:
    assert left(engine, Enum(*STATES, name="states"), STATES) == 0


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.every_server
@pytest.mark.parametrize(
    ("type_", "kinds"),
    [
        (mysql.SET("z", "a", "m"), ["", "z", "a", "m", "z,a", "z,m", "z,a,m"]),
        (Time, ["01:00:00", "-100:30:00", "100:00:00", "-00:00:01", "05:00:00"]),
        (mysql.FLOAT, ["0.1", "0.2", "0.3", "0.7", "1.7"]),
    ],
)
def test_keys_that_python_reads_in_another_form_are_walked(
    engine: Engine, type_: Any, kinds: list[str]
) -> None:
    assert left(engine, type_, kinds) == 0


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.every_server
def test_an_enumeration_that_is_declared_as_a_text_is_walked(engine: Engine) -> None:
    # The first stretch up to ("paid", 2) then has more rows than a batch.
    assert left(engine, mysql.ENUM(*STATES), STATES, declared=String(10)) == 0

"""Counting without deleting, and the database's time."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event, text

from tests.sql.sweeping import HOUR, add, cart, sweeps
from tests.sql.test_purge_plans import EXPIRED, LIVE, explained, fill, reads_whole_table
from tests.sql.test_purge_plans import cart as wide_cart
from tests.sql.test_sweeper import fleet
from ttl_odm.sqlalchemy.sweep import counts
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Counted, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine


@sweeps
@pytest.mark.parametrize(
    ("default", "counted"), [(HOUR, 30), (-1, 10), (None, 0), (timedelta(days=9), 10)]
)
def test_what_is_counted_is_what_a_sweep_would_delete(
    engine: Engine, made: Any, sweep: str, default: Any, counted: int
) -> None:
    model = made(cart(default, sweep))
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 2 * HOUR) for number in range(20)])
        add(connection, "carts", [(number, HOUR, 2 * HOUR) for number in range(20, 30)])
        add(connection, "carts", [(number, -1, 2 * HOUR) for number in range(30, 35)])
        add(connection, "carts", [(number, None, 30) for number in range(35, 40)])
    seen = SQLAlchemyStore(engine, model).count("carts")
    assert replace(seen, oldest=None) == Counted(counted, 40)
    assert (seen.oldest is None) == (sweep == "index" or counted == 0)
    assert seen.oldest is None or 3_600 <= seen.oldest < 2 * HOUR
    report = Sweeper(engine, model, dry_run=True).run_once()
    assert report.deleted == 0
    assert (report.due or 0) == counted
    assert Sweeper(engine, model).run_once().deleted == counted


def test_subclasses_are_counted_by_their_own_defaults(engine: Engine, made: Any) -> None:
    model = made(fleet(5 * HOUR, HOUR, "index"))
    with engine.begin() as connection:
        add(connection, "vehicles", [(number, None, 2 * HOUR) for number in range(10)])
        connection.execute(text("UPDATE vehicles SET kind = 'bike' WHERE id < 4"))
        connection.execute(text("UPDATE vehicles SET kind = 'vehicle' WHERE id >= 4"))
    assert SQLAlchemyStore(engine, model).count("vehicles").due == 4


def test_what_is_due_is_counted_in_the_indexes(engine: Engine) -> None:
    model = wide_cart("index")
    model.metadata.create_all(engine)
    fill(engine, None)
    plans = explained(engine, model, dry_run=True)
    reads = [plan for plan in plans["SELECT"] if reads_whole_table(engine, plan)]
    assert len(reads) == 1  # all rows of so small a table; see the next test


def test_how_many_rows_a_big_table_has_is_estimated(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_FEW", 1)
    monkeypatch.setattr(counts, "_LOOK", 1)
    model = wide_cart("index")
    model.metadata.create_all(engine)
    fill(engine, None)
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    counted = SQLAlchemyStore(engine, model).count("carts")
    assert counted.due == EXPIRED
    assert counted.rows == pytest.approx(LIVE + EXPIRED, rel=0.3)
    whole = re.findall(r"SELECT count\(\*\) AS \w+\s+FROM carts\)", "\n".join(statements))
    # SQLite keeps no estimate.
    assert len(whole) == (engine.dialect.name == "sqlite")


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_no_fuse_takes_a_part_for_the_whole_after_a_big_sweep(
    engine: Engine, made: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counts, "_FEW", 1_000)
    model = made(cart())
    with engine.begin() as connection:
        add(connection, "carts", [(number, None, 60) for number in range(12_000)])
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = "ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE TABLE"
        connection.execute(text(f"{analyze} carts"))
        connection.execute(text("DELETE FROM carts WHERE id >= 2000"))
    model.__ttl__ = 30  # a slip
    counted = SQLAlchemyStore(engine, model).count("carts")
    assert counted == Counted(2_000, 2_000)
    report = Sweeper(engine, model, max_fraction=0.5).run_once()
    assert (report.deleted, len(report.problems)) == (0, 1)


def test_the_time_is_the_databases(engine: Engine, made: Any) -> None:
    store = SQLAlchemyStore(engine, made(cart()))
    with engine.connect() as connection:
        clock = clock_of(engine.dialect)
        before = clock.from_storage(connection.scalar(text(f"SELECT {clock.now}")))
    now = store.now()
    assert now.tzinfo is timezone.utc
    assert timedelta(0) <= now - before < timedelta(minutes=1)
    assert isinstance(now, datetime)

"""The contract's truth table, at the exact instant of expiry, for every kind of statement."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import Session

from tests.clocks import set_last_modified, stop_clock
from tests.sql.models import web_session

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

NOW = datetime(2026, 3, 29, 1, 30, tzinfo=timezone.utc)  # in the hour that spring skips in Europe
TICK = timedelta(milliseconds=1)  # the finest that every database keeps

# (default, own ttl) -> seconds that the row lives; None: for ever. Written out by hand.
LIFE: dict[tuple[int | None, int | None], int | None] = {
    (None, None): None,
    (None, -1): None,
    (None, 50): None,
    (None, 100): None,
    (None, 200): None,
    (-1, None): None,
    (-1, -1): None,
    (-1, 50): 50,
    (-1, 100): 100,
    (-1, 200): 200,
    (100, None): 100,
    (100, -1): None,
    (100, 50): 50,
    (100, 100): 100,
    (100, 200): 200,
}
OWN = (None, -1, 50, 100, 200)
AGES = [timedelta(seconds=s) + t for s in (50, 100, 200) for t in (-TICK, timedelta(), TICK)]
ROWS = {f"{own}/{age.total_seconds()}": (own, age) for own in OWN for age in AGES}


def expected(default: int | None) -> set[str]:
    alive = set()
    for key, (own, age) in ROWS.items():
        life = LIFE[default, own]
        if life is None or age < timedelta(seconds=life):
            alive.add(key)
    return alive


def check(session: Session, model: Any, default: int | None) -> None:
    connection = session.connection()
    session.add_all([model(id=key, ttl=own) for key, (own, _) in ROWS.items()])
    session.flush()
    stop_clock(connection, NOW)
    for key, (_, age) in ROWS.items():
        set_last_modified(connection, "web_sessions", key, NOW - age)
    session.expire_all()
    session.expunge_all()

    alive = expected(default)
    assert set(session.scalars(select(model.id))) == alive
    assert {row.id for row in session.scalars(select(model))} == alive
    assert set(connection.scalars(select(model.__table__.c.id))) == alive
    assert session.scalar(select(func.count()).select_from(model)) == len(alive)
    for key in ROWS:
        assert (session.get(model, key) is not None) == (key in alive), key
    updated: Any = session.execute(update(model).values(views=model.views + 1))
    assert updated.rowcount == len(alive)
    written = select(model.id).where(model.views == 1)
    assert set(session.scalars(written, execution_options={"include_expired": True})) == alive


def check_delete(session: Session, model: Any, default: int | None) -> None:
    connection = session.connection()
    session.add_all([model(id=key, ttl=own) for key, (own, _) in ROWS.items()])
    session.flush()
    stop_clock(connection, NOW)
    for key, (_, age) in ROWS.items():
        set_last_modified(connection, "web_sessions", key, NOW - age)
    alive = expected(default)
    deleted: Any = session.execute(delete(model))
    assert deleted.rowcount == len(alive)
    left = session.scalars(select(model.id), execution_options={"include_expired": True})
    assert set(left) == ROWS.keys() - alive


@pytest.mark.parametrize("default", [None, -1, 100])
@pytest.mark.parametrize("check", [check, check_delete])
def test_the_truth_table_holds(engine: Engine, default: int | None, check: Any) -> None:
    model = web_session(default)
    model.metadata.create_all(engine)
    with Session(engine) as session:
        check(session, model, default)


@pytest.mark.parametrize("default", [None, -1, 100])
@pytest.mark.parametrize("check", [check, check_delete])
async def test_the_truth_table_holds_asynchronously(
    async_engine: AsyncEngine, default: int | None, check: Any
) -> None:
    model = web_session(default)
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    async with AsyncSession(async_engine) as session:
        await session.run_sync(check, model, default)


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("own", [None, 86_400], ids=["default", "own ttl"])
@pytest.mark.parametrize("change", ["2026-03-29", "2026-10-25"], ids=["spring", "autumn"])
def test_a_day_has_24_hours_when_the_clocks_change(
    engine: Engine, own: int | None, change: str
) -> None:
    """Drivers send a timedelta of a day as ``1 day``, which PostgreSQL counts in local time."""
    model = web_session(86_400)
    model.metadata.create_all(engine)
    now = datetime.fromisoformat(f"{change}T12:00:00+00:00")
    with Session(engine) as session:
        connection = session.connection()
        connection.execute(text("SET LOCAL timezone = 'Europe/Berlin'"))
        session.add_all([model(id="23.5 h", ttl=own), model(id="24.5 h", ttl=own)])
        session.flush()
        stop_clock(connection, now)
        for hours in (23.5, 24.5):
            instant = now - timedelta(hours=hours)
            set_last_modified(connection, "web_sessions", f"{hours} h", instant)
        session.expunge_all()
        assert session.scalars(select(model.id)).all() == ["23.5 h"]
        updated: Any = session.execute(update(model).values(views=1))
        assert updated.rowcount == 1

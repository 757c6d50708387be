"""Processes that are killed at any moment lose no event, and record none twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from tests.events.killed import Base, Handled, Life, SeatHold, run
from tests.events.kills import assert_each_once, kill_at_random
from ttl_odm.events import EventWorker, events, on_expired
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend


@pytest.mark.slow
def test_no_event_is_lost_or_recorded_twice(backend: Backend, engine: Engine) -> None:
    seen: list[str] = []
    on_expired(SeatHold, include=["life"], name="release")(lambda event: seen.append(event.id))
    Base.metadata.create_all(engine)
    kill_at_random(run, lambda _: (backend.sync_url,))
    # One that was killed may have the workers' lease.
    assert not Sweeper(engine, SeatHold, lease=False).run_once().failed
    with engine.connect() as connection:
        rows = select(func.count()).select_from(SeatHold).options(include_expired())
        assert connection.scalar(rows) == 0
    worker = EventWorker(engine, Base)
    while worker.run_once().total:
        pass
    recorded = [event.row["life"] for event in events(engine, consumer="audit")]
    with engine.connect() as connection:
        lives = set(connection.scalars(select(Life.life)))
        handled = set(connection.scalars(select(Handled.event)))
    assert_each_once(recorded, lives, handled.union(seen))

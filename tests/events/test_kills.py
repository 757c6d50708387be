"""Processes that are killed at any moment lose no event, and record none twice."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from tests.events.killed import Base, Handled, Life, SeatHold
from tests.guard import GUARD
from ttl_odm.events import EventWorker, events, on_expired
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend

ROOT = Path(__file__).parents[2]
KILLS = 6


@pytest.mark.slow
def test_no_event_is_lost_or_recorded_twice(backend: Backend, engine: Engine) -> None:
    seen: list[str] = []
    random = Random()  # noqa: S311 (any moment will do)
    on_expired(SeatHold, include=["life"], name="release")(lambda event: seen.append(event.id))
    Base.metadata.create_all(engine)

    def start(what: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.events.killed", backend.sync_url, what]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        ending.callback(process.wait, GUARD)
        ending.callback(process.kill)
        assert process.stdout is not None
        ending.callback(process.stdout.close)
        assert process.stdout.readline() == "ready\n"
        return process

    with ExitStack() as ending:
        processes = {number: start(what) for number, what in enumerate(("write", "work", "work"))}
        for kill in range(KILLS):
            time.sleep(random.uniform(0.0, 0.5))
            number = kill % len(processes)
            processes[number].kill()
            processes[number].wait(GUARD)
            processes[number] = start("write" if number == 0 else "work")
    time.sleep(1.1)  # until all have expired, and what was claimed is due again
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
    assert len(recorded) == len(set(recorded))
    assert set(recorded) == lives
    assert len(lives) > KILLS
    assert len(handled.union(seen)) == len(lives)

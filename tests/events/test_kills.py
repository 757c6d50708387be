"""Processes that are killed at any moment lose no event, and record none twice."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from contextlib import ExitStack
from random import Random
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import func, select

from tests.events.killed import Base, Handled, Life, SeatHold, run
from tests.guard import GUARD
from ttl_odm.events import EventWorker, events, on_expired
from ttl_odm.sqlalchemy import include_expired
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from multiprocessing.context import ForkServerProcess

    from sqlalchemy import Engine

    from tests.backends import Backend

KILLS = int(os.environ.get("TTL_ODM_TEST_KILLS", "6"))


@pytest.mark.slow
def test_no_event_is_lost_or_recorded_twice(backend: Backend, engine: Engine) -> None:
    seen: list[str] = []
    random = Random()  # noqa: S311 (any moment will do)
    on_expired(SeatHold, include=["life"], name="release")(lambda event: seen.append(event.id))
    Base.metadata.create_all(engine)

    # They are forked from a process that has imported everything, or they would start for longer
    # than they live.
    processing = multiprocessing.get_context("forkserver")
    processing.set_forkserver_preload(["tests.events.killed"])

    def start(what: str) -> ForkServerProcess:
        ours, theirs = processing.Pipe(duplex=False)
        process = processing.Process(target=run, args=(backend.sync_url, what, theirs), daemon=True)
        process.start()
        ending.callback(end, process)
        with ours, theirs:
            assert ours.poll(GUARD)
        return process

    def end(process: ForkServerProcess) -> None:
        process.kill()
        process.join(GUARD)
        assert process.exitcode == -signal.SIGKILL

    with ExitStack() as ending:
        processes = {number: start(what) for number, what in enumerate(("write", "work", "work"))}
        for kill in range(KILLS):
            time.sleep(random.uniform(0.0, 0.5))
            number = kill % len(processes)
            end(processes[number])
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

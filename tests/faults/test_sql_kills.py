"""Sweepers that are killed, many at once, and on hosts with a wrong clock."""

from __future__ import annotations

import random
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import inspect, text

from tests.faults import processes
from tests.faults.carts import HOUR, add, cart, create, kept_keys, left
from tests.guard import GUARD
from ttl_odm.sqlalchemy import AdvisoryLeases
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from tests.backends import Backend

KILLS = 20
servers = pytest.mark.databases("postgres", "mariadb", "mysql")


@pytest.fixture(params=["archive", "hook"])
def mode(request: pytest.FixtureRequest) -> str:
    """How purged rows are kept."""
    kind: str = request.param
    return kind


def made(engine: Engine, mode: str, *, expired: int, live: int = 100) -> Any:
    model = cart(mode)
    with engine.begin() as connection:
        create(connection, model)
        add(connection, range(expired), age=2 * HOUR)
        add(connection, range(expired, expired + live), age=HOUR / 2)
    return model


@pytest.mark.slow
def test_a_sweeper_killed_at_any_moment_loses_nothing_and_doubles_nothing(
    backend: Backend, engine: Engine, mode: str
) -> None:
    rows = KILLS * 200
    model = made(engine, mode, expired=rows)
    seed = random.randrange(10**9)  # noqa: S311
    came = processes.run(url=backend.sync_url, mode=mode, kills=KILLS, seed=seed)
    assert came["killed"] == KILLS, came
    # A server may not have noticed yet that the last one is gone, and hold its rows.
    for _ in range(GUARD * 20):
        Sweeper(engine, model, lease=False, nice=0).run_once().raise_for_failures()
        with engine.connect() as connection:
            if len(left(connection, model)) == 100:
                break
        time.sleep(0.05)
    with engine.connect() as connection:
        assert left(connection, model) == set(range(rows, rows + 100))
        assert kept_keys(connection) == list(range(rows))
        if inspect(connection).has_table("ttl_odm_lease"):
            names = connection.scalars(text("SELECT name FROM ttl_odm_lease")).all()
    leases = TableLeases(engine)
    assert names
    for name in names:
        assert leases.read(name).seconds_left <= 60


@pytest.mark.slow
def test_another_sweeper_takes_over_when_the_lease_of_a_killed_one_has_ended(
    backend: Backend, engine: Engine
) -> None:
    model = made(engine, "hook", expired=5_000)
    options = {"lease_name": "the same", "lease_duration": 1.0}
    # One kill: the second sweeper, if there was one, found the lease held and came to its end.
    came = processes.run(url=backend.sync_url, mode="hook", kills=1, seed=7, options=options)
    assert came["killed"] == 1
    while not (report := Sweeper(engine, model, lease_name="the same").run_once()).targets:
        report.raise_for_failures()
        assert TableLeases(engine).read("the same").seconds_left <= 1.0
        time.sleep(0.05)
    with engine.connect() as connection:
        assert len(left(connection, model)) == 100
        assert kept_keys(connection) == list(range(5_000))


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_an_advisory_lock_is_free_as_soon_as_its_holder_is_killed(
    backend: Backend, engine: Engine
) -> None:
    model = made(engine, "hook", expired=5_000)
    options = {"lease_name": "the same", "lease_duration": 3_600.0}
    url = backend.sync_url
    came = processes.run(url=url, mode="hook", kills=1, seed=7, options=options, advisory=True)
    assert came["killed"] == 1
    sweeper = Sweeper(engine, model, lease=AdvisoryLeases(engine), **options)
    while not (report := sweeper.run_once()).targets:  # until the server has noticed
        report.raise_for_failures()
    assert report.targets[0].deleted > 0
    with engine.connect() as connection:
        assert len(left(connection, model)) == 100
        assert kept_keys(connection) == list(range(5_000))


@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 8])
@pytest.mark.parametrize("lease", [True, False])
def test_many_sweepers_at_once_tell_each_row_once(
    backend: Backend,
    engine: Engine,
    number: int,
    lease: bool,  # noqa: FBT001
) -> None:
    rows = 300
    model = made(engine, "hook", expired=rows)
    options = {"lease": lease, "lease_name": "the same"}
    reports = processes.run(url=backend.sync_url, mode="hook", number=number, options=options)
    assert len(reports) == number
    with engine.connect() as connection:
        told = kept_keys(connection)
        assert len(told) == len(set(told)) == sum(report["deleted"] for report in reports)
    if lease:
        assert sum(report["ended"] == "finished" for report in reports) >= 1
        assert {report["ended"] for report in reports} <= {"finished", "lease_held"}
    Sweeper(engine, model).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert kept_keys(connection) == list(range(rows))
        assert left(connection, model) == set(range(rows, rows + 100))


@pytest.mark.slow
@pytest.mark.parametrize("offset", [-HOUR, HOUR])
def test_the_clock_of_the_host_does_not_matter(
    backend: Backend, engine: Engine, offset: int
) -> None:
    rows = 2_000
    model = made(engine, "hook", expired=rows)
    # One is killed and leaves its lease, another does all the rest under a lease of its own.
    options = {"lease_duration": HOUR}
    job = {"mode": "hook", "kills": 1, "seed": 1, "number": 1, "clock": offset, "options": options}
    (report,) = processes.run(url=backend.sync_url, **job)
    assert report["error"] is report["targets"][0]["error"] is None
    (target,) = report["targets"]
    assert HOUR - 100 <= target["oldest_before"] < HOUR + 600
    Sweeper(engine, model, lease=False).run_once().raise_for_failures()
    with engine.connect() as connection:
        assert left(connection, model) == set(range(rows, rows + 100))
        assert kept_keys(connection) == list(range(rows))
    assert 0 < TableLeases(engine).read("0").seconds_left <= HOUR
    assert TableLeases(engine).read("1000").holder is None


@pytest.mark.slow
@servers
def test_a_renewal_that_is_not_yet_committed_is_never_deleted(engine: Engine) -> None:
    rows = 4_000
    model = made(engine, "hook", expired=rows, live=0)
    renewed: set[int] = set()
    done = threading.Event()
    stamp = clock_of(engine.dialect).stamp

    def renew(seed: int) -> None:
        chance = random.Random(seed)  # noqa: S311
        while not done.is_set():
            keys = sorted(chance.sample(range(rows), 3))
            with engine.connect() as connection:
                connection.execution_options(isolation_level="READ COMMITTED")
                changed = [
                    key
                    for key in keys
                    if connection.execute(
                        text(f"UPDATE carts SET _ts = {stamp} WHERE id = :id"),  # noqa: S608
                        {"id": key},
                    ).rowcount
                ]
                time.sleep(chance.uniform(0, 0.02))
                connection.commit()
            renewed.update(changed)

    writers = [threading.Thread(target=renew, args=[seed]) for seed in (1, 2, 3)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(3):
            report = Sweeper(engine, model, batch_size=50).run_once()
            report.raise_for_failures()
    finally:
        done.set()
        for writer in writers:
            writer.join()
    with engine.connect() as connection:
        there = left(connection, model)
        assert renewed
        assert renewed <= there
        told = kept_keys(connection)
        assert sorted([*told, *there]) == list(range(rows))

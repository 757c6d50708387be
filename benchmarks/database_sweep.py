"""How old expired rows become where the database sweeps by itself, and nothing of ours runs.

A thousand rows a second are inserted, each of which expires two seconds later. Ten times a second
somebody looks how long each row that is still there has been expired. On PostgreSQL a server of its
own with pg_cron calls the procedure; on MariaDB and MySQL the EVENT does.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, make_url, text

import ttl_odm.alembic  # noqa: F401 - it brings op.add_ttl
from benchmarks.bench import find_tools, tell
from benchmarks.findings import Finding
from benchmarks.goals import DATABASE_SWEEP
from benchmarks.harness import Estimate
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Connection, Engine

    from benchmarks.bench import Bench, Database

SECTION: Final = "The database sweeps by itself: how long rows have been expired"

_TTL: Final = 2
_ROUND: Final = 0.1
_ROWS: Final = 100
"""Rows of a round: a thousand a second."""

_A_MINUTE: Final = 60
"""So often pg_cron calls; who measures for less has the procedure called by a session."""

_PARTS: Final = 4
"""The spread is that of a figure for each quarter of the time."""


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on PostgreSQL, MariaDB and MySQL.

    Args:
        bench: what there is.
    """
    seconds = bench.scale.sweep_seconds
    for database in bench.databases:
        if database.key != "sqlite":
            tell(f"  {database.name}: {seconds:g} s")
            with _swept(database, seconds) as engine:
                quarters = _ages(engine, seconds)
            every = sorted(age for ages in quarters for age in ages)
            for what, share, goal in (
                ("99th percentile", 0.99, DATABASE_SWEEP),
                ("median", 0.5, None),
                ("oldest", 1.0, None),
            ):
                of_quarters = [_at(share, sorted(ages)) for ages in quarters]
                found = Estimate(_at(share, every), min(of_quarters), max(of_quarters))
                yield Finding(SECTION, what, database.name, "ms", found, goal=goal)


def _at(share: float, ages: list[float]) -> float:
    """The age, in milliseconds, that no more than a share of the rows has reached."""
    return ages[min(int(share * len(ages)), len(ages) - 1)] * 1_000 if ages else 0.0


def _ages(engine: Engine, seconds: float) -> list[list[float]]:
    """Insert for so many seconds, and look: the seconds for which rows have been expired."""
    clock, quarters = clock_of(engine.dialect), [list[float]() for _ in range(_PARTS)]
    end = f"(_ts + ttl * {clock.second})"
    if engine.dialect.name == "postgresql":
        look = f"SELECT EXTRACT(EPOCH FROM {clock.stamp} - {end})"  # noqa: S608
    else:
        look = f"SELECT ({clock.stamp} - {end}) / {clock.second}"
    look = f"{look} FROM visits WHERE {end} <= {clock.stamp}"
    stopped = threading.Event()
    writer = threading.Thread(target=_write, args=(engine, stopped))
    writer.start()
    try:
        time.sleep(_TTL + 2)  # until as many expire as are inserted
        with engine.connect() as connection:
            begun = time.monotonic()
            while (past := time.monotonic() - begun) < seconds:
                ages = [float(age) for age in connection.execute(text(look)).scalars()]
                connection.rollback()
                quarters[int(past / seconds * _PARTS)] += ages
                time.sleep(_ROUND)
    finally:
        stopped.set()
        writer.join()
    return quarters


def _write(engine: Engine, stopped: threading.Event) -> None:
    insert = text("INSERT INTO visits (id, ttl) VALUES (:id, :ttl)")
    with engine.connect() as connection:
        begun, number = time.monotonic(), 0
        while not stopped.is_set():
            keys = range(number * _ROWS, (number + 1) * _ROWS)
            connection.execute(insert, [{"id": key, "ttl": _TTL} for key in keys])
            connection.commit()
            number += 1
            stopped.wait(max(0.0, begun + number * _ROUND - time.monotonic()))


@contextmanager
def _swept(database: Database, seconds: float) -> Iterator[Engine]:
    """A database whose table is swept; it has been swept once."""
    if database.key != "postgres":
        with database.made() as url, _made(url) as engine, engine.connect() as connection:
            before = connection.scalar(text("SELECT @@event_scheduler"))
            connection.execute(text("SET GLOBAL event_scheduler = ON"))
            _install(connection)
            yield engine
            connection.execute(text("DROP EVENT visits_ttl_sweep"))
            connection.execute(text(f"SET GLOBAL event_scheduler = {before}"))
    elif seconds < _A_MINUTE:
        with database.made() as url, _made(url) as engine, engine.connect() as connection:
            _install(connection)
            caller = threading.Thread(target=_call, args=(engine, int(seconds) + 5))
            caller.start()
            yield engine
            connection.execute(text("DROP PROCEDURE visits_ttl_sweep"))  # which ends it
            connection.commit()
            caller.join()
    else:
        with _with_pg_cron() as url, _made(url) as engine, engine.connect() as connection:
            connection.execute(text("CREATE EXTENSION pg_cron"))
            connection.commit()
            _install(connection)
            while (job := read_job(connection, None, "visits")) is None or job.ran_ago is None:
                connection.rollback()
                time.sleep(_ROUND)
            yield engine


def _install(connection: Connection) -> None:
    connection.execute(text("CREATE TABLE visits (id bigint PRIMARY KEY)"))
    connection.commit()
    operations = Operations(MigrationContext.configure(connection))
    operations.add_ttl("visits", 3600, sweep="database")  # type: ignore[attr-defined]
    connection.commit()


def _call(engine: Engine, seconds: int) -> None:
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text(f"CALL visits_ttl_sweep({seconds})"))


@contextmanager
def _made(url: str) -> Iterator[Engine]:
    engine = create_engine(url)
    yield engine
    engine.dispose()


@contextmanager
def _with_pg_cron() -> Iterator[str]:
    find_tools()
    from local_servers.lifetime import started  # noqa: PLC0415 - of the tools
    from local_servers.pg_cron import PG_CRON  # noqa: PLC0415 - of the tools

    with started([PG_CRON]) as variables:
        address = make_url(variables[PG_CRON.variable]).set(drivername="postgresql+psycopg")
        yield address.render_as_string(hide_password=False)

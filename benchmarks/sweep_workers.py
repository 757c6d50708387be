"""What a second worker brings, and whether a gentle sweep is noticed.

Workers delete the same rows, newly filled, as one DELETE does, with nobody beside them: on a
machine with two cores two of them use both, and whoever works beside them gets what is left. How
much of the cores each way uses is told, too.

A gentle sweep runs while another process reads and writes live rows of the table. There the
database has a core of its own where the machine has two, and the sweeper leaves its core to the
other process whenever that wants it, so that what is measured is the waiting for the database, and
not for a core that Python has.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from operator import itemgetter
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Final

from sqlalchemy import create_engine, text

from benchmarks import goals
from benchmarks.bench import tell
from benchmarks.findings import Finding, ratio
from benchmarks.foreground import disturbance, foreground
from benchmarks.harness import estimate, rotated, undisturbed
from benchmarks.sweeping_tables import (
    AT_ONCE,
    LIVE,
    READ_AND_WRITE,
    Entry,
    delete_at_once,
    delete_in_halves,
    fill,
)
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

    from benchmarks.bench import Bench
    from benchmarks.harness import Round

SPEED: Final = "Sweeping by workers, rows per second: the sweeper / one DELETE"
CORES: Final = "Sweeping by workers, seconds of all cores / seconds that pass"
GENTLE: Final = "Sweeping gently, somebody's statements: meanwhile / when all is idle"

POSTGRES: Final = "PostgreSQL"
ONE: Final = "one worker"
TWO: Final = "two workers"
HALVES: Final = "two DELETEs at once"
_GENTLY: Final = "gently"


def _by(workers: int) -> Callable[[Engine], int]:
    def sweep(engine: Engine) -> int:
        report = Sweeper(engine, Entry, lease=False, workers=workers).run_once()
        report.raise_for_failures()
        return report.deleted

    return sweep


_WAYS: Final = {AT_ONCE: delete_at_once, HALVES: delete_in_halves, ONE: _by(1), TWO: _by(2)}
_GOALS: Final = {(ONE, POSTGRES): goals.ONE_WORKER, (TWO, POSTGRES): goals.TWO_WORKERS}


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure where tables are divided: on PostgreSQL, MariaDB and MySQL.

    Args:
        bench: what there is.
    """
    for database in bench.databases:
        if database.key == "sqlite":
            continue
        name, rows = database.name, bench.scale.expired[database.key]
        with database.made() as url:
            engine = create_engine(url)
            sittings: list[Round] = []
            for number in range(bench.scale.sittings):
                tell(f"  {name}: sitting {number + 1} of {bench.scale.sittings}")
                found = _sit(engine, rows, number)
                fill(engine, rows)
                with _apart(engine):
                    found = {**found, **_gently(engine, url, bench.scale.idle_seconds)}
                sittings.append(found)
            engine.dispose()
        rounds = [[sitting] for sitting in sittings]
        for way in (ONE, TWO, HALVES):  # twice the time is half the speed
            goal = _GOALS.get((way, name))
            yield ratio(SPEED, way, name, rounds, over=AT_ONCE, under=way, goal=goal)
        for way in _WAYS:
            cores = estimate(rounds, itemgetter(f"{way} cores"))
            yield Finding(CORES, way, name, "ratio", cores)
        gentle = goals.GENTLE_MYSQL if database.key == "mysql" else goals.GENTLE
        for part, goal in (("p50", None), ("p99", gentle)):
            over, under = f"{_GENTLY} {part}", f"idle {part}"
            yield ratio(GENTLE, part, name, rounds, over, under, goal)


def _sit(engine: Engine, rows: int, number: int) -> Round:
    """Let every way delete once; return seconds per row, and of how many cores."""
    found: dict[str, float] = {}
    for way in rotated(_WAYS, number):
        fill(engine, rows)
        with undisturbed():
            busy, begin = _busy(), perf_counter()
            deleted = _WAYS[way](engine)
            seconds = perf_counter() - begin
            busy = _busy() - busy
        found |= {way: seconds / deleted, f"{way} cores": busy / seconds}
    return found


def _gently(engine: Engine, url: str, seconds: float) -> Round:
    """Sweep gently for some seconds; return what somebody's statements took, then and before."""
    with foreground(url, READ_AND_WRITE, LIVE) as took:
        sleep(seconds)
    found = disturbance(took, "idle")
    sweeper = Sweeper(engine, Entry, lease=False, gentle=True, max_seconds=seconds)
    with foreground(url, READ_AND_WRITE, LIVE) as took:
        begin = perf_counter()
        with ThreadPoolExecutor(1, initializer=_yield_to_others) as thread:
            thread.submit(sweeper.run_once).result().raise_for_failures()
        sleep(max(0.0, seconds - (perf_counter() - begin)))
    return {**found, **disturbance(took, _GENTLY)}


def _yield_to_others() -> None:
    """Let this thread run only while nobody else wants its core; on Linux each has its policy."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _busy() -> float:
    """Seconds that the cores have worked since the machine began, all together."""
    cores, *_ = Path("/proc/stat").read_text().splitlines()
    user, nice, system, _idle, _waiting, *interrupts = map(int, cores.split()[1:9])
    return (user + nice + system + sum(interrupts)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def _apart(engine: Engine) -> Iterator[None]:
    """Give the database one core and us the others, where there is another and we may."""
    ours = os.sched_getaffinity(0)
    first, *others = sorted(ours)
    if not others:
        yield
        return
    server = _process_of(engine)
    engine.dispose()  # the next connections are begun on that core
    try:
        _pin(server, {first})
        os.sched_setaffinity(0, others)
        yield
    finally:
        os.sched_setaffinity(0, ours)
        _pin(server, ours)


def _process_of(engine: Engine) -> int:
    """The process that makes what a connection is served by."""
    with engine.connect() as connection:
        if engine.dialect.name != "postgresql":
            folder, name = connection.execute(text("SELECT @@datadir, @@pid_file")).one()
            return int(Path(folder, name).read_text())
        backend = connection.scalar(text("SELECT pg_backend_pid()"))
    for line in Path(f"/proc/{backend}/status").read_text().splitlines():
        if line.startswith("PPid:"):
            return int(line.split()[1])
    raise LookupError(f"Linux doesn't tell the parent of {backend}")


def _pin(process: int, cores: set[int]) -> None:
    """Let all threads of a process run on some cores, and what they begin; it may be another's."""
    for thread in Path(f"/proc/{process}/task").iterdir():
        with suppress(PermissionError, ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)

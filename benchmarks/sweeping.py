"""What sweeping SQL tables costs, and whom it disturbs.

Each way of deleting gets the same rows in the same table, newly filled, while another process reads
and writes live rows of that table. Ratios are taken within a sitting, in which all ways take turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event

from benchmarks import goals, sweeping_tables
from benchmarks.bench import tell
from benchmarks.findings import Finding, ratio
from benchmarks.foreground import disturbance, foreground
from benchmarks.harness import Estimate, estimate, rotated
from benchmarks.sweeping_tables import (
    AT_ONCE,
    DAY,
    LIVE,
    READ_AND_WRITE,
    ROW_BY_ROW,
    SWEEPER,
    WAYS,
    Entry,
    Script,
    fill,
    sweep,
)
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from sqlalchemy import Engine

    from benchmarks.bench import Bench, Database
    from benchmarks.harness import Round

SPEED: Final = "Sweeping, rows per second: the sweeper / another way"
DISTURBANCE: Final = "Sweeping, somebody's statements: meanwhile / when all is idle"
NEIGHBOUR: Final = "Sweeping, somebody's statements: beside the sweeper / beside one DELETE"
IDLE: Final = "Sweeping a big table of which nothing has expired"
MEMORY: Final = "Sweeping, memory: the whole big table"

ALONE: Final = "time"
LEASED: Final = "time with a lease"
SCRIPT: Final = "a script"

POSTGRES: Final = "PostgreSQL"
_IDLE_SWEEPS: Final = 20
_GOALS: Final = {
    (AT_ONCE, POSTGRES): goals.SPEED,  # elsewhere that others get through comes first
    (ROW_BY_ROW, POSTGRES): goals.ROW_BY_ROW,
    (ROW_BY_ROW, "MariaDB"): goals.ROW_BY_ROW,
    (ROW_BY_ROW, "MySQL"): goals.ROW_BY_ROW,
    (ROW_BY_ROW, "SQLite"): goals.ROW_BY_ROW,
    ("p99", SWEEPER, POSTGRES): goals.FOREGROUND,
}


def measure(bench: Bench) -> Iterator[Finding]:
    """Measure on every SQL database.

    Args:
        bench: what there is.
    """
    scale = bench.scale
    for database in bench.databases:
        with database.made() as url:
            engine = create_engine(url)
            sittings = []
            for number in range(scale.sittings):
                tell(f"  {database.name}: sitting {number + 1} of {scale.sittings}")
                sittings.append(_sit(bench, database, engine, url, number))
            tell(f"  {database.name}: a big table")
            yield from compared(database.name, sittings, WAYS)
            yield _beside_a_delete(database.name, sittings)
            yield from _at_rest(database.name, engine, scale.big[database.key])
            yield _memory(database.name, url)
            engine.dispose()


def _sit(bench: Bench, database: Database, engine: Engine, url: str, number: int) -> Round:
    """Let every way delete once; return seconds per row, and what the other's work took."""
    scale = bench.scale
    rows = scale.expired[database.key]
    fill(engine, rows)
    with foreground(url, READ_AND_WRITE, LIVE) as took:
        sleep(scale.idle_seconds)
    found = disturbance(took, "idle")
    for way in rotated(WAYS, number):
        fill(engine, min(rows, scale.one_by_one) if way == ROW_BY_ROW else rows)
        with foreground(url, READ_AND_WRITE, LIVE) as took:
            begin = perf_counter()
            deleted = WAYS[way](engine)
            seconds = perf_counter() - begin
        found |= {way: seconds / deleted, **disturbance(took, way)}
    return found


def compared(database: str, sittings: Sequence[Round], ways: Iterable[str]) -> Iterator[Finding]:
    """What sittings say of the ways.

    Args:
        database: where.
        sittings: of each way the seconds per row, and what somebody's statements took meanwhile.
        ways: in the order in which they are told.
    """
    rounds = [[sitting] for sitting in sittings]
    for way in ways:
        if way != SWEEPER:  # twice the time is half the speed
            goal = _GOALS.get((way, database))
            yield ratio(SPEED, way, database, rounds, over=way, under=SWEEPER, goal=goal)
    for way in ways:
        for name in ("p50", "p99"):
            goal = _GOALS.get((name, way, database))
            over, under = f"{way} {name}", f"idle {name}"
            yield ratio(DISTURBANCE, f"{way}, {name}", database, rounds, over, under, goal)


def _beside_a_delete(database: str, sittings: Sequence[Round]) -> Finding:
    """Whether a sweep disturbs others more than what somebody would do instead."""
    rounds, over, under = [[sitting] for sitting in sittings], f"{SWEEPER} p99", f"{AT_ONCE} p99"
    return ratio(NEIGHBOUR, "p99", database, rounds, over, under, goals.NEIGHBOUR)


def _at_rest(database: str, engine: Engine, rows: int) -> Iterator[Finding]:
    """Measure what a sweep takes that finds nothing."""
    fill(engine, rows, age=DAY // 2)
    script = Script(engine)
    ways = {
        ALONE: Sweeper(engine, Entry, lease=False).run_once,
        f"{ALONE}; {SCRIPT}": script.sweep,
        LEASED: Sweeper(engine, Entry).run_once,
        f"{LEASED}; {SCRIPT}": script.sweep_with_lease,
    }
    for way in ways.values():
        way()
    rounds: list[Round] = []
    for number in range(_IDLE_SWEEPS):
        took = {}
        for name, way in rotated(ways.items(), number):
            begin = perf_counter()
            way()
            took[name] = perf_counter() - begin
        rounds.append(took)
    yield from idle_times(database, rounds)
    if engine.dialect.name == "postgresql":
        pages = Estimate.exactly(_pages(engine))
        yield Finding(IDLE, "pages read", database, "pages", pages, goal=goals.IDLE_PAGES)


def idle_times(database: str, rounds: Sequence[Round]) -> Iterator[Finding]:
    """What sweeps of a table took of which nothing has expired.

    Args:
        database: where.
        rounds: in each the seconds of every way: ours, and by a script.
    """
    for what in rounds[0]:
        goal = None if what.endswith(SCRIPT) else goals.IDLE_TIME
        found = estimate([[took] for took in rounds], lambda took, what=what: took[what] * 1e3)  # type: ignore[misc]
        yield Finding(IDLE, what, database, "ms", found, goal=goal)


def _memory(database: str, url: str) -> Finding:
    """Let another process sweep the big table, all of which has expired there."""
    finished = subprocess.run(  # noqa: S603 - our own module
        [sys.executable, "-m", sweeping_tables.__name__],
        input=f"{url}\n",
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    grown = Estimate.exactly(json.loads(finished.stdout)["kib"] / 1024)
    return Finding(MEMORY, "most above import", database, "MiB", grown, goal=goals.MEMORY)


def _pages(engine: Engine) -> float:
    """Let PostgreSQL tell what the statements of an idle sweep read."""
    asked: list[tuple[str, Any]] = []

    def note(_c: Any, _cursor: Any, statement: str, parameters: Any, *_: Any) -> None:
        if Entry.__tablename__ in statement:
            asked.append((statement, parameters))

    event.listen(engine, "before_cursor_execute", note)
    sweep(engine)
    event.remove(engine, "before_cursor_execute", note)
    pages = 0
    with engine.connect() as connection:
        for statement, parameters in asked:
            cursor = connection.connection.cursor()
            cursor.execute(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {statement}", parameters)
            [[[plan]]] = cursor.fetchall()
            pages += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
            cursor.close()
    return pages

"""What sweeping costs, and whom it disturbs: ``python -m benchmarks.sweeping``. See SWEEPING.md.

Each way of deleting gets the same rows in the same table, newly filled, while another process reads
and writes live rows of that table. Ratios are taken within a sitting, in which all ways take turns.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median, quantiles
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import create_engine, event

from benchmarks.harness import Estimate, estimate, rotated
from benchmarks.report import Finding, Report, update_readme
from benchmarks.sql_overhead import DATABASES, circumstances, versions
from benchmarks.sweeping_tables import DAY, WAYS, Entry, fill, sweep
from tests.backends import VARIABLES, fresh
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from benchmarks.harness import Round
    from benchmarks.sql_overhead import Database

README = Path(__file__).with_name("SWEEPING.md")

SPEED: Final = "1. Time per deleted row: the sweeper / another way"
DISTURBANCE: Final = "2. Somebody's statements on the same table: meanwhile / when all is idle"
IDLE: Final = "3. A sweep of a big table of which nothing has expired"
MEMORY: Final = "4. Memory that a sweep of the whole big table adds"

_ROWS: Final = {"postgres": 1_000_000, "mariadb": 200_000, "sqlite": 200_000}
"""So many that each way works for about a second: somebody's 99th percentile takes statements."""

_BIG: Final = {"postgres": 5_000_000, "mariadb": 1_000_000, "sqlite": 1_000_000}

_FEWEST: Final = 2
_IDLE_SECONDS: Final = 4.0
_IDLE_SWEEPS: Final = 20
_OBJECTS: Final = 2_000
"""Rows for the way that takes a hundred times as long; its time is per row."""

SWEEPER, AT_ONCE, BY_KEY, OBJECTS = WAYS
_LIMITS: Final = {AT_ONCE: 2.0, OBJECTS: 0.05}
"""Goals for the sweeper's time over theirs."""


class Bystander:
    """The process that works on the same table."""

    def __init__(self, url: str) -> None:
        """Start it, and wait until it works."""
        self._process = _python("work", url)
        assert self._process.stdout is not None  # noqa: S101 (a pipe)
        self._process.stdout.readline()

    def stop(self) -> dict[str, float]:
        """Let it end; return the median and the 99th percentile of what its statements took."""
        out, _ = self._process.communicate("stop\n")
        took = json.loads(out)
        return {"p50": median(took), "p99": quantiles(took, n=100)[98]}


def _python(what: str, url: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(  # noqa: S603 (our own module)
        [sys.executable, "-m", "benchmarks.sweeping_tables", what],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None  # noqa: S101 (a pipe)
    process.stdin.write(f"{url}\n")
    process.stdin.flush()
    return process


def sit(engine: Engine, url: str, rows: int, number: int) -> Round:
    """Let every way delete once; return seconds per row, and what the bystander's work took."""
    fill(engine, rows)
    bystander = Bystander(url)
    sleep(_IDLE_SECONDS)
    found = {f"idle {name}": value for name, value in bystander.stop().items()}
    for way in rotated(WAYS, number):
        fill(engine, min(rows, _OBJECTS) if way == OBJECTS else rows)
        bystander = Bystander(url)
        begin = perf_counter()
        deleted = WAYS[way](engine)
        took = perf_counter() - begin
        disturbed = bystander.stop()
        found[way] = took / deleted
        found |= {f"{way} {name}": value for name, value in disturbed.items()}
    return found


def compared(database: str, sittings: list[Round]) -> list[Finding]:
    """Turn sittings into findings."""
    rounds = [[each] for each in sittings]

    def ratio(over: str, under: str) -> dict[str, Any]:
        times = tuple(median(each[key] * 1e6 for each in sittings) for key in (over, under))
        return {"estimate": estimate(rounds, lambda each: each[over] / each[under]), "times": times}

    limits = {**_LIMITS}
    if database != "PostgreSQL":
        del limits[AT_ONCE]  # elsewhere that others get through comes first
    findings = [
        Finding(SPEED, way, database, "ratio", goal=limits.get(way), **ratio(SWEEPER, way))
        for way in (AT_ONCE, BY_KEY, OBJECTS)
    ]
    for way in WAYS:
        for name in ("p50", "p99"):
            goal = 2.0 if way == SWEEPER and name == "p99" and database == "PostgreSQL" else None
            findings.append(
                Finding(
                    DISTURBANCE,
                    f"{name} during {way}",
                    database,
                    "ratio",
                    goal=goal,
                    **ratio(f"{way} {name}", f"idle {name}"),
                )
            )
    return findings


def at_rest(database: str, engine: Engine, url: str, rows: int) -> list[Finding]:
    """Measure what a sweep takes that finds nothing, and the memory of one that deletes all."""
    fill(engine, rows, age=DAY // 2)
    sweeper = Sweeper(engine, Entry, lease=False)
    sweeper.run_once()
    times = []
    for _ in range(_IDLE_SWEEPS):
        begin = perf_counter()
        sweeper.run_once()
        times.append({"idle": (perf_counter() - begin) * 1e6})
    idle = estimate([[each] for each in times], lambda each: each["idle"])
    findings = [Finding(IDLE, f"time, {rows:,} rows", database, "µs", idle, goal=5_000.0)]
    if engine.dialect.name == "postgresql":
        pages = _counted(_pages(engine))
        what = f"pages read, {rows:,} rows"
        findings.append(Finding(IDLE, what, database, "pages", pages, goal=20.0))
    process = _python("remember", url)
    out, _ = process.communicate()
    grown = json.loads(out)
    memory = _counted(grown["kib"] / 1024)
    what = f"{grown['deleted']:,} rows"
    return [*findings, Finding(MEMORY, what, database, "MiB", memory, goal=30.0)]


def _counted(value: float) -> Estimate:
    return Estimate(value, value, value, value, value)


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


def measure(database: Database, arguments: argparse.Namespace) -> tuple[str, list[Finding]]:
    """Measure everything on one database."""
    with tempfile.TemporaryDirectory() as folder, fresh(database.backend, Path(folder)) as made:
        url = str(made.sync_url)
        engine = create_engine(url)
        rows = arguments.rows or _ROWS[database.backend.partition("-")[0]]
        big = arguments.big or _BIG[database.backend.partition("-")[0]]
        sittings = []
        for number in range(arguments.sittings):
            _tell(f"{database.name}: sitting {number + 1} of {arguments.sittings}")
            sittings.append(sit(engine, url, rows, number))
        _tell(f"{database.name}: a big table")
        findings = compared(database.name, sittings)
        findings += at_rest(database.name, engine, url, big)
        engine.dispose()
        return f"{versions(database, url)}; {rows:,} expired rows for each way", findings


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sweeping",
        description="Measure what sweeping costs and whom it disturbs, as ratios.",
        allow_abbrev=False,
    )
    parser.add_argument("--only", action="append", choices=DATABASES)
    parser.add_argument("--sittings", type=int, default=3, help="(%(default)s)")
    parser.add_argument(
        "--rows", type=int, help="expired rows for each way (by database: a second's worth)"
    )
    parser.add_argument("--big", type=int, help="rows of the big table (by database: millions)")
    parser.add_argument("--update-readme", action="store_true", help=f"put it into {README.name}")
    arguments = parser.parse_args()
    if arguments.sittings < _FEWEST:
        parser.error(f"--sittings: at least {_FEWEST}, or nothing can be said of their spread")
    return arguments


def main() -> int:
    """Measure, and show what was found."""
    arguments = _arguments()
    lines, findings, missing = [], [], []
    for key in dict.fromkeys(arguments.only or DATABASES):
        variable = VARIABLES.get(key)
        if variable is not None and not os.environ.get(variable):
            missing.append(f"{DATABASES[key].name}: not measured, {variable} is not set")
            continue
        line, found = measure(DATABASES[key], arguments)
        lines.append(line)
        findings += found
    sizes = f"{arguments.sittings} sittings"
    report = Report(circumstances(sizes, lines), findings, missing)
    sys.stdout.write(f"{report.as_text()}\n")
    if arguments.update_readme:
        update_readme(README, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

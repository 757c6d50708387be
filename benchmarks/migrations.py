"""How long a migration stalls a writer: ``python -m benchmarks.migrations``. See MIGRATIONS.md.

Another process updates single rows of the table, one after the other, while a step runs. What is
shown is the longest that one of its statements took, for our operation and for the migration that
one would write without it.
"""

from __future__ import annotations

import argparse
import os
import random
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from time import perf_counter, sleep
from typing import TYPE_CHECKING, Any, Final

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

import ttl_odm.alembic  # noqa: F401
from tests.backends import VARIABLES, fresh

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

README = Path(__file__).with_name("MIGRATIONS.md")
_BEGIN: Final = "<!-- results: written by --update-readme, not by hand -->\n"
_END: Final = "<!-- end of results -->"

BACKENDS: Final = {
    "postgres-psycopg": "PostgreSQL",
    "mariadb-pymysql": "MariaDB",
    "sqlite": "SQLite",
}
STEPS: Final = ("add", "drop indexes", "add indexes", "drop", "add, with backfill")


def fill(engine: Engine, rows: int) -> None:
    """Make the table anew, without TTL."""
    numbers = {
        "postgresql": f"SELECT n FROM generate_series(1, {rows}) n",  # noqa: S608
        "mysql": f"SELECT seq AS n FROM seq_1_to_{rows}",  # noqa: S608
        "sqlite": "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c "  # noqa: S608
        f"WHERE n < {rows}) SELECT n FROM c",
    }[engine.dialect.name]
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE IF EXISTS logins"))
        connection.execute(
            text(
                "CREATE TABLE logins (id INTEGER PRIMARY KEY, views INTEGER NOT NULL, "
                "who VARCHAR(60) NOT NULL, created_at TIMESTAMP NOT NULL)"
            )
        )
        connection.execute(
            text(
                "INSERT INTO logins SELECT n, 0, 'somebody with a name of usual length', "  # noqa: S608
                f"'2026-01-01 10:00:00' FROM ({numbers}) s"
            )
        )
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        analyze = {"mysql": "ANALYZE TABLE logins"}.get(engine.dialect.name, "ANALYZE")
        connection.execute(text(analyze))


class Writer:
    """The process that updates rows meanwhile."""

    def __init__(self, url: str, rows: int) -> None:
        """Start it, and wait until it works."""
        self._process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-m", "benchmarks.migrations", "--work", url, "--rows", str(rows)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None  # noqa: S101
        self._process.stdout.readline()

    def stop(self) -> float:
        """Let it end; return the longest of its statements, in seconds."""
        out, _ = self._process.communicate("stop\n")
        return float(out)


def work(url: str, rows: int) -> None:
    """Be that process."""
    arguments: dict[str, Any] = {"timeout": 300} if url.startswith("sqlite") else {}
    engine = create_engine(url, isolation_level="AUTOCOMMIT", connect_args=arguments)
    stopped = threading.Event()
    longest = 0.0
    statement = text("UPDATE logins SET views = views + 1 WHERE id = :id")
    with engine.connect() as connection:
        connection.execute(statement, {"id": 1})
        threading.Thread(target=_wait_for_stop, args=(stopped,)).start()
        print("ready", flush=True)  # noqa: T201
        while not stopped.is_set():
            begin = perf_counter()
            try:
                connection.execute(statement, {"id": random.randint(1, rows)})  # noqa: S311
            except OperationalError:
                # MariaDB: the table's definition has changed; the next statement sees it.
                connection.rollback()
            longest = max(longest, perf_counter() - begin)
            sleep(0.001)
    print(longest)  # noqa: T201


def _wait_for_stop(stopped: threading.Event) -> None:
    sys.stdin.readline()
    stopped.set()


_CLOCK: Final = {
    "postgresql": ("timestamptz", "clock_timestamp()"),
    "mysql": ("BIGINT", "(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)))"),
    "sqlite": ("BIGINT", "(CAST(ROUND((julianday('now') - 2440587.5) * 86400000) AS INTEGER))"),
}
_CHECK: Final = "CHECK (ttl IS NULL OR ttl = -1 OR ttl > 0)"
_INDEXES: Final = {
    "postgresql": (
        "CREATE INDEX inherited ON logins (_ts) WHERE ttl IS NULL",
        (
            "CREATE INDEX own ON logins ((((_ts AT TIME ZONE 'UTC') + ttl * interval '1 second') "
            "AT TIME ZONE 'UTC')) WHERE ttl > 0"
        ),
    ),
    "sqlite": (
        "CREATE INDEX inherited ON logins (_ts) WHERE ttl IS NULL",
        "CREATE INDEX own ON logins (_ts + ttl * 1000) WHERE ttl > 0",
    ),
    "mysql": (
        (
            "ALTER TABLE logins "
            "ADD COLUMN inh BIGINT AS (CASE WHEN ttl IS NULL THEN _ts END) VIRTUAL, "
            "ADD COLUMN own BIGINT AS (CASE WHEN ttl > 0 THEN _ts + ttl * 1000000 END) VIRTUAL, "
            "ADD INDEX inherited (inh), ADD INDEX own (own)"
        ),
    ),
}


def naive(engine: Engine, step: str) -> list[str]:
    """What one would write by hand, in one transaction."""
    name = engine.dialect.name
    kind, clock = _CLOCK[name]
    dropped = {
        "mysql": ["ALTER TABLE logins DROP INDEX inherited, DROP INDEX own, DROP inh, DROP own"],
    }.get(name, ["DROP INDEX inherited", "DROP INDEX own"])
    if step == "drop indexes":
        return dropped
    if step == "add indexes":
        return list(_INDEXES[name])
    if step == "drop":
        if name == "mysql":
            return [
                (
                    "ALTER TABLE logins DROP INDEX inherited, DROP INDEX own, DROP COLUMN inh, "
                    "DROP COLUMN own, DROP CONSTRAINT ck, DROP COLUMN _ts, DROP COLUMN ttl"
                )
            ]
        return [*dropped, *(f"ALTER TABLE logins DROP COLUMN {each}" for each in ("_ts", "ttl"))]
    added = [
        (
            f"ALTER TABLE logins ADD COLUMN _ts {kind} NOT NULL DEFAULT {clock}, "
            f"ADD COLUMN ttl INTEGER, ADD CONSTRAINT ck {_CHECK}"
        )
    ]
    if name == "sqlite":
        # Alembic's batch mode: SQLite can't add a column whose default is the clock.
        added = [
            (
                "CREATE TABLE copied (id INTEGER PRIMARY KEY, views INTEGER NOT NULL, who VARCHAR(60) "  # noqa: E501
                f"NOT NULL, created_at TIMESTAMP NOT NULL, _ts BIGINT NOT NULL DEFAULT {clock}, "
                f"ttl INTEGER {_CHECK})"
            ),
            "INSERT INTO copied (id, views, who, created_at) SELECT * FROM logins",
            "DROP TABLE logins",
            "ALTER TABLE copied RENAME TO logins",
        ]
    if step == "add, with backfill":
        old = {
            "postgresql": "created_at AT TIME ZONE 'UTC'",
            "mysql": "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', created_at)",
            "sqlite": "CAST(ROUND((julianday(created_at) - 2440587.5) * 86400000) AS INTEGER)",
        }[name]
        added.append(f"UPDATE logins SET _ts = {old}")  # noqa: S608
    return [*added, *_INDEXES[name]]


def run_naive(engine: Engine, step: str) -> None:
    """Do that."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("BEGIN IMMEDIATE")
        for statement in naive(engine, step):
            connection.exec_driver_sql(statement)
        connection.commit()


def run_ours(engine: Engine, step: str) -> None:
    """Let our operation do it."""
    with engine.connect() as connection:
        op: Any = Operations(MigrationContext.configure(connection))
        if step == "add":
            op.add_ttl("logins", 3600)
        elif step == "add, with backfill":
            op.add_ttl("logins", 3600, backfill="created_at")
        elif step == "drop":
            op.drop_ttl("logins")
        else:
            op.alter_ttl("logins", 3600, sweep="index" if step == "add indexes" else "scan")


WAYS: Final[dict[str, Callable[[Engine, str], None]]] = {"ours": run_ours, "naive": run_naive}


def measure(backend: str, rows: int) -> Iterator[tuple[str, dict[str, tuple[float, float]]]]:
    """Yield each step with, for both ways, the longest stall and the time of the whole step."""
    found: dict[str, dict[str, tuple[float, float]]] = {step: {} for step in STEPS}
    with tempfile.TemporaryDirectory() as folder, fresh(backend, Path(folder)) as made:
        assert made.sync_url is not None  # noqa: S101
        arguments: dict[str, Any] = {"timeout": 300} if backend == "sqlite" else {}
        engine = create_engine(made.sync_url, connect_args=arguments)
        if backend == "sqlite":
            with engine.connect() as connection:
                connection.exec_driver_sql("PRAGMA journal_mode = WAL")
        for way, run in WAYS.items():
            fill(engine, rows)
            for step in STEPS:
                writer = Writer(made.sync_url, rows)
                begin = perf_counter()
                try:
                    run(engine, step)
                finally:
                    took = perf_counter() - begin
                    stall = writer.stop()
                found[step][way] = (stall, took)
        engine.dispose()
    yield from found.items()


def table(backends: list[str], rows: int) -> str:
    """Measure, and print as Markdown."""
    lines = [
        f"{rows:,} rows; longest stall of a writer, and in brackets how long the step took.",
        "",
        "| database | step | with ttl_odm | naive |",
        "|---|---|---|---|",
    ]
    for backend in backends:
        for step, ways in measure(backend, rows):
            cells = [f"{ways[way][0] * 1e3:,.0f} ms ({ways[way][1]:.1f} s)" for way in WAYS]
            lines.append(f"| {BACKENDS[backend]} | {step} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)  # noqa: T201
    return "\n".join(lines) + "\n"


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--only", choices=[name.partition("-")[0] for name in BACKENDS])
    parser.add_argument("--update-readme", action="store_true")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.work:
        work(arguments.work, arguments.rows)
        return
    wanted = [
        name
        for name in BACKENDS
        if arguments.only in (None, name.partition("-")[0])
        and (name == "sqlite" or os.environ.get(VARIABLES[name.partition("-")[0]]))
    ]
    result = table(wanted, arguments.rows)
    print(result)  # noqa: T201
    if arguments.update_readme:
        text_ = README.read_text()
        head, _, rest = text_.partition(_BEGIN)
        tail = rest.partition(_END)[2]
        README.write_text(f"{head}{_BEGIN}\n{result}\n{_END}{tail}")


if __name__ == "__main__":
    main()

"""What a TTL costs on SQL databases: ``python -m benchmarks.sql_overhead``. See README.md.

The exit status is 0 whatever the figures are, for a benchmark is no test; 3 when it can't run.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import tempfile
from contextlib import contextmanager
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import create_engine, text
from sqlalchemy.exc import OperationalError

from benchmarks.harness import FEWEST_SITTINGS, ROUNDS
from benchmarks.report import Report, update_readme
from benchmarks.sql_bystanders import Bystanders
from benchmarks.sql_counts import count_statements
from benchmarks.sql_models import EXPIRES_EVERY, ROWS, create_tables
from benchmarks.sql_timing import Timing
from tests.backends import VARIABLES, fresh

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.report import Finding

README = Path(__file__).with_name("README.md")
CANNOT_RUN = 3
_SITTINGS = 10


class Database(NamedTuple):
    """A database to measure on.

    Attributes:
        name: as people call it.
        backend: as `tests.backends` calls it with its driver.
        driver: the distribution that the driver is from; None for the standard library.
        version: SQL that tells the server's version.
    """

    name: str
    backend: str
    driver: str | None
    version: str


DATABASES = {
    "sqlite": Database("SQLite", "sqlite", None, "SELECT sqlite_version()"),
    "postgres": Database("PostgreSQL", "postgres-psycopg", "psycopg", "SHOW server_version"),
    "mariadb": Database("MariaDB", "mariadb-pymysql", "pymysql", "SELECT VERSION()"),
}


def measure(database: Database, sittings: int) -> tuple[str, list[Finding]]:
    """Measure everything on one database.

    Args:
        database: which.
        sittings: how often to begin anew.

    Returns:
        A line about the versions, and the findings.
    """
    with _made_for(database) as url:
        findings = list(count_statements(database.name, url))
        timing, bystanders = Timing(database.name, url), Bystanders(database.name, url)
        for number in range(sittings):
            _tell(f"{database.name}: sitting {number + 1} of {sittings}")
            timing.sit(number)
            bystanders.sit(number)
        findings += [*timing.findings(), *bystanders.findings()]
        return versions(database, url), findings


@contextmanager
def _made_for(database: Database) -> Iterator[str]:
    """A new database with the tables, dropped afterwards."""
    with tempfile.TemporaryDirectory() as folder, fresh(database.backend, Path(folder)) as made:
        if made.sync_url is None:
            raise TypeError(f"{database.backend} has no synchronous driver")
        engine = create_engine(made.sync_url)
        create_tables(engine)
        engine.dispose()
        yield made.sync_url


def versions(database: Database, url: str) -> str:
    """A line about a server and its driver."""
    engine = create_engine(url)
    with engine.connect() as connection:
        server = connection.execute(text(database.version)).scalar_one()
    engine.dispose()
    driver = "" if database.driver is None else f", {database.driver} {version(database.driver)}"
    return f"{database.name} {server}{driver}"


def circumstances(sizes: str, databases: list[str]) -> list[str]:
    """What the figures depend on, a line each.

    Args:
        sizes: of what was measured, and how often.
        databases: what `versions` said.
    """
    now = datetime.now(timezone.utc)
    load = os.getloadavg()[2]
    return [
        f"{now:%Y-%m-%d %H:%M} UTC, {platform.system()} {platform.machine()}",
        f"{os.cpu_count()} cores, load {load:.1f} over the last 15 minutes",
        f"Python {platform.python_version()}, SQLAlchemy {version('sqlalchemy')}",
        *databases,
        sizes,
    ]


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sql_overhead",
        description="Measure what a TTL costs on SQL databases, as ratios.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--only",
        action="append",
        choices=DATABASES,
        help="measure on this database and no other; may be repeated",
    )
    parser.add_argument(
        "--sittings",
        type=int,
        default=_SITTINGS,
        help="how often to begin anew, with new connections and processes (%(default)s)",
    )
    parser.add_argument("--json", type=Path, help="write everything, unrounded, to this file too")
    parser.add_argument(
        "--update-readme", action="store_true", help=f"put the tables into {README.name}"
    )
    arguments = parser.parse_args()
    if arguments.sittings < FEWEST_SITTINGS:
        parser.error(f"--sittings: fewer than {FEWEST_SITTINGS} give no 95 % interval")
    return arguments


def main() -> int:
    """Measure, and show what was found."""
    arguments = _arguments()
    servers: list[str] = []
    findings: list[Finding] = []
    missing: list[str] = []
    for key in dict.fromkeys(arguments.only or DATABASES):
        database, variable = DATABASES[key], VARIABLES.get(key)
        if variable is not None and not os.environ.get(variable):
            missing.append(f"{database.name}: not measured, {variable} is not set")
            continue
        try:
            line, found = measure(database, arguments.sittings)
        except OperationalError as error:
            _tell(f"{database.name}: cannot run: {error.orig}")
            return CANNOT_RUN
        servers.append(line)
        findings += found
    if not findings:
        _tell("\n".join(missing))
        return CANNOT_RUN
    live = 100 - 100 / EXPIRES_EVERY
    sizes = f"{arguments.sittings} sittings of {ROUNDS} rounds; {ROWS:,} rows, {live:.1f} % live"
    report = Report(circumstances(sizes, servers), findings, missing)
    sys.stdout.write(f"{report.as_text()}\n")
    if arguments.json is not None:
        arguments.json.write_text(f"{report.as_json()}\n", encoding="utf-8")
    if arguments.update_readme:
        update_readme(README, report)
    return 0


if __name__ == "__main__":
    sys.exit(main())

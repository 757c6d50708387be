"""What a benchmark is given: sizes, and the databases that there are.

Each benchmark is a module with a function ``measure(bench)`` that yields its findings.
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import create_engine, text

from benchmarks.proxy import is_reachable
from tests.backends import MYSQL_WANTED, VARIABLES, fresh
from tests.backends import databases as wanted_databases

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Sizes(NamedTuple):
    """Of how much there is more and more, where growth is measured; from the least to the most.

    Attributes:
        rows: of a table.
        swept: expired rows that a sweep deletes; the most of them in the first sitting only.
        tenants: those who have a stored default of their own, in a table of the fewest rows.
        tables: of a process, with a TTL.
        sweepers: that begin at once.
    """

    rows: tuple[int, ...]
    swept: tuple[int, ...]
    tenants: tuple[int, ...]
    tables: tuple[int, ...]
    sweepers: tuple[int, ...]


@dataclass(frozen=True)
class Scale:
    """How much is measured, and how often.

    Attributes:
        sittings: how often to begin anew, with new connections and processes.
        rounds: how often everything takes its turn in a sitting.
        expired: rows that each of these deletes, by database: about a second's worth.
        one_by_one: rows for the ways that take a hundred times as long; their time is per row.
        big: rows of the table of which nothing has expired, by database.
        migrated: rows of the table that is migrated.
        replicated: rows that are swept while replicas follow.
        cut: rows of the table that is cut into partitions, by database.
        idle_seconds: how long somebody works on a database where nothing else is going on.
        sweep_seconds: how long expired rows are watched where the database deletes them by itself.
        timers: rows with events that are pending.
        ended: how many of them end while it is measured.
        timer_seconds: how long it takes until these have ended.
        monitor: whether MongoDB's own monitor takes its turn, which may sleep for a minute first.
        sizes: of how much there is more and more.
    """

    sittings: int
    rounds: int
    expired: Mapping[str, int]
    one_by_one: int
    big: Mapping[str, int]
    migrated: int
    replicated: int
    cut: Mapping[str, int]
    idle_seconds: float
    sweep_seconds: float
    timers: int
    ended: int
    timer_seconds: float
    monitor: bool
    sizes: Sizes

    @property
    def text(self) -> str:
        """The sizes in words."""
        expired, big = (
            ", ".join(f"{rows:,} ({key})" for key, rows in sizes.items())
            for sizes in (self.expired, self.big)
        )
        return (
            f"{self.sittings} sittings of {self.rounds} rounds; each way deletes {expired} rows, "
            f"row by row {self.one_by_one:,}; nothing has expired of {big} rows; "
            f"{self.migrated:,} rows are migrated, and {self.replicated:,} swept beside replicas"
        )


_SECONDS_WORTH = {
    "postgres": 1_000_000,
    "mariadb": 200_000,
    "mysql": 100_000,
    "sqlite": 200_000,
    "mongodb": 60_000,
}
_BIG = {
    "postgres": 5_000_000,
    "mariadb": 1_000_000,
    "mysql": 500_000,
    "sqlite": 1_000_000,
    "mongodb": 500_000,
}

SCALES = {
    "full": Scale(
        sittings=6,
        rounds=40,
        expired=_SECONDS_WORTH,
        one_by_one=2_000,
        big=_BIG,
        migrated=1_000_000,
        replicated=1_000_000,
        cut={"postgres": 10_000_000, "mariadb": 1_000_000, "mysql": 500_000},
        idle_seconds=4.0,
        sweep_seconds=120.0,
        timers=100_000,
        ended=25_000,
        timer_seconds=100.0,
        monitor=True,
        sizes=Sizes(
            rows=(10_000, 100_000, 1_000_000, 10_000_000),
            swept=(10_000, 100_000, 1_000_000, 10_000_000),
            tenants=(1, 100, 10_000),
            tables=(1, 20, 200),
            sweepers=(1, 8, 64),
        ),
    ),
    "quick": Scale(
        sittings=2,
        rounds=10,
        expired=dict.fromkeys(_BIG, 20_000),
        one_by_one=200,
        big=dict.fromkeys(_BIG, 50_000),
        migrated=50_000,
        replicated=50_000,
        cut={"postgres": 300_000, "mariadb": 50_000, "mysql": 50_000},
        idle_seconds=1.0,
        sweep_seconds=15.0,
        timers=10_000,
        ended=2_500,
        timer_seconds=10.0,
        monitor=True,
        sizes=Sizes(
            rows=(10_000, 100_000, 1_000_000),
            swept=(10_000, 100_000),
            tenants=(1, 100, 10_000),
            tables=(1, 20, 200),
            sweepers=(1, 8, 64),
        ),
    ),
    "smoke": Scale(
        sittings=1,
        rounds=2,
        expired=dict.fromkeys(_BIG, 1_000),
        one_by_one=20,
        big=dict.fromkeys(_BIG, 1_000),
        migrated=1_000,
        replicated=1_000,
        cut=dict.fromkeys(_BIG, 1_000),
        idle_seconds=0.1,
        sweep_seconds=3.0,
        timers=100,
        ended=50,
        timer_seconds=0.25,
        monitor=False,
        sizes=Sizes(
            rows=(100, 1_000), swept=(100, 1_000), tenants=(1, 10), tables=(1, 3), sweepers=(1, 3)
        ),
    ),
}


class Database(NamedTuple):
    """A SQL database to measure on.

    Attributes:
        key: as the command line calls it.
        name: as people call it.
        backend: as `tests.backends` calls it with its driver.
        driver: the distribution that the driver is from; None for the standard library.
        version: SQL that tells the server's version.
    """

    key: str
    name: str
    backend: str
    driver: str | None
    version: str

    @contextmanager
    def made(self) -> Iterator[str]:
        """A new, empty database as SQLAlchemy's URL; it is dropped with the block."""
        with tempfile.TemporaryDirectory() as folder, fresh(self.backend, Path(folder)) as made:
            if made.sync_url is None:
                raise TypeError(f"{self.backend} has no synchronous driver")
            yield made.sync_url


_DATABASES = (
    Database("sqlite", "SQLite", "sqlite", None, "SELECT sqlite_version()"),
    Database("postgres", "PostgreSQL", "postgres-psycopg", "psycopg", "SHOW server_version"),
    Database("mariadb", "MariaDB", "mariadb-pymysql", "pymysql", "SELECT VERSION()"),
    Database("mysql", "MySQL", "mysql-pymysql", "pymysql", "SELECT VERSION()"),
)
MONGODB = "MongoDB"
KEYS = (*(database.key for database in _DATABASES), "mongodb")


@dataclass(frozen=True)
class Bench:
    """What there is to measure with.

    Attributes:
        scale: how much.
        databases: the SQL databases.
        mongodb: the MongoDB server's URL; None if there is none, or it isn't wanted.
        rivals: a Python that has sqlalchemy-easy-softdelete; None if there is none.
    """

    scale: Scale
    databases: tuple[Database, ...]
    mongodb: str | None
    rivals: str | None

    @classmethod
    def of(cls, scale: Scale, only: list[str], rivals: str | None) -> Bench:
        """Take what the environment variables name.

        Args:
            scale: how much to measure.
            only: keys of the databases that are wanted; empty for all.
            rivals: a Python that has the other package.
        """
        there = {key for key in only or KEYS if key == "sqlite" or os.environ.get(VARIABLES[key])}
        databases = tuple(database for database in _DATABASES if database.key in there)
        url = os.environ[VARIABLES["mongodb"]] if "mongodb" in there else None
        return cls(scale, databases, url, rivals)

    def missing(self, only: list[str]) -> list[str]:
        """One line for each thing that can't be measured here, with the reason."""
        there = {database.key for database in self.databases} | (
            {"mongodb"} if self.mongodb else set()
        )
        lines = [
            f"{key}: not measured, {_why_not(key)}" for key in only or KEYS if key not in there
        ]
        lines += [
            f"{key}: not measured with a round trip of 0.5 ms, {VARIABLES[key]} names several hosts"
            for key in sorted(there & VARIABLES.keys())
            if not is_reachable(os.environ[VARIABLES[key]])
        ]
        if self.rivals is None:
            lines.append("sqlalchemy-easy-softdelete: not measured, --rivals names no Python")
        return lines

    def versions(self) -> list[str]:
        """A line about each thing that the figures depend on.

        Raises:
            sqlalchemy.exc.OperationalError: a server doesn't answer.
            pymongo.errors.ConnectionFailure: the same of MongoDB.
        """
        names = ("SQLAlchemy", "Django", "Alembic", "Beanie", "PyMongo")
        python = ", ".join(f"{name} {version(name.lower())}" for name in names)
        lines = [
            f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
            f"Python {platform.python_version()}, {python}",
        ]
        for database in self.databases:
            with database.made() as url:
                engine = create_engine(url)
                with engine.connect() as connection:
                    server = connection.execute(text(database.version)).scalar_one()
                engine.dispose()
            driver = database.driver
            said = "" if driver is None else f", {driver} {version(driver)}"
            lines.append(f"{database.name} {server}{said}")
        if self.mongodb is not None:
            lines.append(f"{MONGODB} {_mongodb_version(self.mongodb)}")
        return lines


def _why_not(key: str) -> str:
    if key in wanted_databases():
        return f"{VARIABLES[key]} is not set"
    return f"it was not available, or {MYSQL_WANTED}=none leaves it out"


def _mongodb_version(url: str) -> str:
    from pymongo import MongoClient  # noqa: PLC0415 - not needed where there is no MongoDB

    with MongoClient[dict[str, object]](url) as client:
        return str(client.server_info()["version"])


def find_tools() -> None:
    """Let what is in the folder `tools` be imported, as `local_servers` is."""
    folder = str(Path(__file__).parents[1] / "tools")
    if folder not in sys.path:
        sys.path.append(folder)


def tell(line: str) -> None:
    """Tell whoever waits how far things are."""
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()

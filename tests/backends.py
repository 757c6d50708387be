"""The databases that the tests run on: which there are, and a fresh one for each test.

Every SQL test gets a database of its own, made empty before it and dropped after it, so that no
test can depend on another's tables and any URL-taking tool (Alembic, the command line) can be
tested as it is. Nothing here imports a driver before it is used: tests/unit runs without any.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import uuid
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence
    from pathlib import Path

    from sqlalchemy import Connection, Engine

SQLITE = "sqlite"
DATABASES = (SQLITE, "postgres", "mariadb", "mysql", "mongodb")

# The servers' addresses; tools/servers.py sets these.
VARIABLES = {
    "postgres": "TTL_ODM_TEST_POSTGRES_URL",
    "mariadb": "TTL_ODM_TEST_MARIADB_URL",
    "mysql": "TTL_ODM_TEST_MYSQL_URL",
    "mongodb": "TTL_ODM_TEST_MONGODB_URL",
}


# Whether to do without MySQL; tools/servers.py sets it to "none" where that was not available.
MYSQL_WANTED = "TTL_ODM_TEST_MYSQL"


class MissingServerError(Exception):
    """A test needs a server whose address nobody gave."""


@dataclass(frozen=True)
class Backend:
    """One database reached through one driver.

    Attributes:
        name: the database, and the driver unless it is SQLite's own.
        sync_url: SQLAlchemy's URL for `create_engine`; None if the driver is only asynchronous.
        async_url: SQLAlchemy's URL for `create_async_engine`; None if it is only synchronous.
    """

    name: str
    sync_url: str | None
    async_url: str | None

    @property
    def database(self) -> str:
        """Which database it is: sqlite, postgres, mariadb or mysql."""
        return database_of(self.name)


READ_ONLY = {
    "postgresql": "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
    "mysql": "SET SESSION TRANSACTION READ ONLY",
    "mariadb": "SET SESSION TRANSACTION READ ONLY",
}
"""What lets a session take no writes, as a standby does, by SQLAlchemy's or Django's name."""

# Name: the URL schemes for synchronous and for asynchronous engines.
_SCHEMES: dict[str, tuple[str | None, str | None]] = {
    SQLITE: ("sqlite", "sqlite+aiosqlite"),
    "postgres-psycopg": ("postgresql+psycopg", "postgresql+psycopg"),
    "postgres-asyncpg": (None, "postgresql+asyncpg"),
    "postgres-psycopg2": ("postgresql+psycopg2", None),
    "postgres-pg8000": ("postgresql+pg8000", None),
    "mariadb-pymysql": ("mysql+pymysql", None),
    "mariadb-aiomysql": (None, "mysql+aiomysql"),
    "mariadb-mysqldb": ("mysql+mysqldb", None),
    "mariadb-mysqlconnector": ("mysql+mysqlconnector", None),
    "mariadb-mariadbconnector": ("mysql+mariadbconnector", None),
    # SQLAlchemy knows MariaDB by two names, of which the other tests use one.
    "mariadb-asyncmy": (None, "mariadb+asyncmy"),
    "mysql-pymysql": ("mysql+pymysql", None),
    "mysql-aiomysql": (None, "mysql+aiomysql"),
    "mysql-mysqldb": ("mysql+mysqldb", None),
    "mysql-mysqlconnector": ("mysql+mysqlconnector", None),
    "mysql-asyncmy": (None, "mysql+asyncmy"),
}

# What they do differently (parameters, errors, lost connections) is in the contract and sweeper:
# elsewhere a second driver of the same server would double the time, and find nothing.
_SECOND_DRIVERS = {
    *("postgres-psycopg2", "postgres-pg8000"),
    *("mariadb-mysqldb", "mariadb-mysqlconnector", "mariadb-mariadbconnector", "mariadb-asyncmy"),
    *("mysql-mysqldb", "mysql-mysqlconnector", "mysql-asyncmy"),
}

# The packages of drivers that have to be compiled against a library in C, so no extra asks for
# them: tests run with them where they are installed.
_COMPILED = {"mysqldb": "mysqlclient", "mariadbconnector": "mariadb"}

# What makes and drops databases.
_ADMINISTRATORS = {
    "postgres": "postgresql+psycopg",
    "mariadb": "mysql+pymysql",
    "mysql": "mysql+pymysql",
}

_SYNC_DRIVERS = {
    "sqlite+aiosqlite": "sqlite",
    "postgresql+asyncpg": "postgresql+psycopg",
    "mysql+aiomysql": "mysql+pymysql",
    "mysql+asyncmy": "mysql+pymysql",
    "mariadb+asyncmy": "mysql+pymysql",
}


def database_of(name: str) -> str:
    """Return the database's part of a backend's name."""
    return name.partition("-")[0]


def sync_backends(databases: Collection[str], *, every_driver: bool = False) -> list[str]:
    """List the backends of these databases that `create_engine` can use.

    Args:
        databases: their names.
        every_driver: whether to list more than one driver of a database.
    """
    fitting = [name for name, (scheme, _) in _SCHEMES.items() if _fits(name, scheme, databases)]
    return [name for name in fitting if every_driver or name not in _SECOND_DRIVERS]


def async_backends(databases: Collection[str], *, every_driver: bool = False) -> list[str]:
    """List the backends of these databases that `create_async_engine` can use.

    Args:
        databases: their names.
        every_driver: whether to list those that come second to another one.
    """
    fitting = [name for name, (_, scheme) in _SCHEMES.items() if _fits(name, scheme, databases)]
    return [name for name in fitting if every_driver or name not in _SECOND_DRIVERS]


def drivers_left_out() -> list[str]:
    """List the drivers that no test runs with, because they aren't installed."""
    return sorted(driver for driver in _COMPILED if not _is_there(driver))


def _fits(name: str, scheme: str | None, databases: Collection[str]) -> bool:
    driver = name.partition("-")[2]
    return scheme is not None and database_of(name) in databases and _is_there(driver)


@cache
def _is_there(driver: str) -> bool:
    return driver not in _COMPILED or is_installed(_COMPILED[driver])


def is_installed(package: str) -> bool:
    """Whether a package is installed; its module may be there by another's standing in for it."""
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def databases(environment: Mapping[str, str] = os.environ) -> set[str]:
    """Return the databases that tests run on."""
    without = {"mysql"} if environment.get(MYSQL_WANTED) == "none" else set()
    return set(DATABASES) - without


def server_url(database: str, environment: Mapping[str, str] = os.environ) -> str:
    """Return the address of a server.

    Raises:
        MissingServerError: its environment variable is not set; the message says what to do.
    """
    variable = VARIABLES[database]
    url = environment.get(variable)
    if not url:
        message = (
            f"{variable} is not set. Run 'python3 tools/dev.py test', which starts the servers, "
            "or 'python3 tools/servers.py -- .venv/bin/pytest', or set it to a server of yours, "
            "or leave this database out with --only"
        )
        raise MissingServerError(message)
    return url


def with_scheme(url: str, scheme: str | None, database: str) -> str | None:
    """Return a server's URL for a driver and a database; None if there is no driver."""
    if scheme is None:
        return None
    return _in_haste(urlsplit(url)._replace(scheme=scheme, path=f"/{database}").geturl())


def synchronous(url: str) -> str:
    """Return the URL for `create_engine` of a database, from one for either kind of engine."""
    scheme, _, rest = url.partition("://")
    driver = _SYNC_DRIVERS.get(scheme, scheme)
    return url if driver == scheme else _in_haste(f"{driver}://{rest}")


def _in_haste(url: str) -> str:
    """Keep PyMySQL from reading all of the system's certificates for each connection: 20 ms."""
    if not url.startswith("mysql+pymysql:"):
        return url
    return f"{url}{'&' if '?' in url else '?'}ssl_disabled=true"


@contextlib.contextmanager
def fresh(name: str, folder: Path) -> Iterator[Backend]:
    """Make an empty database and drop it afterwards, whoever is still connected to it.

    Args:
        name: a backend's name.
        folder: where SQLite's file goes.
    """
    sync_scheme, async_scheme = _SCHEMES[name]
    if name == SQLITE:
        path = folder / "test.sqlite3"
        yield Backend(name, f"{sync_scheme}:///{path}", f"{async_scheme}:///{path}")
        return
    database = database_of(name)
    url = server_url(database)
    if database == "postgres":
        with _spare_postgres(url) as fresh_name:
            yield Backend(
                name,
                with_scheme(url, sync_scheme, fresh_name),
                with_scheme(url, async_scheme, fresh_name),
            )
        return
    fresh_name = f"ttl_odm_{uuid.uuid4().hex[:16]}"
    with _administrator(url, database).connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {fresh_name}")
        try:
            yield Backend(
                name,
                with_scheme(url, sync_scheme, fresh_name),
                with_scheme(url, async_scheme, fresh_name),
            )
        finally:
            _DROP[database](connection, fresh_name)


_SPARE: dict[str, list[tuple[str, Any]]] = {}
"""Databases of PostgreSQL that are empty again, with a connection to each, by the server's address.

To copy a template's files, and to connect, takes as long as most tests do otherwise."""

_EMPTY = """
SELECT pg_terminate_backend(pid, 2000) FROM pg_stat_activity
  WHERE datname = current_database() AND pid <> pg_backend_pid();
DO $$
DECLARE found name;
BEGIN
  IF EXISTS (SELECT FROM pg_db_role_setting s JOIN pg_database d ON d.oid = s.setdatabase
             WHERE d.datname = current_database())
      OR EXISTS (SELECT FROM pg_publication) OR EXISTS (SELECT FROM pg_event_trigger)
      OR EXISTS (SELECT FROM pg_extension WHERE extname <> 'plpgsql')
      OR EXISTS (SELECT FROM pg_foreign_data_wrapper) OR EXISTS (SELECT FROM pg_default_acl)
      OR EXISTS (SELECT FROM pg_prepared_xacts WHERE database = current_database())
      OR EXISTS (SELECT FROM pg_replication_slots WHERE database = current_database()) THEN
    RAISE 'a test has made what does not go with a schema';
  END IF;
  FOR found IN SELECT nspname FROM pg_namespace
      WHERE nspname !~ '^pg_' AND nspname <> 'information_schema' LOOP
    EXECUTE format('DROP SCHEMA %I CASCADE', found);
  END LOOP;
  CREATE SCHEMA public AUTHORIZATION pg_database_owner;
  GRANT USAGE ON SCHEMA public TO PUBLIC;
END $$"""


@contextlib.contextmanager
def _spare_postgres(url: str) -> Iterator[str]:
    """Give a database that is as new; one that can't be made so again is dropped."""
    import psycopg

    spare = _SPARE.setdefault(url, [])
    if spare:
        name, keeper = spare.pop()
    else:
        name = f"ttl_odm_{uuid.uuid4().hex[:16]}"
        with _administrator(url, "postgres").connect() as connection:
            connection.exec_driver_sql(f"CREATE DATABASE {name}")
        address = urlsplit(url)._replace(path=f"/{name}").geturl()
        keeper = psycopg.connect(address, autocommit=True)
        atexit.register(keeper.close)
    try:
        yield name
    finally:
        try:
            keeper.execute(_EMPTY)
        except psycopg.Error:
            keeper.close()
            with _administrator(url, "postgres").connect() as connection:
                _drop_postgres(connection, name)
        else:
            spare.append((name, keeper))


@cache
def _administrator(url: str, database: str) -> Engine:
    """Keep one engine for the whole run: to connect takes as long as to make a database."""
    from sqlalchemy import create_engine

    address = urlsplit(url)._replace(scheme=_ADMINISTRATORS[database]).geturl()
    engine = create_engine(_in_haste(address), isolation_level="AUTOCOMMIT", pool_pre_ping=True)
    atexit.register(engine.dispose)
    return engine


def _drop_postgres(connection: Connection, name: str) -> None:
    connection.exec_driver_sql(f"DROP DATABASE {name} WITH (FORCE)")


def _drop_mysql(connection: Connection, name: str) -> None:
    # DROP DATABASE would wait a day for the metadata lock of a transaction that a test left open.
    from sqlalchemy.exc import DBAPIError

    connection.exec_driver_sql("SET SESSION lock_wait_timeout = 30")
    threads = connection.exec_driver_sql(
        "SELECT id FROM information_schema.processlist WHERE db = %s", (name,)
    )
    for thread in threads.scalars().all():
        with contextlib.suppress(DBAPIError):  # It may just have ended by itself.
            connection.exec_driver_sql(f"KILL CONNECTION {thread:d}")
    connection.exec_driver_sql(f"DROP DATABASE {name}")


_DROP = {"postgres": _drop_postgres, "mariadb": _drop_mysql, "mysql": _drop_mysql}


def refusing(
    database: str, target: str, keys: Collection[int]
) -> tuple[Sequence[str], Sequence[str]]:
    """What makes, and what drops, a trigger that raises where one of some rows is deleted."""
    condition = f"OLD.id IN ({', '.join(map(str, keys))})"
    body, before = "SELECT RAISE(ABORT, 'not this one');", f"BEFORE DELETE ON {target} FOR EACH ROW"
    dropped = ["DROP TRIGGER refuse"]
    if database == "sqlite":
        return [f"CREATE TRIGGER refuse {before} WHEN {condition} BEGIN {body} END"], dropped
    if database == "postgresql":
        raises = "BEGIN RAISE EXCEPTION 'not this one'; END"
        return [
            f"CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $${raises}$$",
            f"CREATE TRIGGER refuse {before} WHEN ({condition}) EXECUTE FUNCTION refuse()",
        ], [f"DROP TRIGGER refuse ON {target}", "DROP FUNCTION refuse"]
    body = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not this one'; END IF;"
    return [f"CREATE TRIGGER refuse {before} BEGIN IF {condition} THEN {body} END"], dropped

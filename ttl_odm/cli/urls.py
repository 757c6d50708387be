"""Database URLs: engines and clients for them, and their text without passwords."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.cli.errors import UsageError
from ttl_odm.sweeper.command_line import without_passwords

if TYPE_CHECKING:
    from sqlalchemy import URL
    from sqlalchemy.engine.interfaces import DBAPIConnection

_EXAMPLES: Final = (
    "postgresql://user@host/database, mysql://user@host/database, sqlite:///file.sqlite3 or "
    "mongodb://host/database"
)
_OF_MYSQL: Final = (
    *("pymysql", "mysqldb", "mysqlconnector", "mariadbconnector"),
    *("aiomysql", "asyncmy"),
)
_DRIVERS: Final = {
    "postgresql": ("psycopg", "psycopg2", "asyncpg", "pg8000"),
    "mysql": _OF_MYSQL,
    "mariadb": _OF_MYSQL,
    "sqlite": ("pysqlite",),
}
"""Drivers for a URL that names none: the first that is installed is used."""

_MODULES: Final = {
    "mysqldb": "MySQLdb",
    "mysqlconnector": "mysql.connector",
    "mariadbconnector": "mariadb",
    "pysqlite": "sqlite3",
}
"""The modules of drivers whose module has another name."""

_PACKAGES: Final = {"MySQLdb": "mysqlclient", "mysql": "mysql-connector-python"}
"""The packages of modules whose package has another name."""


def is_mongodb(url: str) -> bool:
    """Whether a URL is MongoDB's."""
    return url.startswith(("mongodb://", "mongodb+srv://"))


def public_url(url: str) -> str:
    """Return a URL without its password and its query, for people.

    A password may have characters that should have been encoded, so it reaches up to the last @. A
    text without a scheme, which isn't a URL, may also have one.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    secret = f"{colon}***" if colon else ""
    return without_passwords(f"{scheme}{separator}{user}{secret}{at}{place}").partition("?")[0]


def pasted_url(url: str) -> str:
    """Return a URL for a line to paste; dots if it may have a password."""
    return url if url == public_url(url) else "..."


def in_folder(url: str, folder: Path) -> str:
    """Return a URL whose relative SQLite file, if it has one, is in a folder."""
    scheme, separator, file = url.partition(":///")
    if scheme.partition("+")[0] != "sqlite" or not _is_a_file(file) or file.startswith("/"):
        return url
    return f"{scheme}{separator}{folder / file}"


def sql_engine(url: str) -> Any:
    """Make an engine, which is asynchronous if the URL's driver is.

    If the URL doesn't name a driver, the first installed one is used. SQLite enforces foreign keys,
    unlike by default, so that a sweep leaves no rows without their parent.
    """
    parsed = _parsed(url)
    from sqlalchemy import create_engine, event  # noqa: PLC0415 (needs the extra)

    is_async = parsed.get_dialect().is_async
    if is_async and not _is_installed("greenlet"):
        raise UsageError(
            f"{public_url(url)} names an asynchronous driver, for which SQLAlchemy needs "
            "greenlet: install it with pip install 'ttl-odm[cli,sqlalchemy]', or choose a "
            f"synchronous driver with {parsed.get_backend_name()}+driver://..."
        )
    try:
        if is_async:
            from sqlalchemy.ext.asyncio import create_async_engine  # noqa: PLC0415 (needs greenlet)

            engine: Any = create_async_engine(parsed)
        else:
            engine = create_engine(parsed)
    except ModuleNotFoundError as error:
        # SQLAlchemy's own choice for MySQL would have to be compiled.
        name = _DRIVERS.get(parsed.drivername, (str(error.name),))[0]
        package = _PACKAGES.get(name, name)
        raise UsageError(
            f"{public_url(url)} needs the driver {name!r}: install it with pip install "
            f"{package}, or choose another with {parsed.get_backend_name()}+driver://..."
        ) from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine.sync_engine if is_async else engine, "connect", _enforce_foreign_keys)
    return engine


def _enforce_foreign_keys(connection: DBAPIConnection, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = ON")
    cursor.close()


def _parsed(url: str) -> URL:
    if not url:
        raise UsageError(
            "the database URL is empty. If it comes from an environment variable, that isn't "
            "set here: cron and systemd don't pass on a shell's variables."
        )
    if importlib.util.find_spec("sqlalchemy") is None:
        raise UsageError(
            f"{public_url(url)} needs SQLAlchemy: install it with "
            "pip install 'ttl-odm[cli,sqlalchemy]'."
        )
    from sqlalchemy import make_url  # noqa: PLC0415 (needs the extra)
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError  # noqa: PLC0415

    try:
        parsed = make_url(url.replace("postgres://", "postgresql://", 1))
        drivers = _DRIVERS.get(parsed.drivername, ())
        driver = next(filter(_is_installed, drivers), None)
        if driver is not None:
            parsed = parsed.set(drivername=f"{parsed.drivername}+{driver}")
        parsed.get_dialect()  # doesn't import the driver
    except (ArgumentError, NoSuchModuleError, ValueError) as error:  # ValueError: a wrong port
        raise UsageError(
            f"{public_url(url)!r} is not a database URL that ttl-odm supports: give one such as "
            f"{_EXAMPLES}."
        ) from error
    if "@" in (parsed.host or ""):  # the rest of the password, which the driver would print
        raise UsageError(f"{public_url(url)}: write each @ of the password as %40.")
    file = parsed.database or ""
    if parsed.get_backend_name() == "sqlite" and _is_a_file(file) and not Path(file).is_file():
        # Opening it would create an empty one.
        raise UsageError(f"There is no SQLite file {file!r}.")
    return parsed


def _is_a_file(database: str) -> bool:
    """Whether a database of SQLite is a path, not one in memory or a ``file:`` URI."""
    return database.partition("?")[0] not in ("", ":memory:") and not database.startswith("file:")


def _is_installed(driver: str) -> bool:
    try:
        return importlib.util.find_spec(_MODULES.get(driver, driver)) is not None
    except ModuleNotFoundError:  # its parent package is missing
        return False


def mongodb_name(url: str) -> str:
    """Return the name of the database in a MongoDB URL."""
    if importlib.util.find_spec("pymongo") is None:
        raise UsageError(
            f"{public_url(url)} needs PyMongo: install it with pip install 'ttl-odm[cli,beanie]'."
        )
    from pymongo.errors import InvalidURI  # noqa: PLC0415 (needs the extra)
    from pymongo.uri_parser import parse_uri  # noqa: PLC0415

    try:
        name = parse_uri(url, validate=False).get("database")
    except (InvalidURI, ValueError) as error:  # ValueError: a wrong port; both may quote a password
        raise UsageError(
            f"{public_url(url)!r} is not a MongoDB URL: give one such as "
            "mongodb://host/database. Escape : / ? # [ ] @ % in a user name or password, as "
            "quote_plus() does."
        ) from error
    if not name:
        raise UsageError(
            f"{public_url(url)}: add the name of the database, as in mongodb://host/database."
        )
    return str(name)


def mongodb_options(url: str) -> dict[str, Any]:
    """Return a client's arguments: a short timeout for finding a server, unless the URL has one."""
    has_timeout = "serverselectiontimeoutms=" in url.lower()
    return {} if has_timeout else {"serverSelectionTimeoutMS": 5_000}


def mongodb_client(url: str) -> Any:
    """Make a client for the installed Beanie; before 2.0 that is Motor's."""
    first_without_motor = 2
    if int(version("beanie").partition(".")[0]) < first_without_motor:
        from motor.motor_asyncio import AsyncIOMotorClient  # noqa: PLC0415 (not for Beanie 2)

        return AsyncIOMotorClient(url, **mongodb_options(url))
    from pymongo import AsyncMongoClient  # noqa: PLC0415 (needs the extra)

    return AsyncMongoClient(url, **mongodb_options(url))

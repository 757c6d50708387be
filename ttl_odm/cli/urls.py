"""Database URLs: engines and clients from them, and how they are printed, without passwords."""

from __future__ import annotations

import importlib.util
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ttl_odm.cli.errors import UsageError
from ttl_odm.sweeper.command_line import without_passwords

if TYPE_CHECKING:
    from sqlalchemy import URL

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
"""What is taken for a URL that names no driver: the first that is installed."""

_MODULES: Final = {
    "mysqldb": "MySQLdb",
    "mysqlconnector": "mysql.connector",
    "mariadbconnector": "mariadb",
    "pysqlite": "sqlite3",
}
"""What is imported of drivers that have another name there."""

_PACKAGES: Final = {"MySQLdb": "mysqlclient", "mysql": "mysql-connector-python"}
"""What pip calls that."""


def is_mongodb(url: str) -> bool:
    """Whether it is MongoDB's."""
    return url.startswith(("mongodb://", "mongodb+srv://"))


def public_url(url: str) -> str:
    """Return a URL for people: without its password, and without what its query says.

    A password may have any character in it that should have been encoded, so everything up to the
    last @ is its. It may also stand in what has no scheme and is not a URL.
    """
    scheme, separator, rest = url.partition("://")
    if not separator:
        scheme, rest = "", url
    login, at, place = rest.rpartition("@")
    user, colon, _ = login.partition(":")
    secret = f"{colon}***" if colon else ""
    return without_passwords(f"{scheme}{separator}{user}{secret}{at}{place}").partition("?")[0]


def pasted_url(url: str) -> str:
    """Return a URL for a line to paste; what may have a password in it is left to the reader."""
    return url if url == public_url(url) else "..."


def in_folder(url: str, folder: Path) -> str:
    """Return a URL with its relative SQLite file, if it has one, in `folder`."""
    scheme, separator, file = url.partition(":///")
    if scheme.partition("+")[0] != "sqlite" or not _is_a_file(file) or file.startswith("/"):
        return url
    return f"{scheme}{separator}{folder / file}"


def sql_engine(url: str) -> Any:
    """Make an engine, or an asynchronous one where the URL's driver is.

    Where the URL names no driver the first that is installed is taken. On SQLite, foreign keys are
    enforced, which they aren't by default: a sweep must leave no rows behind without their parent.
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
        # Not SQLAlchemy's own choice for MySQL, which has to be compiled.
        name = _DRIVERS.get(parsed.drivername, (str(error.name),))[0]
        package = _PACKAGES.get(name, name)
        raise UsageError(
            f"{public_url(url)} needs the driver {name!r}: install it with pip install "
            f"{package}, or choose another with {parsed.get_backend_name()}+driver://..."
        ) from error
    if parsed.get_backend_name() == "sqlite":
        event.listen(engine.sync_engine if is_async else engine, "connect", _enforce_foreign_keys)
    return engine


def _enforce_foreign_keys(connection: Any, _: Any) -> None:
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
        parsed.get_dialect()  # without its driver
    except (ArgumentError, NoSuchModuleError, ValueError) as error:  # the last: of a port
        raise UsageError(
            f"{public_url(url)!r} is not a database URL that ttl-odm supports: give one such as "
            f"{_EXAMPLES}."
        ) from error
    if "@" in (parsed.host or ""):  # the rest of the password, which the driver would print
        raise UsageError(f"{public_url(url)}: write each @ of the password as %40.")
    file = parsed.database or ""
    if parsed.get_backend_name() == "sqlite" and _is_a_file(file) and not Path(file).is_file():
        # Opening it would make an empty one.
        raise UsageError(f"There is no SQLite file {file!r}.")
    return parsed


def _is_a_file(database: str) -> bool:
    """Whether SQLite's database is a file by its path, not one in memory or a ``file:`` URI."""
    return database.partition("?")[0] not in ("", ":memory:") and not database.startswith("file:")


def _is_installed(driver: str) -> bool:
    try:
        return importlib.util.find_spec(_MODULES.get(driver, driver)) is not None
    except ModuleNotFoundError:  # nor is the package that it would be in
        return False


def mongodb_name(url: str) -> str:
    """Return the database that a URL of MongoDB names."""
    if importlib.util.find_spec("pymongo") is None:
        raise UsageError(
            f"{public_url(url)} needs PyMongo: install it with pip install 'ttl-odm[cli,beanie]'."
        )
    from pymongo.errors import InvalidURI  # noqa: PLC0415 (needs the extra)
    from pymongo.uri_parser import parse_uri  # noqa: PLC0415

    try:
        name = parse_uri(url, validate=False).get("database")
    except (InvalidURI, ValueError) as error:  # the last: of a port; both may quote a password
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
    """Return arguments of a client: not to look for a server for long, unless the URL says so."""
    is_said = "serverselectiontimeoutms=" in url.lower()
    return {} if is_said else {"serverSelectionTimeoutMS": 5_000}


def mongodb_client(url: str) -> Any:
    """Make the client that the installed Beanie takes: before 2.0 it was Motor's."""
    first_without_motor = 2
    if int(version("beanie").partition(".")[0]) < first_without_motor:
        from motor.motor_asyncio import AsyncIOMotorClient  # noqa: PLC0415 (not for Beanie 2)

        return AsyncIOMotorClient(url, **mongodb_options(url))
    from pymongo import AsyncMongoClient  # noqa: PLC0415 (needs the extra)

    return AsyncMongoClient(url, **mongodb_options(url))

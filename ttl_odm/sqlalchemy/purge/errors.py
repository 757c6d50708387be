"""Which errors of a database pass by themselves, and how each reads in one line.

The sweeper tries again after a `TransientStoreError` and gives a table up after any other error.
Drivers tell the two apart by codes; what has no code (a server that can't be reached) may pass.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_LOCKED: Final = frozenset({"55P03", "40P01", 1205, 1213})
"""lock_not_available and deadlock_detected; MySQL's lock wait timeout and deadlock."""

_PASSING: Final = _LOCKED | {
    "40001",  # serialization_failure
    "57014",  # query_canceled, as by a statement timeout
    1020,  # the row has changed since it was read (innodb_snapshot_isolation)
    1317,  # the query was interrupted
    1969,  # max_statement_time
    3024,  # max_execution_time
}

_AWAY: Final = frozenset(
    {
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "57P05",  # idle_session_timeout
        "53300",  # too_many_connections
        1040,  # too many connections
        1053,  # the server is shutting down
        1927,  # the connection was killed
        2002,  # can't connect
        2003,  # can't connect
        2006,  # the server has gone away
        2013,  # the connection was lost
    }
)


def is_locked(error: Exception) -> bool:
    """Whether a statement gave up because somebody else holds a row."""
    return isinstance(error, DBAPIError) and _code(error.orig) in _LOCKED


def is_missing_table(error: DBAPIError) -> bool:
    """Whether there is no such table, or may be none: MariaDB says "denied" first (1142)."""
    code = _code(error.orig)
    return code in {"42P01", 1146, 1142} or (code is None and "no such table" in str(error.orig))


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of SQLAlchemy's, which become their cause."""
    try:
        yield
    except DBAPIError as error:
        kind = TransientStoreError if is_passing(error) else StoreError
        raise (UnreachableStoreError if is_away(error) else kind)(in_short(error)) from error
    except PoolTimeoutError as error:
        raise TransientStoreError(in_short(error)) from error
    except OSError as error:  # asyncpg connects without SQLAlchemy's wrapping
        raise UnreachableStoreError(f"The database can't be reached: {error}") from error


def is_passing(error: Exception) -> bool:
    """Whether trying again may help."""
    if not isinstance(error, DBAPIError):
        return False
    return is_away(error) or _code(error.orig) in _PASSING or _is_locked_file(error.orig)


def is_away(error: DBAPIError) -> bool:
    """Whether the server was lost, or can't be reached."""
    if error.connection_invalidated:
        return True
    code = _code(error.orig)
    if code is None:  # psycopg while it connects; SQLite has no server
        return isinstance(error, OperationalError) and not _is_of_sqlite(error.orig)
    return code in _AWAY or (isinstance(code, str) and code.startswith("08"))


def _is_of_sqlite(error: BaseException | None) -> bool:
    return type(error).__module__ == "sqlite3"


def _is_locked_file(error: BaseException | None) -> bool:
    # SQLite raises the same for "no such table" as for "database is locked".
    return _is_of_sqlite(error) and re.search("locked|busy", str(error)) is not None


def _code(error: Any) -> str | int | None:
    """The number of MariaDB and MySQL, or PostgreSQL's SQLSTATE; None where there is neither."""
    number = next(iter(getattr(error, "args", ())), None)
    if isinstance(number, int):  # PyMySQL has a SQLSTATE too, which tells less
        return number
    state = getattr(error, "sqlstate", None)
    return None if state is None else str(state)


def in_short(error: BaseException) -> str:
    """The driver's message, without its details: these hold values of rows."""
    if isinstance(error, DBAPIError) and error.orig is not None:
        error = error.orig
    args: tuple[Any, ...] = getattr(error, "args", ())
    text = str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(error)
    text = re.sub(r"^<class '[^']*'>: ", "", text)  # asyncpg, by way of SQLAlchemy
    return text.split("\n", 1)[0]

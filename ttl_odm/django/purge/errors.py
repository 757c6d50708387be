"""Which of Django's database errors pass by themselves, and how each reads in one line.

The sweeper tries again after a `TransientStoreError` and gives a table up after any other error.
Drivers tell the two apart by codes; what has no code (a server that can't be reached) may pass.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from ttl_odm.sweeper import StoreError, TransientStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PASSING: Final = frozenset(
    {
        "55P03",  # lock_not_available
        "40P01",  # deadlock_detected
        "40001",  # serialization_failure
        "57014",  # query_canceled, as by a statement timeout
        "57P01",  # admin_shutdown
        "57P02",  # crash_shutdown
        "57P03",  # cannot_connect_now
        "53300",  # too_many_connections
        1020,  # the row has changed since it was read (innodb_snapshot_isolation)
        1040,  # too many connections
        1053,  # the server is shutting down
        1205,  # lock wait timeout
        1213,  # deadlock
        1317,  # the query was interrupted
        1927,  # the connection was killed
        1969,  # max_statement_time
        2002,  # can't connect
        2003,  # can't connect
        2006,  # the server has gone away
        2013,  # the connection was lost
        3024,  # max_execution_time
    }
)


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of Django's, which become their cause.

    A connection that was lost is closed, so that the next call gets another.
    """
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                connection.close_if_unusable_or_obsolete()
        raise (TransientStoreError if is_passing(error) else StoreError)(in_short(error)) from error


def is_passing(error: BaseException) -> bool:
    """Whether trying again may help."""
    if isinstance(error, InterfaceError):
        return True
    code = _code(error)
    if code is None:  # psycopg while it connects, and SQLite
        logic = type(error.__cause__).__module__ == "sqlite3"
        return isinstance(error, OperationalError) and (
            not logic or bool(re.search("locked|busy", str(error)))
        )
    return code in _PASSING or (isinstance(code, str) and code.startswith("08"))


def _code(error: BaseException) -> str | int | None:
    """The number of MariaDB and MySQL, or PostgreSQL's SQLSTATE; None where there is neither."""
    number = next(iter(error.args), None)
    if isinstance(number, int):
        return number
    state = getattr(error.__cause__, "sqlstate", None)
    return None if state is None else str(state)


def in_short(error: BaseException) -> str:
    """The driver's message, without its details: these hold values of rows."""
    args: tuple[Any, ...] = error.args
    text = str(args[1]) if len(args) > 1 and isinstance(args[0], int) else str(error)
    return text.split("\n", 1)[0] or type(error).__name__

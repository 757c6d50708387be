"""The sweeper's errors in place of SQLAlchemy's, and what these say of a database.

`ttl_odm.dialects.errors` knows the codes of the drivers' own errors, which SQLAlchemy wraps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError

from ttl_odm.dialects import errors
from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def is_locked(error: Exception) -> bool:
    """Whether a statement gave up because somebody else holds a row."""
    return isinstance(error, DBAPIError) and errors.is_locked(error.orig)


def is_missing_table(error: DBAPIError) -> bool:
    """Whether there is no such table, or may be none."""
    return errors.is_missing_table(error.orig)


def is_passing(error: Exception) -> bool:
    """Whether trying again may help."""
    if not isinstance(error, DBAPIError):
        return False
    operational = isinstance(error, OperationalError)
    return error.connection_invalidated or errors.is_passing(error.orig, operational=operational)


def is_away(error: DBAPIError) -> bool:
    """Whether the server was lost, or can't be reached."""
    operational = isinstance(error, OperationalError)
    return error.connection_invalidated or errors.is_away(error.orig, operational=operational)


def in_short(error: BaseException) -> str:
    """The driver's message, without its details: these hold values of rows."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    return errors.in_short(orig or error)

"""The meaning of SQLAlchemy's errors, and the error for a row that has expired.

`ttl_odm.dialects.errors` knows the codes of the drivers' own errors, which SQLAlchemy wraps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlalchemy.exc import (
    DataError,
    DBAPIError,
    DontWrapMixin,
    IntegrityError,
    OperationalError,
)
from sqlalchemy.orm.exc import StaleDataError

import ttl_odm.errors
from ttl_odm.dialects import errors

if TYPE_CHECKING:
    from sqlalchemy.engine import Dialect


class ExpiredError(ttl_odm.errors.ExpiredError, StaleDataError, DontWrapMixin):
    """The row has expired (or was deleted), so it can't be changed or deleted."""


def kept_by_live_rows(dialect: Dialect, table: str, referring: str) -> IntegrityError:
    """Return the error for an expired row that blocks a write and can't be deleted.

    Args:
        dialect: The dialect of the connection.
        table: The full name of the expired row's table.
        referring: The full name of a table whose rows are archived or reported to hooks.
    """
    message = (
        f"An expired row of {table!r} blocks this statement and can't be deleted, because live "
        f"rows of {referring!r} refer to it, and a cascade would delete the live rows without "
        "their archive or hooks. Delete these first."
    )
    # SQLAlchemy shows the class of the driver's own error.
    error = getattr(dialect.dbapi, "IntegrityError", Exception)
    return IntegrityError(None, None, error(message))


def is_locked(error: Exception) -> bool:
    """Return whether a statement gave up because another transaction has locked a row."""
    return isinstance(error, DBAPIError) and errors.is_locked(error.orig)


def is_passing(error: Exception) -> bool:
    """Return whether trying again may help."""
    if not isinstance(error, DBAPIError):
        return False
    operational = isinstance(error, OperationalError)
    return _is_cut(error) or errors.is_passing(error.orig, operational=operational)


def is_refused(error: Exception) -> bool:
    """Return whether a single row caused the error, so that others can be removed."""
    if isinstance(error, StaleDataError):  # a flush, or the gate in it, has missed a row
        return True
    of_data = isinstance(error, (DataError, IntegrityError))
    return (
        isinstance(error, DBAPIError)
        and not is_passing(error)
        and errors.is_refused(error.orig, of_data=of_data)
    )


def is_restricted(error: Exception) -> bool:
    """Return whether a foreign key caused the error."""
    return isinstance(error, DBAPIError) and errors.is_restricted(error.orig)


def is_away(error: DBAPIError) -> bool:
    """Return whether the server was lost, can't be reached, or takes no writes."""
    operational = isinstance(error, OperationalError)
    return _is_cut(error) or errors.is_away(error.orig, operational=operational)


def is_read_only(error: DBAPIError) -> bool:
    """Return whether the server takes no writes, as a standby."""
    return errors.is_read_only(error.orig)


def _is_cut(error: DBAPIError) -> bool:
    """Return whether the connection was lost, and another one may last."""
    return error.connection_invalidated and not errors.is_without_transactions(error.orig)


def in_short(error: BaseException) -> str:
    """Return the driver's message without its details, which contain values of rows."""
    orig = error.orig if isinstance(error, DBAPIError) else None
    return errors.in_short(orig or error)

"""The error for rows that have expired; the sweeper's errors, and what Django's say of a database.

`ttl_odm.dialects.errors` knows the codes of the drivers' own errors, which Django wraps.
"""

from __future__ import annotations

import functools
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from django.db import (
    DatabaseError,
    DataError,
    IntegrityError,
    InterfaceError,
    OperationalError,
    connections,
)
from django.db.models import ProtectedError, RestrictedError

from ttl_odm import errors as ttl_odm_errors
from ttl_odm.dialects import errors
from ttl_odm.sweeper.store import kind_of_error

if TYPE_CHECKING:
    from collections.abc import Iterator


class ExpiredError(ttl_odm_errors.ExpiredError, DatabaseError):
    """The row has expired, so it no longer exists, and `save()` doesn't write it.

    The exception is also the model's own ``DoesNotExist``, and the ``DatabaseError`` that Django
    raises if ``save(force_update=True)`` matches nothing. For a row that was to get an expired
    parent, it is the ``DoesNotExist`` of the parent's model.
    """


class UndeletedError(IntegrityError):
    """Expired rows are still there after their DELETE, which raised no error."""

    def __init__(self, model: Any) -> None:
        super().__init__(
            f"Expired rows of {model._meta.label} still exist after they were deleted: a trigger, "
            "a rule or row-level security in the database, a signal receiver, or another library "
            "keeps them."
        )


@functools.cache
def error_of(model: Any) -> Any:
    """The error for a model's rows, which is its ``DoesNotExist`` too."""
    members = {"__module__": __name__, "__doc__": ExpiredError.__doc__}
    return type(f"{model.__name__}Expired", (ExpiredError, model.DoesNotExist), members)


def is_refused(error: DatabaseError) -> bool:
    """Whether it is for a row's sake, so that other rows may go."""
    driver_error, operational = error.__cause__ or error, isinstance(error, OperationalError)
    of_data = isinstance(error, (DataError, IntegrityError))
    return not errors.is_passing(driver_error, operational=operational) and errors.is_refused(
        driver_error, of_data=of_data
    )


def is_locked(error: DatabaseError) -> bool:
    """Whether somebody else holds a row."""
    return errors.is_locked(error.__cause__ or error)


def is_restricted(error: DatabaseError) -> bool:
    """Whether rows elsewhere refer to it."""
    kinds = (ProtectedError, RestrictedError)
    cause = error.__cause__ or error
    return isinstance(error, kinds) or isinstance(cause, kinds) or errors.is_restricted(cause)


def is_taken(error: DatabaseError) -> bool:
    """Whether another row has a key."""
    return errors.is_taken(error.__cause__ or error)


def is_denied(error: DatabaseError) -> bool:
    """Whether the user lacks a privilege."""
    return errors.is_denied(error.__cause__ or error)


def is_forbidden(error: DatabaseError) -> bool:
    """Whether a function or a setting is for users with more privileges."""
    return errors.is_forbidden(error.__cause__ or error)


def in_short(error: DatabaseError | InterfaceError) -> str:
    """The message, without what holds values of rows."""
    return errors.in_short(error)


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of Django's, which become their cause.

    A connection that was lost is closed, so that the next call gets another; so is one to a server
    that takes no writes, since another may be at its address by then.
    """
    try:
        yield
    except (DatabaseError, InterfaceError) as error:
        driver_error = error.__cause__ or error
        is_read_only = errors.is_read_only(driver_error)
        for connection in connections.all(initialized_only=True):
            if not connection.in_atomic_block:
                has_failed = connection.errors_occurred
                connection.close_if_unusable_or_obsolete()
                if is_read_only and has_failed:
                    connection.close()
        operational = isinstance(error, OperationalError)
        lost = isinstance(error, InterfaceError)
        kind = kind_of_error(
            is_standby=is_read_only,
            is_away=lost or errors.is_away(driver_error, operational=operational),
            is_passing=errors.is_passing(driver_error, operational=operational),
        )
        raise kind(in_short(error)) from error

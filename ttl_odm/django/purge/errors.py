"""The error for expired rows, and Django's errors: their causes, and the sweeper's in their place.

Django wraps the drivers' errors, whose codes `ttl_odm.dialects.errors` knows.
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

    from django.db.models import Model


class ExpiredError(ttl_odm_errors.ExpiredError, DatabaseError):
    """The row has expired, so it no longer exists, and `save()` doesn't write it.

    The exception is also the model's own ``DoesNotExist``, and the ``DatabaseError`` that Django
    raises if ``save(force_update=True)`` matches nothing. For a row that was to get an expired
    parent, it is the ``DoesNotExist`` of the parent's model.
    """


class UndeletedError(IntegrityError):
    """Expired rows still exist after a DELETE that raised no error."""

    def __init__(self, model: type[Model]) -> None:
        super().__init__(
            f"Expired rows of {model._meta.label} still exist after they were deleted: a trigger, "
            "a rule or row-level security in the database, a signal receiver, or another library "
            "keeps them."
        )


@functools.cache
def error_of(model: Any) -> Any:
    """Return the error class for a model's rows, which is a subclass of its ``DoesNotExist``."""
    members = {"__module__": __name__, "__doc__": ExpiredError.__doc__}
    return type(f"{model.__name__}Expired", (ExpiredError, model.DoesNotExist), members)


def is_refused(error: DatabaseError) -> bool:
    """Whether the cause is a row, so that other rows can be deleted."""
    driver_error, operational = error.__cause__ or error, isinstance(error, OperationalError)
    of_data = isinstance(error, (DataError, IntegrityError))
    return not errors.is_passing(driver_error, operational=operational) and errors.is_refused(
        driver_error, of_data=of_data
    )


def is_locked(error: DatabaseError) -> bool:
    """Whether another transaction has locked a row."""
    return errors.is_locked(error.__cause__ or error)


def is_restricted(error: DatabaseError) -> bool:
    """Whether other rows refer to the row."""
    kinds = (ProtectedError, RestrictedError)
    cause = error.__cause__ or error
    return isinstance(error, kinds) or isinstance(cause, kinds) or errors.is_restricted(cause)


def is_taken(error: DatabaseError) -> bool:
    """Whether another row holds a key."""
    return errors.is_taken(error.__cause__ or error)


def is_declined(error: DatabaseError) -> bool:
    """Whether an INSERT may not have the clause that tries it."""
    return errors.is_declined(error.__cause__ or error)


def is_forbidden(error: DatabaseError) -> bool:
    """Whether a function or a setting requires a more privileged user."""
    return errors.is_forbidden(error.__cause__ or error)


def in_short(error: DatabaseError | InterfaceError) -> str:
    """Return the message without parts that contain values of rows."""
    return errors.in_short(error)


@contextmanager
def store_errors() -> Iterator[None]:
    """Raise the sweeper's errors in place of Django's, which become their cause.

    A lost connection is closed, so that the next call gets another one. So is a connection to a
    server that takes no writes: another server may have its address by then.
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

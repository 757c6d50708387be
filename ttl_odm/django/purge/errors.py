"""The sweeper's errors in place of Django's, and what these say of a database.

`ttl_odm.dialects.errors` knows the codes of the drivers' own errors, which Django wraps.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from django.db import DatabaseError, InterfaceError, OperationalError, connections

from ttl_odm.dialects import errors
from ttl_odm.dialects.errors import in_short
from ttl_odm.sweeper import StoreError, TransientStoreError, UnreachableStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


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
        kind = TransientStoreError if is_passing(error) else StoreError
        raise (UnreachableStoreError if _is_away(error) else kind)(in_short(error)) from error


def is_passing(error: BaseException) -> bool:
    """Whether trying again may help."""
    operational = isinstance(error, OperationalError)
    return _is_away(error) or errors.is_passing(_driver_error(error), operational=operational)


def _is_away(error: BaseException) -> bool:
    """Whether the server was lost, or can't be reached."""
    operational = isinstance(error, OperationalError)
    return isinstance(error, InterfaceError) or errors.is_away(
        _driver_error(error), operational=operational
    )


def _driver_error(error: BaseException) -> BaseException:
    return error.__cause__ or error

"""The mode ``"orm"``: expired rows are loaded and deleted as objects, with all that hangs on that.

The rows are locked before, and nothing but the sweeper sees them. So the gate is told to let the
flush through, which is otherwise not to touch what has expired.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm.sqlalchemy.policy.parameters import base_row_written, include_expired
from ttl_odm.sqlalchemy.purge.statements import is_one_of
from ttl_odm.sweeper import HookError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sqlalchemy import Column, Connection

Refused = (DBAPIError, StaleDataError)
"""What a flush raises when the database, or the gate, doesn't let a row go."""


def delete_objects(
    connection: Connection,
    model: type[Any],
    columns: Sequence[Column[Any]],
    keys: Sequence[tuple[Any, ...]],
) -> None:
    """Load rows that this transaction has locked, and delete them by one flush.

    Args:
        connection: The one with the transaction.
        model: Their class, or the class at the root of theirs.
        columns: The primary key.
        keys: Its values; no more than one statement takes.

    Raises:
        DBAPIError, StaleDataError: A row stays; nothing of this was done, and the transaction
            goes on.
        HookError: An event listener raised.
    """
    found = select(model).where(is_one_of(columns, keys)).options(include_expired())
    token = base_row_written.set(True)
    try:
        with (
            Session(connection, join_transaction_mode="create_savepoint") as session,
            session.begin(),
        ):
            for each in session.scalars(found).all():
                session.delete(each)
    except Refused:
        raise
    except Exception as error:
        raise HookError(f"Deleting {model.__name__} through a session failed: {error}") from error
    finally:
        base_row_written.reset(token)

"""The removal of expired rows as objects, through a session: for ``__ttl_purge__ = "orm"``.

Cascades and events of the ORM run, and may keep rows, or change them. `removal` locks the rows
first, and rejects cascades to rows that can't be deleted so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sqlalchemy import inspect, select
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session
from sqlalchemy.orm.exc import StaleDataError

from ttl_odm.sqlalchemy.policy.bindings import key_columns
from ttl_odm.sqlalchemy.policy.predicate import base_row_written, include_expired
from ttl_odm.sqlalchemy.purge.statements import SweepSelect, is_one_of
from ttl_odm.sweeper import HookError, RefusedError, weight

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from sqlalchemy import Connection, Select, Table

    Key = tuple[object, ...]
    Check = Callable[[Iterable[object], Sequence[object]], None]
    """Rejects what a session would delete besides its own objects."""


def delete_objects(
    connection: Connection, table: Table, orm: type, keys: Sequence[Key], check: Check
) -> tuple[set[Key], int]:
    """Delete rows that this transaction has locked, as objects of a class in one flush.

    The application's events may keep rows from being deleted, as a soft delete does. Other
    changes that the flush made to these are undone, or they might live again; then the rest is
    deleted without them.

    Returns:
        The keys of the rows that stay, and the bytes of all that were loaded.
    """
    stay: set[Key] = set()
    loaded = 0
    while doomed := [key for key in keys if key not in stay]:
        kept, is_undone, weight_of_some = _flush_deletions(connection, table, orm, doomed, check)
        stay |= kept
        loaded += weight_of_some
        if not is_undone:
            break
    return stay, loaded


def _flush_deletions(
    connection: Connection, table: Table, orm: type, keys: Sequence[Key], check: Check
) -> tuple[set[Key], bool, int]:
    """Delete objects by their keys.

    A flush normally can't change expired rows; this one tells the gate to let it.

    Returns:
        The keys that remain, whether the flush was undone, and the bytes that were loaded.
    """
    own = key_columns(table)
    mapper: Any = inspect(orm)
    names = [mapper.get_property_by_column(column).key for column in own]
    doomed: Select[Any] = select(orm).where(is_one_of(own, keys))
    loaded, token = 0, base_row_written.set(True)
    try:
        with Session(connection, join_transaction_mode="create_savepoint") as session:
            objects = session.scalars(doomed.options(include_expired())).all()
            seen = {tuple(getattr(row, name) for name in names) for row in objects}
            for row in objects:
                loaded += weight(vars(row).values())
                session.delete(row)
            check(session.deleted, objects)
            session.flush()
            remaining = connection.execute(SweepSelect(*own).where(is_one_of(own, keys)))
            stay = {tuple(key) for key in remaining}
            if stay.isdisjoint(seen):
                session.commit()
                return stay, False, loaded
            session.rollback()
            return stay, True, loaded
    except (DBAPIError, StaleDataError, RefusedError):  # the database or the gate keeps a row
        raise
    except Exception as error:
        raise HookError(f"Deleting {orm.__name__} through a session failed: {error}") from error
    finally:
        base_row_written.reset(token)

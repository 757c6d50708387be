"""Reading and changing stored defaults, and what became of them.

A change is one transaction: the row is locked, what it was is written down with who changed it and
why, and the new value takes its place. From its commit on each statement of each process follows.

This module must not know what a statement does with a default.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from time import sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import DBAPIError

from ttl_odm.core.stored_rows import INHERIT, WHOLE_TABLE, PolicyChange, StoredPolicy
from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import code_of
from ttl_odm.sqlalchemy.policy.known import forget
from ttl_odm.sqlalchemy.policy.stored import PolicyTables, row_of, tables_of
from ttl_odm.sqlalchemy.policy.stored_default import StoredDefault
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, CursorResult, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.core.stored import StoredTTL

T = TypeVar("T")

_TRIES: Final = 20
"""Of a change on MariaDB and MySQL, each of a second at most."""

_WAITED: Final = 1205
"""What they say of a statement that has waited for a lock long enough, and is undone by itself."""


def stored_policies(connection: Connection, *targets: Any) -> list[StoredPolicy]:
    """Read the defaults that are stored, ordered by their names.

    Args:
        connection: The database's; of an AsyncConnection that of ``run_sync(stored_policies)``.
        targets: Models or Tables; without any, all that the connection's own schema has.

    Raises:
        TTLConfigurationError: The default of a target isn't stored.
    """
    return [
        _as(StoredPolicy, row)
        for tables, names in _places(targets, connection.dialect)
        for row in connection.execute(
            _read(tables.policies, StoredPolicy, names).order_by("name", "scope")
        )
    ]


def policy_changes(connection: Connection, *targets: Any) -> list[PolicyChange]:
    """Read how stored defaults were changed, the last change first; arguments as before."""
    return [
        _as(PolicyChange, row)
        for tables, names in _places(targets, connection.dialect)
        for row in connection.execute(
            _read(tables.changes, PolicyChange, names).order_by(tables.changes.c.id.desc())
        )
    ]


def set_policy(  # noqa: PLR0913 (all but the first three by keyword)
    connection: Connection,
    target: Any,
    ttl: StoredTTL,
    *,
    scope: object = None,
    by: str,
    reason: str | None = None,
) -> int | None:
    """Change a default that is stored.

    It acts with the commit: on every row that inherits it, in the next statement of each process.
    In a transaction of the connection it is a part of that; otherwise it is one by itself.

    Args:
        connection: The database's; of an AsyncConnection that of ``run_sync(set_policy, ...)``.
        target: A model or a Table.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose rows then have the table's.
        scope: A value of `Stored.by`, for the rows that have it; None for all that have no default
            of their own.
        by: Who changes it.
        reason: Why.

    Returns:
        What the default was; 0 where the scope had none of its own.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
    """
    default = StoredDefault.of(target, scope, connection.dialect)
    return change(connection, default, default.checked(ttl), by=by, reason=reason)


def change(  # noqa: PLR0913 (three by keyword)
    connection: Connection,
    default: StoredDefault,
    ttl: int | None,
    *,
    by: str,
    reason: str | None,
    check: Callable[[int | None], None] = lambda _: None,
) -> int | None:
    """Change a default that was found, to a value that was checked; see `set_policy`.

    `check` gets what it was while nobody else can change it, and may raise before anything is.
    """
    name, scope = default.name, default.scope or WHOLE_TABLE
    table = default.binding.first.table
    tables, clock = tables_of(table), clock_of(connection.dialect)
    now, is_it = clock.literal(clock.now_at_write), row_of(table, scope)
    old = tables.policies.c.ttl
    values = {"ttl": ttl, "changed_at": now, "changed_by": by, "reason": reason}
    with (
        nullcontext() if connection.in_transaction() else connection.begin(),
        _in_short_tries(connection) as execute,
    ):
        # SQLite, which has no FOR UPDATE, locks the file by this.
        found = execute(update(tables.policies).where(*is_it).values(ttl=old)).rowcount
        locked: int | None = execute(select(old).where(*is_it).with_for_update()).scalar()
        before = locked if found else default.absent
        check(before)
        if ttl == INHERIT:
            if not found:
                return before
        elif found:
            execute(update(tables.policies).where(*is_it).values(values))
        else:
            execute(insert(tables.policies).values(name=name, scope=scope, **values))
        same: Any = select(tables.policies.c.changed_at).where(*is_it).scalar_subquery()
        if ttl == INHERIT:
            same = now
            execute(delete(tables.policies).where(*is_it))
        written = {"changed_at": same, "changed_by": by, "reason": reason}
        ttls = {"ttl_before": before, "ttl_after": ttl}
        execute(insert(tables.changes).values(name=name, scope=scope, **ttls, **written))
    forget(connection)
    return before


@contextmanager
def _in_short_tries(connection: Connection) -> Iterator[Callable[[Any], CursorResult[Any]]]:
    """What runs statements that may have to wait for a lock.

    MariaDB and MySQL lock the row for an UPDATE or DELETE that reads it, until that is committed.
    While a change waits for it, all later ones wait behind the change; so that gives way now and
    then.
    """
    if connection.dialect.name not in MYSQL_FAMILY:
        yield connection.execute
        return

    def execute(statement: Any) -> CursorResult[Any]:
        for _ in range(_TRIES - 1):
            try:
                return connection.execute(statement)
            except DBAPIError as error:
                if code_of(error.orig) != _WAITED:  # a deadlock has ended the transaction
                    raise
                sleep(0.5)
        return connection.execute(statement)

    setting = "innodb_lock_wait_timeout"
    before = connection.exec_driver_sql(f"SELECT @@{setting}").scalar()
    connection.exec_driver_sql(f"SET {setting} = 1")
    put_back = f"SET {setting} = {before}"
    try:
        yield execute
    except BaseException:
        with suppress(DBAPIError):  # it would hide what has gone wrong
            connection.exec_driver_sql(put_back)
        raise
    connection.exec_driver_sql(put_back)


def _places(targets: Sequence[Any], dialect: Dialect) -> list[tuple[PolicyTables, list[str]]]:
    """Where the defaults of some tables are, and under which names; none for all names."""
    if not targets:
        return [(tables_of(None), [])]
    places: dict[Table, tuple[PolicyTables, list[str]]] = {}
    for target in targets:
        default = StoredDefault.of(target, None, dialect)
        tables = tables_of(default.binding.first.table)
        places.setdefault(tables.policies, (tables, []))[1].append(default.name)
    return list(places.values())


def _read(table: Table, read_as: type[Any], names: list[str]) -> Select[Any]:
    rows = select(*(table.c[field.name] for field in fields(read_as)))
    return rows.where(table.c.name.in_(names)) if names else rows


def _as(kind: type[T], row: Any) -> T:
    values = row._asdict()
    return kind(**{**values, "scope": values["scope"] or None})

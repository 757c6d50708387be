"""Reading stored defaults and their history, and changing them.

A change is one transaction: it locks the row, writes the old value into the history with who
changed it and why, and stores the new value. From the commit on, every statement of every process
uses that.

This module must not know what a statement does with a default.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import fields
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import DBAPIError, OperationalError

from ttl_odm.dialects import MYSQL_FAMILY
from ttl_odm.dialects.errors import (
    NOT_AVAILABLE,
    TRIES,
    WAITED,
    code_of,
    is_passing,
    is_taken,
    races,
    waits,
)
from ttl_odm.errors import TTLError
from ttl_odm.sqlalchemy import compat
from ttl_odm.sqlalchemy.policy.schema import as_ddl
from ttl_odm.sqlalchemy.time.clock import clock_of
from ttl_odm.stored.rows import INHERIT, WHOLE_TABLE, PolicyChange, StoredPolicy, from_row
from ttl_odm.stored.sqlalchemy.default_cache import invalidate
from ttl_odm.stored.sqlalchemy.stored_default import StoredDefault
from ttl_odm.stored.sqlalchemy.tables import PolicyTables, row_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, CursorResult, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.stored import StoredTTL

T = TypeVar("T")


def stored_policies(connection: Connection, *targets: object) -> list[StoredPolicy]:
    """Read the stored defaults, ordered by name.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(stored_policies)``.
        targets: Models or Tables; if none is given, all in the connection's own schema.

    Raises:
        TTLConfigurationError: The default of a target isn't stored.
    """
    return [
        from_row(StoredPolicy, row)
        for tables, names in _places(targets, connection.dialect)
        for row in connection.execute(
            _read(tables.policies, StoredPolicy, names).order_by("name", "scope")
        )
    ]


def policy_changes(connection: Connection, *targets: object) -> list[PolicyChange]:
    """Read the changes of stored defaults, newest first; arguments as for `stored_policies`."""
    return [
        from_row(PolicyChange, row)
        for tables, names in _places(targets, connection.dialect)
        for row in connection.execute(
            _read(tables.changes, PolicyChange, names).order_by(tables.changes.c.id.desc())
        )
    ]


def set_policy(  # noqa: PLR0913 (all but the first three by keyword)
    connection: Connection,
    target: object,
    ttl: StoredTTL,
    *,
    scope: object = None,
    by: str,
    reason: str | None = None,
) -> int | None:
    """Change a stored default.

    It takes effect with the commit: on every row that inherits it, in the next statement of each
    process. If the connection is in a transaction, the change is part of it; otherwise it has one
    of its own.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(set_policy, ...)``.
        target: A model or a Table.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose rows then have the table's.
        scope: A value of `Stored.by`, for the rows that have it; None for all rows without their
            own default.
        by: Who changes it.
        reason: Why.

    Returns:
        The previous default; 0 if the scope had none of its own.

    Raises:
        InvalidTTL: It is not a ttl, or not between `Stored.least` and `Stored.most`.
        TTLConfigurationError: The default of the target isn't stored, or not by scopes.
        TTLError: The connection is in AUTOCOMMIT, and has executed something already.
    """
    default = StoredDefault.of(target, scope, connection.dialect)
    checked = default.checked(ttl)
    work = partial(change, connection, default, checked, by=by, reason=reason)
    return in_transaction(connection, work)


def change(  # noqa: PLR0913 (three by keyword)
    connection: Connection,
    default: StoredDefault,
    ttl: int | None,
    *,
    by: str,
    reason: str | None,
    check: Callable[[], None] = lambda: None,
) -> int | None:
    """Change a default to a value that was checked; see `set_policy`.

    Call it inside `in_transaction`. It calls `check` once the rows are locked and before it changes
    anything; `check` may raise an error.
    """
    table, scope = default.binding.first.table, default.scope or WHOLE_TABLE
    tables, clock = tables_of(table), clock_of(connection.dialect)
    whole, is_it = row_of(table), row_of(table, scope)
    ttl_column, now = tables.policies.c.ttl, clock.literal(clock.now_at_write)
    key = {"name": default.name, "scope": scope}
    author = {"changed_by": by, "reason": reason}
    with _in_short_tries(connection, tables.policies) as execute:
        # Transactions that delete by any default of the table hold this row: see
        # `lookup.lock_row`. Writing it makes a transaction with an older snapshot fail, and locks
        # the file on SQLite, which has no FOR UPDATE.
        execute(update(tables.policies).where(*whole).values(ttl=ttl_column))
        stored = execute(select(ttl_column).where(*is_it).with_for_update()).first()
        before: int | None = default.absent if stored is None else stored[0]
        check()
        if ttl == INHERIT and stored is None:
            return before
        at: Any = select(tables.policies.c.changed_at).where(*is_it).scalar_subquery()
        if ttl == INHERIT:
            at = now
            execute(delete(tables.policies).where(*is_it))
        elif stored is None:
            execute(insert(tables.policies).values(**key, ttl=ttl, changed_at=now, **author))
        else:
            execute(update(tables.policies).where(*is_it).values(ttl=ttl, changed_at=now, **author))
        ttls = {"ttl_before": before, "ttl_after": ttl}
        execute(insert(tables.changes).values(**key, **ttls, changed_at=at, **author))
    invalidate(connection)
    return before


def in_transaction(connection: Connection, work: Callable[[], T]) -> T:
    """Run a change in the connection's transaction, or in one of its own.

    Its own transaction is repeated if it loses a race for a row against another change.
    """
    dialect: Any = connection.dialect
    is_autocommit = clock_of(dialect).locks_rows and dialect.detect_autocommit_setting(
        connection.connection.dbapi_connection
    )
    if connection.in_transaction():
        if is_autocommit:
            raise TTLError(
                "A stored default can't be changed in AUTOCOMMIT, where each statement releases "
                "its locks: use a connection that hasn't executed anything yet, or another "
                "isolation_level."
            )
        return work()
    if not is_autocommit:
        return _begun(connection, work)
    compat.isolate(connection, "READ COMMITTED")
    try:
        return _begun(connection, work)
    finally:
        if not connection.closed:
            compat.isolate(connection, "AUTOCOMMIT")


def _begun(connection: Connection, work: Callable[[], T]) -> T:
    for is_last, pause in races():
        try:
            with connection.begin():
                return work()
        except DBAPIError as error:
            operational = isinstance(error, OperationalError)
            lost = is_passing(error.orig, operational=operational) or is_taken(error.orig)
            # For half a minute: see `_in_short_tries`.
            has_waited = code_of(error.orig) in (WAITED, NOT_AVAILABLE)
            if is_last or error.connection_invalidated or has_waited or not lost:
                raise
        sleep(pause)
    raise AssertionError  # the last one has returned or raised


@contextmanager
def _in_short_tries(
    connection: Connection, policies: Table
) -> Iterator[Callable[[Any], CursorResult[Any]]]:
    """Yield a function that executes statements, and waits for locks in short tries.

    It waits for half a minute in all.

    A transaction that deletes by a default locks its row until the commit; on MariaDB and MySQL
    every UPDATE and DELETE that reads the default does. While a change waits for these locks, later
    transactions queue behind it. So the change gives up its place in the queue now and then.
    """
    if connection.dialect.name == "postgresql":
        _lock_table(connection, policies)
    if connection.dialect.name not in MYSQL_FAMILY:
        yield connection.execute
        return

    def execute(statement: Any) -> CursorResult[Any]:
        for _ in range(TRIES - 1):
            try:
                return connection.execute(statement)
            except DBAPIError as error:
                if code_of(error.orig) != WAITED:  # a deadlock has ended the transaction
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
        with suppress(DBAPIError):  # it would hide the first error
            connection.exec_driver_sql(put_back)
        raise
    connection.exec_driver_sql(put_back)


def _lock_table(connection: Connection, policies: Table) -> None:
    """Keep other transactions from locking rows of the policies, on PostgreSQL.

    A row that some transaction always shares is never free for a change there, because later ones
    may share it too. For a table they queue. Transactions that only read don't wait.
    """
    preparer = connection.dialect.identifier_preparer
    schema, name = compat.place_of(connection.get_execution_options(), policies)
    name = preparer.quote(name)
    name = name if schema is None else f"{preparer.quote_schema(schema)}.{name}"
    setting = "SELECT set_config('lock_timeout', '{}', true)"
    before = connection.exec_driver_sql("SELECT current_setting('lock_timeout')").scalar()
    for last, wait in waits():
        try:
            with connection.begin_nested():
                connection.exec_driver_sql(setting.format(f"{wait}ms"))
                connection.execute(as_ddl(f"LOCK TABLE {name} IN EXCLUSIVE MODE"))
        except DBAPIError as error:
            if last or code_of(error.orig) != NOT_AVAILABLE:
                raise
            sleep(wait / 2_000)
        else:
            break
    connection.exec_driver_sql(setting.format(before))


def _places(targets: Sequence[object], dialect: Dialect) -> list[tuple[PolicyTables, list[str]]]:
    """The tables that store the defaults of targets, and the names of these; none for all names."""
    if not targets:
        return [(tables_of(None), [])]
    places: dict[Table, tuple[PolicyTables, list[str]]] = {}
    for target in targets:
        default = StoredDefault.of(target, None, dialect)
        tables = tables_of(default.binding.first.table)
        places.setdefault(tables.policies, (tables, []))[1].append(default.name)
    return list(places.values())


def _read(table: Table, kind: type[StoredPolicy | PolicyChange], names: list[str]) -> Select[Any]:
    rows = select(*(table.c[field.name] for field in fields(kind)))
    return rows.where(table.c.name.in_(names)) if names else rows

"""Reading and changing stored defaults, and what became of them.

A change is one transaction: the row is locked, what it was is written down with who changed it and
why, and the new value takes its place. From its commit on each statement of each process follows.

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
from ttl_odm.stored.rows import INHERIT, WHOLE_TABLE, PolicyChange, StoredPolicy
from ttl_odm.stored.sqlalchemy.default_cache import forget
from ttl_odm.stored.sqlalchemy.stored_default import StoredDefault
from ttl_odm.stored.sqlalchemy.tables import PolicyTables, row_of, tables_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Connection, CursorResult, Select, Table
    from sqlalchemy.engine import Dialect

    from ttl_odm.stored import StoredTTL

T = TypeVar("T")


def stored_policies(connection: Connection, *targets: Any) -> list[StoredPolicy]:
    """Read the stored defaults, ordered by name.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(stored_policies)``.
        targets: Models or Tables; without any, all in the connection's own schema.

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
    """Read the changes of stored defaults, newest first; arguments as for `stored_policies`."""
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
    """Change a stored default.

    It takes effect with the commit: on every row that inherits it, in the next statement of each
    process. If the connection is in a transaction, it is part of that; otherwise it is its own.

    Args:
        connection: A connection; with an AsyncConnection, call ``run_sync(set_policy, ...)``.
        target: A model or a Table.
        ttl: The new default: None, -1, or seconds as an int, an integral float or a timedelta.
            "default" removes that of a scope, whose rows then have the table's.
        scope: A value of `Stored.by`, for the rows that have it; None for all that have no default
            of their own.
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
    """Change a default that was found, to a value that was checked; see `set_policy`.

    It is called inside `in_transaction`. `check` is called while nobody else can change it, and may
    raise before anything is.
    """
    table, scope = default.binding.first.table, default.scope or WHOLE_TABLE
    tables, clock = tables_of(table), clock_of(connection.dialect)
    whole, is_it = row_of(table), row_of(table, scope)
    old, now = tables.policies.c.ttl, clock.literal(clock.now_at_write)
    whose = {"name": default.name, "scope": scope}
    said = {"changed_by": by, "reason": reason}
    with _in_short_tries(connection, tables.policies) as execute:
        # Whoever deletes by any default of the table holds this row: see `lock_defaults`. A
        # transaction with an older snapshot fails on it, as it is written. And SQLite, which has
        # no FOR UPDATE, locks the file by this.
        execute(update(tables.policies).where(*whole).values(ttl=old))
        found = execute(select(old).where(*is_it).with_for_update()).first()
        before: int | None = default.absent if found is None else found[0]
        check()
        if ttl == INHERIT and found is None:
            return before
        at: Any = select(tables.policies.c.changed_at).where(*is_it).scalar_subquery()
        if ttl == INHERIT:
            at = now
            execute(delete(tables.policies).where(*is_it))
        elif found is None:
            execute(insert(tables.policies).values(**whose, ttl=ttl, changed_at=now, **said))
        else:
            execute(update(tables.policies).where(*is_it).values(ttl=ttl, changed_at=now, **said))
        ttls = {"ttl_before": before, "ttl_after": ttl}
        execute(insert(tables.changes).values(**whose, **ttls, changed_at=at, **said))
    forget(connection)
    return before


def in_transaction(connection: Connection, work: Callable[[], T]) -> T:
    """Run a change in the transaction at hand, or in one of its own.

    One of its own is begun anew where it has lost a race for a row against another change.
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
            # For long: see `_in_short_tries`.
            has_waited = code_of(error.orig) in (WAITED, NOT_AVAILABLE)
            if is_last or error.connection_invalidated or has_waited or not lost:
                raise
        sleep(pause)
    raise AssertionError  # the last one has returned or raised


@contextmanager
def _in_short_tries(
    connection: Connection, policies: Table
) -> Iterator[Callable[[Any], CursorResult[Any]]]:
    """What runs statements that may have to wait for a lock, for about half a minute.

    Whoever deletes by a default has locked its row until that is committed; on MariaDB and MySQL
    whoever updates or deletes anything by it has. While a change waits for these, later ones wait
    behind the change; so that gives way now and then.
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
        with suppress(DBAPIError):  # it would hide what has gone wrong
            connection.exec_driver_sql(put_back)
        raise
    connection.exec_driver_sql(put_back)


def _lock_table(connection: Connection, policies: Table) -> None:
    """Keep others from locking rows of the policies, on PostgreSQL.

    There a row that is always shared by somebody is never free for a change: those who come later
    share it, too. For a table they queue. Who only reads is not kept waiting.
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

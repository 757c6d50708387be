"""How a migration's statements run: in short tries on a busy database, or into a script.

`Runner` alone knows whether a migration is online or writes a script, which timeouts apply, and
when to try again. `catch_up` waits until a member of a cluster has what other members committed.

This module must not know what TTL is.
"""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from dataclasses import dataclass, fields
from math import ceil
from time import monotonic, sleep
from typing import TYPE_CHECKING, Final, TypeVar

from alembic.util import CommandError
from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement

from ttl_odm.dialects.errors import WAITED, code_of
from ttl_odm.dialects.mysql import OUT_OF_TIME
from ttl_odm.errors import TTLConfigurationError, TTLError
from ttl_odm.sqlalchemy.purge.errors import in_short, is_locked
from ttl_odm.sqlalchemy.time.clock import clock_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from alembic.runtime.migration import MigrationContext
    from sqlalchemy import Connection
    from sqlalchemy.engine import Dialect

R = TypeVar("R")

log = logging.getLogger("alembic.ttl_odm")

_OFFLINE_TRIES: Final = 300


class MigrationRefusedError(TTLConfigurationError, CommandError):
    """A TTL migration can't be done as it is written."""


@dataclass(frozen=True)
class Settings:
    """How patient a migration is: ``context.configure(..., ttl_odm={"give_up_after": 60})``.

    Attributes:
        lock_timeout: Seconds that a statement waits for a lock. While it waits, it blocks all
            later statements on the table, so this is short, and the statement is tried again.
        give_up_after: Seconds without the lock after which the migration fails.
        batch_rows: Rows that one statement of a backfill walks over.
    """

    lock_timeout: float = 0.2
    give_up_after: float = 300.0
    batch_rows: int = 5_000

    @classmethod
    def of(cls, context: MigrationContext) -> Settings:
        """Return the settings of an env.py."""
        settings = dict(context.opts.get("ttl_odm") or {})
        names = [setting.name for setting in fields(cls)]
        for name, value in settings.items():
            if name not in names or isinstance(value, bool) or not value > 0:
                raise MigrationRefusedError(
                    f"context.configure(ttl_odm={{{name!r}: {value!r}}}): the settings are "
                    f"{', '.join(names)}, each a number greater than 0."
                )
        return cls(**settings)


class Statement(ExecutableDDLElement):
    """SQL that is sent or written into a script unchanged."""

    def __init__(self, sql: str) -> None:
        """Keep the text."""
        self.sql = sql


@compiles(Statement)
def _render_statement(statement: Statement, _compiler: object, **_: object) -> str:
    return statement.sql


class Runner:
    """Runs the statements of one operation, outside transactions unless told to stay in one."""

    def __init__(self, context: MigrationContext, *, in_transaction: bool = False) -> None:
        """Read the settings."""
        self.context = context
        self.settings = Settings.of(context)
        self.offline = bool(context.as_sql)
        # On other databases DDL ends the transaction, or runs in none.
        self.in_transaction = in_transaction and context.dialect.name == "postgresql"

    @property
    def dialect(self) -> Dialect:
        """The database's dialect."""
        return self.context.dialect

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB and not MySQL; known only once connected."""
        return bool(getattr(self.dialect, "is_mariadb", False))

    @property
    def metadatas(self) -> Sequence[MetaData]:
        """The models' MetaData objects: env.py's ``target_metadata``, if it sets one."""
        declared: object = self.context.opts.get("target_metadata")
        objects = declared if isinstance(declared, (list, tuple)) else (declared,)
        return tuple(metadata for metadata in objects if isinstance(metadata, MetaData))

    @property
    def connection(self) -> Connection:
        """The connection; only online."""
        connection = self.context.connection
        assert connection is not None  # noqa: S101 (Alembic has one online)
        return connection

    @contextmanager
    def outside_transactions(self) -> Iterator[None]:
        """Commit the migration's earlier work, and let each statement commit by itself."""
        if self.in_transaction:
            yield
            return
        if self.context._in_external_transaction:  # noqa: SLF001 (nothing public tells)
            raise MigrationRefusedError(
                "TTL migrations commit as they go, but this connection is in a transaction that "
                "Alembic's caller began. Pass a connection without a transaction "
                "(engine.connect() instead of engine.begin()), or on PostgreSQL write "
                "in_transaction=True, which locks the table until that transaction ends."
            )
        if self.context._transaction is None and not self.offline:  # noqa: SLF001
            # There is no env.py, and so far only reads, which began a transaction.
            self.connection.commit()
        family = clock_of(self.dialect)
        settings = {} if self.offline else family.ddl_settings
        with _reporting_losses(), self.context.autocommit_block():
            if not self.offline:
                # Alembic has read the isolation level, for which pg8000 began a transaction.
                self.connection.connection.commit()
            before = {
                name: self.connection.exec_driver_sql(family.setting(name)).scalar()
                for name in settings
            }
            try:
                for name, value in settings.items():
                    self.at_once(f"SET {name} = {value}")
                yield
            finally:
                for name, old in before.items():
                    self.at_once(f"SET {name} = {old!r}")

    @contextmanager
    def holding_rows(self) -> Iterator[None]:
        """Limit the wait for locks: a batch keeps its changed rows locked until it ends."""
        if self.dialect.name != "postgresql" or self.in_transaction:
            yield
            return
        self.at_once(f"SET lock_timeout = '{self.settings.lock_timeout}s'")
        try:
            yield
        finally:
            self.at_once("SET lock_timeout = 0")

    def at_once(self, sql: str) -> None:
        """Run one statement, without retries."""
        self.context.impl.execute(Statement(sql))

    def briefly(self, make: Sequence[str] | Callable[[], Sequence[str]]) -> None:
        """Run statements that need an exclusive lock, atomically where the database can.

        Args:
            make: The statements, or a function that returns them for each try.
        """
        family, wait = clock_of(self.dialect), self.settings.lock_timeout

        def statements() -> Sequence[str]:
            return make() if callable(make) else make

        def run() -> None:
            for sql in family.bounded(statements(), wait, is_mariadb=self.is_mariadb):
                self.at_once(sql)

        if not self.offline and not self.in_transaction:
            self.patiently(run, "a lock on the table")
            return
        script = statements()
        if not self.in_transaction:
            script = family.retried(script, wait, _OFFLINE_TRIES)
        for sql in script:
            self.at_once(sql)

    def at_length(self, sql: str) -> None:
        """Run a long statement that doesn't block writers."""
        if self.offline or self.in_transaction:
            self.at_once(sql)
        else:
            self.patiently(lambda: self.at_once(sql), "a lock on the table")

    def patiently(self, work: Callable[[], R], what: str) -> R:
        """Retry while locks are in the way, for at most `Settings.give_up_after` seconds.

        Args:
            work: Called again for each try.
            what: The lock that it waits for, for messages.

        Raises:
            TTLError: A lock was in the way all this time.
        """
        begin = monotonic()
        tries = 1
        while True:
            try:
                return work()
            except DBAPIError as error:
                code = code_of(error.orig)
                if not (is_locked(error) or code in OUT_OF_TIME or "is locked" in str(error.orig)):
                    raise
                waited = monotonic() - begin
                if waited >= self.settings.give_up_after:
                    raise TTLError(
                        f"Did not get {what} within {waited:.0f} s, in {tries} tries: "
                        f"{in_short(error)}. End the long transactions on it and migrate again; "
                        "completed steps are kept."
                    ) from error
            log.info("waiting for %s (try %d)", what, tries)
            # Longer after each try, so that the statements blocked by ours get through.
            pause = min(self.settings.lock_timeout * tries, 2.0)
            sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            tries += 1


@contextmanager
def _reporting_losses() -> Iterator[None]:
    """Report a lost connection as such.

    Without a connection, resetting the settings and leaving Alembic's block fail too, and their
    errors would hide the reason.

    Raises:
        TTLError: The connection was lost.
    """
    try:
        yield
    except SQLAlchemyError as error:
        lost: BaseException | None = error
        while not (isinstance(lost, DBAPIError) and lost.connection_invalidated):
            if lost is None:
                raise
            lost = lost.__context__
        raise TTLError(
            f"The connection to the database was lost: {in_short(lost)}. Migrate again when a "
            "server takes writes; completed steps are kept."
        ) from lost


_READ: Final = "SHOW DATABASES"
"""A read that any user may make. Like every read of a table, even a system table, it waits."""

_LONGEST: Final = 365 * 86_400
"""The longest wait_timeout, in seconds."""


@dataclass(frozen=True)
class _Kind:
    """A kind of cluster whose members lag behind each other unless a session waits for them.

    Attributes:
        member: The name of a member, for messages.
        settings: The SELECT that reads a session's settings.
        change: The template of the statement that changes these settings.
        lags: The error code of a statement that waited in vain.
    """

    member: str
    settings: str
    change: str
    lags: int


_GALERA: Final = _Kind(
    "node of the Galera cluster",
    "SELECT @@SESSION.wsrep_sync_wait",
    "SET SESSION wsrep_sync_wait = {}",
    WAITED,
)
_GROUP: Final = _Kind(
    "member of the group",
    "SELECT @@SESSION.group_replication_consistency, @@SESSION.wait_timeout",
    "SET SESSION group_replication_consistency = '{}', SESSION wait_timeout = {}",
    3797,
)

_KINDS: Final = {"wsrep_on": _GALERA, "group_replication_consistency": _GROUP}
_MEMBERSHIP: Final = """
SHOW GLOBAL VARIABLES WHERE (Variable_name = 'wsrep_on' AND Value = 'ON')
OR Variable_name = 'group_replication_consistency'
"""
"""Returns a row on a node of Galera, and where MySQL's plugin for groups is loaded. The row begins
with a key of `_KINDS`. Any user may run it."""


def catch_up(runner: Runner) -> None:
    """Wait until this member of a cluster has applied what other members committed.

    By default a member may lag. If an earlier run broke off on another member, this one might still
    show the schema, and the progress, from before that run.

    Galera waits for its ``repl.causal_read_timeout``. MySQL's ``group_replication_consistency``
    waits for the session's ``wait_timeout``, which is set to ``give_up_after`` meanwhile:
    https://dev.mysql.com/doc/refman/en/group-replication-configuring-consistency-guarantees.html

    Raises:
        TTLError: The member didn't catch up in time.
    """
    if runner.offline or runner.dialect.name not in {"mysql", "mariadb"}:
        return
    membership = runner.connection.exec_driver_sql(_MEMBERSHIP).first()
    if membership is None:
        return
    kind = _KINDS[membership[0]]
    seconds = ceil(min(runner.settings.give_up_after, _LONGEST))
    waiting = (15,) if kind is _GALERA else ("BEFORE", seconds)
    with runner.outside_transactions():  # inside one, it would not wait
        before = runner.connection.exec_driver_sql(kind.settings).one()
        runner.at_once(kind.change.format(*waiting))
        try:
            runner.connection.exec_driver_sql(_READ)
        except DBAPIError as error:
            if code_of(error.orig) != kind.lags:
                raise
            limit = "repl.causal_read_timeout" if kind is _GALERA else f"give_up_after={seconds} s"
            raise TTLError(
                f"This {kind.member} lags behind the others, and didn't catch up within {limit}. "
                "Nothing was changed: migrate again once it has caught up, or at another one."
            ) from error
        finally:
            runner.at_once(kind.change.format(*before))

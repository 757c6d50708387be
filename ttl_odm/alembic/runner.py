"""Running statements on a busy database: in short tries, outside a transaction, or into a script.

`Runner` is the one place that knows whether a migration is online or writes a script, which
timeouts hold, and when to try again. It knows nothing of TTL.
"""

from __future__ import annotations

import logging
import random
from contextlib import contextmanager
from dataclasses import dataclass, fields
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final, TypeVar

from sqlalchemy import MetaData
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.schema import ExecutableDDLElement

from ttl_odm.alembic.errors import MigrationRefusedError
from ttl_odm.dialects.errors import code_of
from ttl_odm.dialects.mysql import OUT_OF_TIME
from ttl_odm.errors import TTLError
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


@dataclass(frozen=True)
class Settings:
    """How patient a migration is: ``context.configure(..., ttl_odm={"give_up_after": 60})``.

    Attributes:
        lock_timeout: Seconds that a statement waits for a lock. For as long it may hold up
            everybody who comes after it, so it is short, and the statement is tried again.
        give_up_after: Seconds after which one that got no lock fails the migration.
        batch_rows: Rows that one statement of a backfill walks over.
    """

    lock_timeout: float = 0.2
    give_up_after: float = 300.0
    batch_rows: int = 5_000

    @classmethod
    def of(cls, context: MigrationContext) -> Settings:
        """Those of an env.py."""
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
    """SQL that is sent, or written into a script, as it is."""

    def __init__(self, sql: str) -> None:
        """Keep the text."""
        self.sql = sql


@compiles(Statement)
def _render_statement(statement: Statement, _compiler: Any, **_: Any) -> str:
    return statement.sql


class Runner:
    """Runs the statements of one operation, or stays in the transaction at hand with them."""

    def __init__(self, context: MigrationContext, *, in_transaction: bool = False) -> None:
        """Read the settings."""
        self.context = context
        self.settings = Settings.of(context)
        self.offline = bool(context.as_sql)
        # Elsewhere than on PostgreSQL, DDL ends a transaction or is in none.
        self.in_transaction = in_transaction and context.dialect.name == "postgresql"

    @property
    def dialect(self) -> Dialect:
        """The database's."""
        return self.context.dialect

    @property
    def is_mariadb(self) -> bool:
        """Whether the server is MariaDB, and not MySQL; known once it is connected."""
        return bool(getattr(self.dialect, "is_mariadb", False))

    @property
    def metadatas(self) -> Sequence[MetaData]:
        """What env.py compares with: the models, if it says which they are."""
        declared: Any = self.context.opts.get("target_metadata")
        every = declared if isinstance(declared, (list, tuple)) else (declared,)
        return tuple(metadata for metadata in every if isinstance(metadata, MetaData))

    @property
    def connection(self) -> Connection:
        """The connection; only online."""
        connection = self.context.connection
        assert connection is not None  # noqa: S101 (Alembic has one online)
        return connection

    @contextmanager
    def outside_transactions(self) -> Iterator[None]:
        """Commit what the migration did before, and let each statement stand for itself."""
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
            # No env.py: only what was read so far began a transaction.
            self.connection.commit()
        family = clock_of(self.dialect)
        settings = {} if self.offline else family.ddl_settings
        with _reporting_losses(), self.context.autocommit_block():
            if not self.offline:
                # Alembic asked for the isolation level: pg8000 began a transaction, and is in it.
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
        """Wait briefly for locks: a batch holds the rows that it has changed until it ends."""
        if self.dialect.name != "postgresql" or self.in_transaction:
            yield
            return
        self.at_once(f"SET lock_timeout = '{self.settings.lock_timeout}s'")
        try:
            yield
        finally:
            self.at_once("SET lock_timeout = 0")

    def at_once(self, sql: str) -> None:
        """Run one statement, once."""
        self.context.impl.execute(Statement(sql))

    def briefly(self, make: Sequence[str] | Callable[[], Sequence[str]]) -> None:
        """Run statements that lock everybody out, all or nothing where the database can.

        A function makes them anew for each try.
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
        """Run a statement that takes long and lets writers work meanwhile."""
        if self.offline or self.in_transaction:
            self.at_once(sql)
        else:
            self.patiently(lambda: self.at_once(sql), "a lock on the table")

    def patiently(self, work: Callable[[], R], what: str) -> R:
        """Try until nobody's lock is in the way, for `Settings.give_up_after` seconds at most."""
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
            # Longer after each try, so that those whom we held up get through.
            pause = min(self.settings.lock_timeout * tries, 2.0)
            sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
            tries += 1


@contextmanager
def _reporting_losses() -> Iterator[None]:
    """Report a connection that was lost as such.

    Settings can't be set back then, and Alembic's block can't be left: what these attempts raise
    would hide the reason.

    Raises:
        TTLError: The connection was lost.
    """
    try:
        yield
    except SQLAlchemyError as error:
        lost = _loss_behind(error)
        if lost is None:
            raise
        raise TTLError(
            f"The connection to the database was lost: {in_short(lost)}. Migrate again when a "
            "server takes writes; completed steps are kept."
        ) from lost


def _loss_behind(error: BaseException | None) -> DBAPIError | None:
    """Find the loss of a connection that led to an error."""
    while error is not None:
        if isinstance(error, DBAPIError) and error.connection_invalidated:
            return error
        error = error.__context__
    return None

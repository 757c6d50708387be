"""Leases by PostgreSQL's advisory locks: they end with their holder, at once.

A lease in a table lasts until its end even if the process that held it is long dead. An advisory
lock ends with the session that holds it. The row of `leases` is still used for data that outlives a
holder: the token, the flag that pauses all sweepers, the history, and the holder's name for people.

The session is a connection of its own, detached from the engine's pool, and idle except for
renewals. The server ends it if none comes for as long as the lease lasts, so that neither a process
that hangs nor a host that has vanished holds the lock for longer.

A pooler that assigns the server's sessions by the transaction (PgBouncer's transaction mode) would
leave the lock to the next client. So it is checked that a connection is a session, before the lock
is taken and at each renewal.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import BigInteger, Integer, String, false, func, literal, select, text
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy.purge.errors import is_passing
from ttl_odm.sqlalchemy.sweep.leases import AsyncTableLeases, Statements, TableLeases
from ttl_odm.sqlalchemy.sweep.transactions import name_of, store_errors
from ttl_odm.sweeper import Lease, LeaseState

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, Table

logger = logging.getLogger("ttl_odm.sweeper")

_LOCKS: Final = (
    "FROM pg_catalog.pg_locks WHERE locktype = 'advisory' AND objsubid = 1 "
    "AND database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()) "
    "AND (classid::bigint << 32 | objid::bigint) = CAST(:key AS bigint)"
)
_LOCKED: Final = text(f"SELECT EXISTS (SELECT {_LOCKS})")
_LOCKED_BY_US: Final = text(f"SELECT EXISTS (SELECT {_LOCKS} AND pid = pg_backend_pid())")
_SESSION: Final = select(func.pg_backend_pid(type_=Integer()))
_LOOKS: Final = 3


class _Statements(Statements):
    """The statements of a lease whose holder has an advisory lock."""

    def key(self, connection: Connection, name: str) -> int:
        """Return the number of a lease's lock, which depends on the lease table too."""
        key = f"{name_of(connection, self.table)} {name}"
        return int.from_bytes(sha256(key.encode()).digest()[:8], "big", signed=True)

    def lock(self, session: Connection, name: str, duration: float) -> bool:
        """Take the lock in a session that stays open; return False if another one has it."""
        limit = func.set_config(
            "idle_session_timeout", f"{max(1, round(duration * 1000))}", false(), type_=String()
        )
        key = literal(self.key(session, name), BigInteger())
        with session.begin():
            return bool(session.execute(select(func.pg_try_advisory_lock(key), limit)).one()[0])

    def has_lock(self, session: Connection, name: str) -> bool:
        """Return whether a session still has the lock, which no other session can take."""
        with session.begin():
            key = self.key(session, name)
            return bool(session.scalar(_LOCKED_BY_US, {"key": key}))

    def unlock(self, session: Connection, name: str) -> None:
        """Release the lock."""
        key = literal(self.key(session, name), BigInteger())
        with session.begin():
            session.execute(select(func.pg_advisory_unlock(key)))

    def read(self, connection: Connection, name: str) -> LeaseState:
        state = super().read(connection, name)
        if state.holder is None or connection.scalar(_LOCKED, {"key": self.key(connection, name)}):
            return state
        # The holder's session has ended, and no other sweeper has taken over yet.
        return LeaseState(
            token=state.token,
            paused=state.paused,
            history=state.history,
            recorded_ago=state.recorded_ago,
        )


def _close(session: Connection) -> None:
    """End a session, in whatever state it is."""
    try:
        # SQLAlchemy leaves an asynchronous connection that was detached open.
        driver: Any = session.connection.dbapi_connection
        session.invalidate()
        session.dialect.do_close(driver)
    except Exception:  # it has ended already, or will when the server notices
        logger.debug("The session of an advisory lock was lost", exc_info=True)
    finally:
        session.close()


def _session_of(connection: Connection) -> int:
    """Return the number of the server's session that gets a connection's next transaction."""
    with connection.begin():
        return connection.execute(_SESSION).scalar_one()


def _pooled() -> TTLConfigurationError:
    return TTLConfigurationError(
        "A pooler switches the PostgreSQL session between transactions (as PgBouncer does with "
        "pool_mode = transaction), so the next client would inherit the advisory lock. Leave "
        "`lease` out to use a lease in a table, or give AdvisoryLeases an engine that connects "
        "to PostgreSQL directly, or to a pooler with pool_mode = session."
    )


class AdvisoryLeases(TableLeases):
    """`ttl_odm.sweeper.Leases` by advisory locks: ``Sweeper(engine, Base, lease=...)``.

    Needs PostgreSQL 14 and session-level connections: behind a transaction pooler it raises
    TTLConfigurationError. All sweepers with the same lease name must use the same kind of lease.
    """

    _statements: _Statements

    def __init__(self, engine: Engine, table: Table | None = None) -> None:
        """Set the table for the data that outlives a holder.

        Args:
            engine: The engine of its database.
            table: A table made by `lease_table`; None for one with the default name.

        Raises:
            TTLConfigurationError: The database isn't PostgreSQL.
        """
        if engine.dialect.name != "postgresql":
            raise TTLConfigurationError(
                f"{engine.dialect.name} has no advisory locks that are released as soon as a "
                "session ends: leave `lease` out to use a lease in a table."
            )
        super().__init__(engine, table)
        self._statements = _Statements(self._statements.table)
        self._sessions: dict[Lease, Connection] = {}

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `Leases`."""
        session = self._lock(name, duration)
        if session is None:
            return None
        lease = None
        try:
            lease = self._run(Statements.acquire, name, holder, duration, seizes=True)
            assert lease is not None  # noqa: S101 (the lock keeps others from taking it)
            self._sessions[lease] = session
        finally:
            if lease is None:
                self._end(session, name)
        return lease

    def renew(self, lease: Lease) -> bool:
        """As in `Leases`."""
        session = self._sessions.get(lease)
        with store_errors():
            try:
                if session is not None and not self._statements.has_lock(session, lease.name):
                    self._unlock(lease)
                    raise _pooled()  # only its own session can have released the lock
            except DBAPIError as error:
                if not is_passing(error):
                    raise
                self._unlock(lease)
                session = None
        if session is None:
            session = self._lock(lease.name, lease.duration)
            if session is None:
                return False
            self._sessions[lease] = session
        kept = super().renew(lease)
        if not kept:
            self._unlock(lease)
        return kept

    def release(self, lease: Lease) -> None:
        """As in `Leases`."""
        try:
            super().release(lease)
        finally:
            self._unlock(lease)

    def finish(self, lease: Lease, history: str) -> bool:
        """As in `Finishing`."""
        try:
            return super().finish(lease, history)
        finally:
            self._unlock(lease)

    def _lock(self, name: str, duration: float) -> Connection | None:
        """Open a session that has the lock; None if another session has it."""
        with store_errors():
            session, got = self._engine.connect(), False
            session.detach()  # from the pool; closing it ends the session
            try:
                self._check_session(session)
                got = self._statements.lock(session, name, duration)
            finally:
                if not got:
                    _close(session)
        return session if got else None

    def _check_session(self, session: Connection) -> None:
        """Raise if a pooler gives each transaction of a connection another session.

        A pooler that takes turns gives one connection two sessions; one that prefers the latest
        session gives it to two connections. Other clients can hide this from a single check.
        """
        number = _session_of(session)
        with self._engine.connect() as other:
            for _ in range(_LOOKS):
                ours = {_session_of(session), _session_of(session)}
                if ours != {number} or _session_of(other) == number:
                    raise _pooled()

    def _unlock(self, lease: Lease) -> None:
        session = self._sessions.pop(lease, None)
        if session is not None:
            self._end(session, lease.name)

    def _end(self, session: Connection, name: str) -> None:
        """Release the lock at once, and end its session."""
        with suppress(SQLAlchemyError, OSError):  # as below
            self._statements.unlock(session, name)
        _close(session)


class AsyncAdvisoryLeases(AsyncTableLeases):
    """`AdvisoryLeases` over an `AsyncEngine`, as `ttl_odm.sweeper.AsyncLeases`."""

    _kind = AdvisoryLeases
    _leases: AdvisoryLeases

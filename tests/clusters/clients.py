"""Clients of a small table with TTL, which record what they did and saw: see `history`.

A client is given an engine whose connections know the member that they lead to (`engine_on`), and
does one operation after another. Each is a transaction that reads the server's clock before and
after its statement.
"""

from __future__ import annotations

import itertools
from datetime import datetime, timedelta, timezone
from time import monotonic
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    String,
    create_engine,
    delete,
    event,
    literal_column,
    make_url,
    select,
    type_coerce,
    update,
)
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from tests.clusters.history import History, Holding, Kind, Operation, Outcome, Row, Tenure
from ttl_odm.sqlalchemy import TTLMixin, include_expired, lease_table
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sqlalchemy import Engine, Select

    from local_servers.cluster import Member
    from ttl_odm.sweeper import Lease, Leases, LeaseState, Progress, Purged, SweepReport

DEFAULT_TTL = 2
LEASE = 3.0
"""Seconds that a sweeper's lease lasts."""

AWAY = (DBAPIError, PoolTimeoutError, OSError)
"""What is raised where a server can't be reached, or is lost."""

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_MEMBER = "member"


class Base(DeclarativeBase): ...


class Entry(TTLMixin, Base):
    __tablename__ = "cluster_entries"
    __ttl__ = DEFAULT_TTL

    key: Mapped[str] = mapped_column("entry", String(40), primary_key=True)
    version: Mapped[str] = mapped_column(String(60))


lease_table(Base.metadata)


def always(_server: str) -> bool:
    """Say that any server has all acknowledged writes."""
    return True


def engine_on(choose: Callable[[], Member], **options: Any) -> Engine:
    """Make an engine that asks for each new connection which member it shall lead to.

    So clients find a new primary as they would behind a name in DNS, a virtual address or a proxy.
    """
    engine = create_engine(_url(choose()), **options)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, _arguments: Any, _parameters: Any) -> Any:
        member = choose()
        arguments, parameters = dialect.create_connect_args(_url(member))
        record.info[_MEMBER] = member.name
        return dialect.connect(*arguments, **parameters)

    return engine


def _url(member: Member) -> Any:
    url = make_url(member.url)
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


def microseconds(instant: datetime) -> int:
    """A server's clock as histories have it."""
    return (instant - _EPOCH) // timedelta(microseconds=1)


def _clock(session: Session) -> Any:
    return type_coerce(literal_column(clock_of(session.get_bind().dialect).now), LastModified())


def _now(session: Session) -> int:
    return microseconds(session.execute(select(_clock(session))).scalar_one())


def _rows(session: Session, keys: Sequence[str]) -> Select[Any]:
    return select(Entry.key, Entry.version, Entry.last_modified, Entry.ttl, _clock(session)).where(
        Entry.key.in_(keys)
    )


def _fetch(session: Session, statement: Select[Any]) -> tuple[Row, ...]:
    return tuple(
        Row(key, version, microseconds(changed), ttl, microseconds(now))
        for key, version, changed, ttl, now in session.execute(statement)
    )


class Client:
    """One client: writes and reads, recorded.

    Args:
        name: Its name, which no other client of the history has.
        engine: See `engine_on`.
        history: Where it records.
        is_fresh: Whether a member has all acknowledged writes, at the moment of its answer.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        history: History,
        *,
        is_fresh: Callable[[str], bool] = always,
    ) -> None:
        self.name = name
        self._engine = engine
        self._history = history
        self._is_fresh = is_fresh
        self._numbers = itertools.count(1)

    def insert(self, key: str, ttl: int | None = None) -> Operation:
        """Insert a row."""

        def change(session: Session, version: str) -> bool:
            session.add(Entry(key=key, version=version, ttl=ttl))
            session.flush()
            return True

        return self._write(Kind.INSERT, key, change)

    def renew(self, key: str, ttl: int | None = None) -> Operation:
        """Load a row, and let it live from now on."""

        def change(session: Session, version: str) -> bool:
            entry = session.get(Entry, key)
            if entry is None:
                return False
            entry.version, entry.ttl = version, ttl
            session.flush()
            return True

        return self._write(Kind.RENEW, key, change)

    def touch(self, key: str) -> Operation:
        """Let a row's life start again."""

        def change(session: Session, _version: str) -> bool:
            entry = session.get(Entry, key)
            if entry is None:
                return False
            entry.touch()
            session.flush()
            return True

        return self._write(Kind.TOUCH, key, change)

    def update(self, key: str, ttl: int | None = None) -> Operation:
        """Change a row without loading it."""

        def change(session: Session, version: str) -> bool:
            statement = update(Entry).where(Entry.key == key).values(version=version, ttl=ttl)
            changed: Any = session.execute(statement)
            return bool(changed.rowcount)

        return self._write(Kind.UPDATE, key, change)

    def delete(self, key: str) -> Operation:
        """Delete a row."""

        def change(session: Session, _version: str) -> bool:
            changed: Any = session.execute(delete(Entry).where(Entry.key == key))
            return bool(changed.rowcount)

        return self._write(Kind.DELETE, key, change)

    def read(self, *keys: str) -> Operation:
        """Read the rows that are live."""
        noted = _Noted(self.name, Kind.READ, keys)
        try:
            with Session(self._engine) as session:
                noted.server = session.connection().info[_MEMBER]
                noted.asked = _now(session)
                noted.rows = _fetch(session, _rows(session, keys))
                noted.answered = _now(session)
                noted.outcome = Outcome.ACKNOWLEDGED
        except AWAY:
            noted.outcome = Outcome.FAILED
        return noted.into(self._history, self._is_fresh)

    def now(self) -> int:
        """The server's clock."""
        with Session(self._engine) as session:
            return _now(session)

    def _write(self, kind: Kind, key: str, change: Callable[[Session, str], bool]) -> Operation:
        noted = _Noted(self.name, kind, (key,))
        version = f"{self.name}-{next(self._numbers)}"
        if kind not in {Kind.TOUCH, Kind.DELETE}:
            noted.version = version
        try:
            with Session(self._engine) as session:
                noted.server = session.connection().info[_MEMBER]
                noted.asked = _now(session)
                missed = _missed(session, change, version)
                if missed is None:
                    everything = _rows(session, (key,)).options(include_expired())
                    noted.rows = _fetch(session, everything)
                    noted.answered = _now(session)
                    noted.outcome = Outcome.UNKNOWN
                    session.commit()
                    noted.outcome = Outcome.ACKNOWLEDGED
                else:
                    session.rollback()
                    noted.answered = _now(session)
                    noted.outcome = missed
        except AWAY:
            pass
        return noted.into(self._history, self._is_fresh)


def _missed(
    session: Session, change: Callable[[Session, str], bool], version: str
) -> Outcome | None:
    """Change a row; return why that was impossible."""
    try:
        return None if change(session, version) else Outcome.MISSED
    except StaleDataError:
        # An ExpiredError is one; another means that the row was deleted and inserted meanwhile.
        return Outcome.MISSED
    except IntegrityError:
        return Outcome.REFUSED


class _Noted:
    """An operation that goes on. It has failed until something else is known."""

    def __init__(self, client: str, kind: Kind, keys: tuple[str, ...]) -> None:
        self._fixed = {"client": client, "kind": kind, "keys": keys}
        self.begin = monotonic()
        self.server = ""
        self.outcome = Outcome.FAILED
        self.version: str | None = None
        self.rows: tuple[Row, ...] = ()
        self.asked: int | None = None
        self.answered: int | None = None

    def into(self, history: History, is_fresh: Callable[[str], bool]) -> Operation:
        """Record it, as it ends."""
        values: dict[str, Any] = {**vars(self), **self._fixed}
        del values["_fixed"]
        operation = Operation(**values, end=monotonic(), fresh=is_fresh(self.server))
        history.operations.append(operation)
        return operation


class Sweeping:
    """A sweeper whose leases, batches and deletions are recorded.

    Args:
        name: Its name, which no other client of the history has.
        engine: See `engine_on`.
        history: Where it records.
        watched: Whether it is notified of the keys that it deletes; it then deletes in another way.
        is_fresh: As for a `Client`.
    """

    def __init__(
        self,
        name: str,
        engine: Engine,
        history: History,
        *,
        watched: bool,
        is_fresh: Callable[[str], bool] = always,
    ) -> None:
        self.name = name
        self._history = history
        self._is_fresh = is_fresh
        self._since = monotonic()
        store = SQLAlchemyStore(engine, Base)
        self._leases = RecordedLeases(name, engine, store.leases, history)
        self.sweeper = Sweeper(
            store,
            lease=self._leases,
            lease_duration=LEASE,
            on_progress=self._batch,
            on_purged=self._purged if watched else None,
        )

    def run_once(self) -> SweepReport:
        """Sweep once."""
        self._since = monotonic()
        return self.sweeper.run_once()

    def break_off(self, error: Exception) -> None:
        """Record that the sweeper has raised an error."""
        now, text = monotonic(), f"{type(error).__name__}: {error}"
        self._history.tenures.append(
            Tenure(
                client=self.name,
                begin=self._since,
                end=now,
                action=Holding.BROKE,
                token=0,
                duration=LEASE,
                error=text,
            )
        )

    def _purged(self, purged: Purged) -> None:
        keys = tuple(key for (key,) in purged.keys)
        noted = _Noted(self.name, Kind.PURGE, keys)
        noted.begin, noted.outcome = self._since, Outcome.ACKNOWLEDGED
        noted.server = purged.transaction.info[_MEMBER]
        noted.answered = microseconds(purged.as_of)
        noted.into(self._history, self._is_fresh)

    def _batch(self, progress: Progress) -> None:
        self._since = now = monotonic()
        if progress.error is None:
            self._leases.note(Holding.WORKED, now - progress.elapsed)


class RecordedLeases:
    """`ttl_odm.sweeper.Leases` that records who holds the lease when."""

    def __init__(self, client: str, engine: Engine, leases: Leases, history: History) -> None:
        self._client = client
        self._engine = engine
        self._leases = leases
        self._history = history
        self._held: Lease | None = None

    def acquire(self, name: str, holder: str, duration: float) -> Lease | None:
        """As in `Leases`."""
        begin, asked = monotonic(), self._now()
        self._held = self._leases.acquire(name, holder, duration)
        if self._held is not None:
            self.note(Holding.ACQUIRED, begin, asked, self._now())
        return self._held

    def renew(self, lease: Lease) -> bool:
        """As in `Leases`."""
        begin, asked = monotonic(), self._now()
        renewed = self._leases.renew(lease)
        if renewed:
            self.note(Holding.RENEWED, begin, asked, self._now())
        return renewed

    def release(self, lease: Lease) -> None:
        """As in `Leases`."""
        begin = monotonic()
        try:
            self._leases.release(lease)
        finally:
            self.note(Holding.RELEASED, begin)

    def read(self, name: str) -> LeaseState:
        """As in `Leases`."""
        return self._leases.read(name)

    def set_paused(self, name: str, paused: bool) -> None:  # noqa: FBT001 (as in the Protocol)
        """As in `Leases`."""
        self._leases.set_paused(name, paused)

    def record(self, lease: Lease, history: str) -> bool:
        """As in `Leases`."""
        return self._leases.record(lease, history)

    def note(
        self, action: Holding, begin: float, asked: int | None = None, answered: int | None = None
    ) -> None:
        """Record something that the holder did."""
        assert self._held is not None
        self._history.tenures.append(
            Tenure(
                client=self._client,
                begin=begin,
                end=monotonic(),
                action=action,
                token=self._held.token,
                duration=self._held.duration,
                asked=asked,
                answered=answered,
            )
        )

    def _now(self) -> int | None:
        """The server's clock; None where it can't be read, which is no reason to fail."""
        try:
            with Session(self._engine) as session:
                return _now(session)
        except AWAY:
            return None

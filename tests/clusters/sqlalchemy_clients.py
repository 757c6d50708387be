"""SQLAlchemy's `clients.Application`: a table of a server's, and a `Session` for each operation.

An engine asks for each new connection which member it shall lead to (`engine_on`). Each operation
is a transaction that reads the server's clock before and after its statement.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from importlib import metadata
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    NullPool,
    String,
    create_engine,
    delete,
    event,
    literal_column,
    make_url,
    select,
    text,
    type_coerce,
    update,
)
from sqlalchemy.exc import DBAPIError, DisconnectionError, IntegrityError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column
from sqlalchemy.orm.exc import StaleDataError

from tests.clusters.clients import DEFAULT_TTL, LEASE, RecordedLeases, microseconds
from tests.clusters.history import Kind, Outcome, Row
from ttl_odm.sqlalchemy import TTLMixin, include_expired, lease_table
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sqlalchemy.time.clock import LastModified, clock_of
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sqlalchemy import Engine, Select

    from local_servers.cluster import Cluster, Member
    from tests.clusters.clients import Noted, SweepJournal
    from tests.clusters.places import Places
    from ttl_odm.sweeper import Purged, SweepReport

_DRIVERS = {"postgresql": "postgresql+psycopg", "mysql": "mysql+pymysql"}
_MEMBER = "member"
_ROUND = "round"


class Base(DeclarativeBase): ...


class Entry(TTLMixin, Base):
    __tablename__ = "cluster_entries"
    __ttl__ = DEFAULT_TTL

    key: Mapped[str] = mapped_column("entry", String(40), primary_key=True)
    version: Mapped[str] = mapped_column(String(60))


lease_table(Base.metadata)


def engine_on(
    choose: Callable[[], Member],
    rounds: Callable[[], int] = int,
    session: str = "",
    **options: Any,
) -> Engine:
    """Make an engine that asks for each new connection which member it shall lead to.

    So clients find a new primary as they would behind a name in DNS, a virtual address or a proxy.

    Args:
        choose: Returns the member.
        rounds: Returns a number; connections of an earlier one are not used again.
        session: A statement with which each connection begins.
        options: SQLAlchemy's.
    """
    engine = create_engine(_url(choose()), **options)

    @event.listens_for(engine, "do_connect")
    def connect(dialect: Any, record: Any, _arguments: Any, _parameters: Any) -> Any:
        member = choose()
        arguments, parameters = dialect.create_connect_args(_url(member))
        record.info[_MEMBER] = member.name
        record.info[_ROUND] = rounds()
        connection = dialect.connect(*arguments, **parameters)
        if session:
            with closing(connection.cursor()) as cursor:
                cursor.execute(session)
        return connection

    @event.listens_for(engine, "checkout")
    def check(_connection: Any, record: Any, _proxy: Any) -> None:
        if record.info[_ROUND] != rounds():
            raise DisconnectionError

    return engine


def _url(member: Member) -> Any:
    url = make_url(member.url)
    return url.set(drivername=_DRIVERS.get(url.drivername, url.drivername))


@contextmanager
def opened(places: Places, session: str = "") -> Iterator[SQLAlchemyApplication]:
    """As in `clients.Opening`; sessions on the primary begin with a statement."""
    application = SQLAlchemyApplication(places, session)
    try:
        application.make_tables()
        yield application
    finally:
        application.close()


def described(cluster: Cluster) -> tuple[str, str]:
    """Say which server and which driver it is."""
    engine = engine_on(cluster.primary)
    with engine.connect() as connection:
        version = str(connection.scalar(text("SELECT version()")))
        driver = connection.dialect.driver
    engine.dispose()
    # PostgreSQL tells its own name and its compiler too, MariaDB its packager.
    number = version.removeprefix("PostgreSQL ").partition(" ")[0].partition("-")[0]
    return number, f"{driver} {metadata.version(driver)}"


class SQLAlchemyApplication:
    """The `clients.Application`."""

    def __init__(self, places: Places, session: str = "") -> None:
        self._places = places
        self._session = session
        self._round = 0
        self._engines = [
            self._engine_on_primary(pool_size=20),
            engine_on(places.replica, poolclass=NullPool),
        ]
        self.primary, self.replica = map(SQLAlchemyAccess, self._engines)

    def make_tables(self) -> None:
        """Make the table, and that of leases."""
        Base.metadata.create_all(self._engines[0])

    def _engine_on_primary(self, **options: Any) -> Engine:
        return engine_on(self._places.primary, lambda: self._round, self._session, **options)

    @contextmanager
    def sweeping(self, journal: SweepJournal, *, watched: bool) -> Iterator[SQLAlchemySweeping]:
        """As in `Application`: it has an engine of its own, as a process of its own would have."""
        engine = self._engine_on_primary()
        try:
            yield SQLAlchemySweeping(journal, engine, watched=watched)
        finally:
            engine.dispose()

    def reconnect(self) -> None:
        """As in `Application`."""
        self._round += 1

    def close(self) -> None:
        """Close all connections."""
        for engine in self._engines:
            engine.dispose()


class SQLAlchemyAccess:
    """`clients.Access` by an engine: see `engine_on`."""

    away = (DBAPIError, PoolTimeoutError, OSError)

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def read(self, noted: Noted) -> None:
        """As in `Access`."""
        with self._connected(noted) as session:
            noted.asked = _now(session)
            noted.rows = _fetch(session, _rows(session, noted.keys))
            noted.answered = _now(session)

    def write(self, noted: Noted, ttl: int | None) -> None:
        """As in `Access`."""
        with self._connected(noted) as session:
            noted.asked = _now(session)
            missed = _missed(session, noted, ttl)
            if missed is None:
                everything = _rows(session, noted.keys).options(include_expired())
                noted.rows = _fetch(session, everything)
                noted.answered = _now(session)
                noted.outcome = Outcome.UNKNOWN
                session.commit()
                noted.outcome = Outcome.ACKNOWLEDGED
            else:
                session.rollback()
                noted.answered = _now(session)
                noted.outcome = missed

    def now(self) -> int:
        """As in `Access`."""
        with Session(self._engine) as session:
            return _now(session)

    @contextmanager
    def _connected(self, noted: Noted) -> Iterator[Session]:
        """Open a session, whose connection isn't used again after an error.

        A server that was demoted would refuse every further write, too.
        """
        with Session(self._engine) as session:
            try:
                noted.server = session.connection().info[_MEMBER]
                yield session
            except self.away:
                session.invalidate()
                raise


def _missed(session: Session, noted: Noted, ttl: int | None) -> Outcome | None:
    """Change a row; return why that was impossible."""
    (key,) = noted.keys
    try:
        is_there = _CHANGES[noted.kind](session, key, noted.version, ttl)
    except StaleDataError:
        # An ExpiredError is one; another means that the row was deleted and inserted meanwhile.
        is_there = False
    except IntegrityError:
        return Outcome.REFUSED
    return None if is_there else Outcome.MISSED


def _insert(session: Session, key: str, version: str | None, ttl: int | None) -> bool:
    session.add(Entry(key=key, version=version, ttl=ttl))
    session.flush()
    return True


def _renew(session: Session, key: str, version: str | None, ttl: int | None) -> bool:
    entry = session.get(Entry, key)
    if entry is None:
        return False
    assert version is not None
    entry.version, entry.ttl = version, ttl
    session.flush()
    return True


def _touch(session: Session, key: str, _version: str | None, _ttl: int | None) -> bool:
    entry = session.get(Entry, key)
    if entry is None:
        return False
    entry.touch()
    session.flush()
    return True


def _update(session: Session, key: str, version: str | None, ttl: int | None) -> bool:
    statement = update(Entry).where(Entry.key == key).values(version=version, ttl=ttl)
    changed: Any = session.execute(statement)
    return bool(changed.rowcount)


def _delete(session: Session, key: str, _version: str | None, _ttl: int | None) -> bool:
    changed: Any = session.execute(delete(Entry).where(Entry.key == key))
    return bool(changed.rowcount)


_CHANGES = {
    Kind.INSERT: _insert,
    Kind.RENEW: _renew,
    Kind.TOUCH: _touch,
    Kind.UPDATE: _update,
    Kind.DELETE: _delete,
}
"""What does each kind of write, and says whether there was a row."""


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


class SQLAlchemySweeping:
    """The `clients.Sweeping`."""

    def __init__(self, journal: SweepJournal, engine: Engine, *, watched: bool) -> None:
        self.journal = journal
        store = SQLAlchemyStore(engine, Base)
        self.sweeper = Sweeper(
            store,
            lease=RecordedLeases(store.leases, journal, SQLAlchemyAccess(engine)),
            lease_duration=LEASE,
            on_progress=journal.batch,
            on_purged=self._purged if watched else None,
        )

    def run_once(self) -> SweepReport:
        """As in `Sweeping`."""
        self.journal.begin()
        return self.sweeper.run_once()

    def _purged(self, purged: Purged) -> None:
        self.journal.purged(purged, purged.transaction.info[_MEMBER])

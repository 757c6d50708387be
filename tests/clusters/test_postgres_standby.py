"""PostgreSQL with two standbys: reads on them, and sweeps that a failover interrupts."""

from __future__ import annotations

import asyncio
import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import URL, Engine, create_engine, make_url, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session

from tests.clusters.lagging import sweep_that_waits
from tests.clusters.members import revive, running, until
from tests.sql.sweeping import HOUR, add, cart, left
from ttl_odm.cli.application import Application
from ttl_odm.cli.check import check_replicas
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.replication import ReplicationLag
from ttl_odm.sqlalchemy import touch
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sqlalchemy.sweep.store import AsyncSQLAlchemyStore, SQLAlchemyStore
from ttl_odm.sweeper import (
    AsyncSweeper,
    Ending,
    Progress,
    Purged,
    Server,
    Sweeper,
    UnreachableStoreError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.slow, pytest.mark.starts("postgres")]

EXPIRED: Final = range(400)
LIVE: Final = range(1_000, 1_005)


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with running("postgres_standby", "POSTGRES_STANDBY") as standbys:
        yield standbys


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster; start again afterwards what is down, and drop the tables."""
    yield started
    revive(started)
    with connected(started.url) as engine, engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try again nearly without waiting."""
    monkeypatch.setattr("random.random", lambda: 0.001)


@contextmanager
def connected(url: str | URL, driver: str = "psycopg") -> Iterator[Engine]:
    engine = create_engine(make_url(url).set(drivername=f"postgresql+{driver}"))
    yield engine
    engine.dispose()


def catch_up(cluster: Any) -> None:
    """Wait until both standbys show all that the primary has."""
    with connected(cluster.primary().url) as engine, engine.connect() as connection:
        position = connection.scalar(text("SELECT pg_current_wal_lsn()::text"))
    replayed = text("SELECT pg_last_wal_replay_lsn() >= CAST(:position AS pg_lsn)")
    for standby in cluster.replicas():
        with connected(standby.url) as engine, engine.connect() as connection:
            until(lambda: bool(connection.scalar(replayed, {"position": position})))


def set_on(member: Any, **settings: str) -> None:
    """Change settings of a server; an empty value sets one back."""
    with connected(member.url) as engine, engine.connect() as connection:
        connection.execution_options(isolation_level="AUTOCOMMIT")
        for name, value in settings.items():
            word = f"SET {name} = '{value}'" if value else f"RESET {name}"
            connection.execute(text(f"ALTER SYSTEM {word}"))
        connection.execute(text("SELECT pg_reload_conf()"))
    wanted = {name: value for name, value in settings.items() if value}
    with connected(member.url) as engine:
        until(lambda: {name: shown(engine, name) for name in wanted} == wanted)


def shown(engine: Engine, name: str) -> str:
    with engine.connect() as connection:
        return str(connection.scalar(text(f"SHOW {name}")))


def filled(engine: Engine) -> Any:
    """Make the table, with expired rows and live ones."""
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(key, None, 2 * HOUR) for key in EXPIRED])
        add(connection, "carts", [(key, None, 0) for key in LIVE])
    return model


def seen(engine: Engine, model: Any) -> set[int]:
    with engine.connect() as connection:
        return set(connection.scalars(select(model.id)))


def stored(engine: Engine, model: Any) -> set[int]:
    with engine.connect() as connection:
        return left(connection, model)


def test_a_standby_hides_rows_by_its_own_clock(cluster: Any) -> None:
    with connected(cluster.url) as engine:
        model = filled(engine)
        with engine.begin() as connection:
            add(connection, "carts", [(2_000, 2, 0)])
    catch_up(cluster)
    for standby in cluster.replicas():
        with connected(standby.url) as engine:
            assert seen(engine, model) - {2_000} == set(LIVE)
            until(lambda: seen(engine, model) == set(LIVE))
            assert stored(engine, model) == {*EXPIRED, *LIVE, 2_000}


def test_a_session_reads_from_a_standby_and_writes_to_the_primary(cluster: Any) -> None:
    standby = cluster.replicas()[0]
    with connected(cluster.url) as primary, connected(standby.url) as reader:
        model = filled(primary)

        class Split(Session):
            def get_bind(self, *_: Any, clause: Any = None, **__: Any) -> Any:
                is_read = clause is not None and getattr(clause, "is_select", False)
                return reader if is_read and not self._flushing else primary

        catch_up(cluster)
        with Split() as session:
            assert set(session.scalars(select(model.id))) == set(LIVE)
            assert session.get(model, 0) is None
            session.add(model(id=0))  # an expired row has this key
            session.commit()
        catch_up(cluster)
        with Split() as session:
            found = session.get(model, 0)
            assert found is not None
            assert touch(found)
            session.delete(session.get(model, LIVE[0]))
            session.commit()
        catch_up(cluster)
        assert seen(reader, model) == {0, *LIVE[1:]}


class Outage:
    """Kills the primary after the first batch, and fails over once a sweep has met that often."""

    def __init__(self, cluster: Any) -> None:
        self.cluster = cluster
        self.errors: list[str] = []
        self.is_over = False

    def __call__(self, progress: Progress) -> None:
        before = self.cluster.primary()
        if progress.error is not None:
            self.errors.append(str(progress.error))
            if len(self.errors) == 3:
                assert self.cluster.fail_over() != before
                self.is_over = True
        elif not self.is_over:
            self.cluster.kill(before)


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_a_sweep_finds_the_new_primary(cluster: Any, driver: str) -> None:
    outage = Outage(cluster)
    with connected(cluster.url, driver) as engine:
        model = filled(engine)
        servers, told = [address_of(cluster.primary())], list[Server]()
        sweeper = Sweeper(engine, model, batch_size=100, on_progress=outage, on_server=told.append)
        report = sweeper.run_once()
        assert (report.ended, report.error) == (Ending.FINISHED, None)
        assert outage.is_over
        assert_swept(engine, model)
        servers.append(address_of(cluster.primary()))
        assert told == [Server(server, takes_writes=True) for server in servers]


def address_of(member: Any) -> str:
    url = make_url(member.url)
    return f"{url.host}:{url.port}"


async def test_an_asynchronous_sweep_finds_the_new_primary(cluster: Any) -> None:
    outage = Outage(cluster)
    with connected(cluster.url) as engine:
        model = filled(engine)
    through = create_async_engine(make_url(cluster.url).set(drivername="postgresql+asyncpg"))
    report = await AsyncSweeper(through, model, batch_size=100, on_progress=outage).run_once()
    await through.dispose()
    assert (report.ended, report.error) == (Ending.FINISHED, None)
    assert outage.is_over
    with connected(cluster.url) as engine:
        assert_swept(engine, model)


def assert_swept(engine: Engine, model: Any) -> None:
    """See that nothing is left but what no standby had yet, and that another sweep deletes that.

    Batches of which nobody hears don't wait for standbys (synchronous_commit is off for them).
    """
    assert seen(engine, model) == set(LIVE)
    assert len(stored(engine, model)) <= len(LIVE) + 100
    assert Sweeper(engine, model).run_once().ended is Ending.FINISHED
    assert stored(engine, model) == set(LIVE)


def test_rows_that_a_hook_has_heard_of_do_not_come_back(cluster: Any) -> None:
    heard: set[int] = set()

    def note(purged: Purged) -> None:
        heard.update(key for (key,) in purged.keys)

    outage = Outage(cluster)
    with connected(cluster.url) as engine:
        model = filled(engine)
        sweeper = Sweeper(engine, model, batch_size=100, on_progress=outage, on_purged=note)
        report = sweeper.run_once()
        assert (report.ended, report.error) == (Ending.FINISHED, None)
        assert outage.is_over
        assert heard == set(EXPIRED)
        assert stored(engine, model) == set(LIVE)


def test_acknowledged_rows_outlive_a_failover_beside_a_sweeper(cluster: Any) -> None:
    """A row that had expired and was written anew is live, whichever primary the sweeper meets."""
    acknowledged: set[int] = set()
    is_over = threading.Event()

    def write(engine: Engine, model: Any) -> None:
        for key in EXPIRED:
            while not is_over.is_set() and key not in acknowledged:
                # A commit that was cut off may have happened: then the row is there, and live.
                with suppress(OperationalError, IntegrityError), Session(engine) as session:
                    session.merge(model(id=key))
                    session.commit()
                    acknowledged.add(key)

    with connected(cluster.url) as engine, connected(cluster.url) as writing:
        model = filled(engine)
        sweeper = Sweeper(engine, model, batch_size=10)
        swept = threading.Thread(target=lambda: sweeper.run_forever(interval=0.01))
        written = threading.Thread(target=write, args=(writing, model))
        written.start()
        swept.start()
        try:
            until(lambda: len(acknowledged) > 20)
            cluster.fail_over()
            before = len(acknowledged)
            until(lambda: len(acknowledged) > before + 20)
        finally:
            is_over.set()
            sweeper.stop()
            written.join()
            swept.join()
        assert acknowledged | set(LIVE) <= seen(engine, model)


def test_a_lease_and_its_token_outlive_failovers(cluster: Any) -> None:
    with connected(cluster.url) as engine:
        leases = TableLeases(engine, None)
        held = leases.acquire("ttl_odm", "one", HOUR)
        assert held is not None
        tokens = [held.token]
        for holder in ("two", "three"):
            old = cluster.primary()
            cluster.fail_over()
            cluster.start(old)
            engine.dispose()
            assert leases.acquire("ttl_odm", holder, HOUR) is None
            assert leases.renew(held)
            leases.release(held)
            held = leases.acquire("ttl_odm", holder, HOUR)
            assert held is not None
            tokens.append(held.token)
        assert tokens == sorted(set(tokens))


def test_a_sweeper_of_a_standby_reports_that_in_a_line(cluster: Any) -> None:
    with connected(cluster.url) as engine:
        model = filled(engine)
        assert Sweeper(engine, model, max_rows=1).run_once().deleted == 1
    catch_up(cluster)
    with connected(cluster.replicas()[0].url) as engine:
        report = Sweeper(engine, model, standby="exit").run_once()
        assert (report.outcome, report.deleted) == ("standby", 0)
        (_, line) = str(report).splitlines()
        assert line == "The server is a standby, which takes no writes: sweep its primary."
        server = SQLAlchemyStore(engine, model).server()
        assert server is not None
        assert server.address == f"{engine.url.host}:{engine.url.port}"
        assert not server.takes_writes
        # Who only asks what is due gets an answer.
        assert Sweeper(engine, model, dry_run=True).run_once().due == len(EXPIRED) - 1


def test_a_check_compares_the_clocks_of_standbys(cluster: Any) -> None:
    replicas = [standby.url for standby in cluster.replicas()]
    with connected(cluster.url) as engine:
        assert asyncio.run(check_replicas(Application(engine), replicas)) == []
        (finding,) = asyncio.run(check_replicas(Application(engine), [cluster.url]))
        assert finding.code == "writable-replica"


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2"])
def test_hosts_of_which_none_takes_writes_are_a_database_that_is_away(
    cluster: Any, driver: str
) -> None:
    with connected(standbys_url(cluster), driver) as engine:
        store = SQLAlchemyStore(engine, cart())
        with pytest.raises(UnreachableStoreError, match="session is read-only"):
            store.now()


async def test_so_they_are_for_asyncpg(cluster: Any) -> None:
    url = make_url(standbys_url(cluster)).set(drivername="postgresql+asyncpg")
    engine = create_async_engine(url)
    with pytest.raises(UnreachableStoreError, match="None of the hosts match"):
        await AsyncSQLAlchemyStore(engine, cart()).now()
    await engine.dispose()


def standbys_url(cluster: Any) -> str:
    """Return a URL of hosts that take no writes, as all of them do in the middle of a failover."""
    addresses = [make_url(standby.url) for standby in cluster.replicas()]
    hosts = "&".join(f"host={address.host}:{address.port}" for address in addresses)
    return f"postgresql://ttl_odm@/ttl_odm?{hosts}&target_session_attrs=read-write"


@pytest.mark.parametrize("feedback", ["off", "on"])
def test_a_long_query_of_a_standby_meets_a_sweep(cluster: Any, feedback: str) -> None:
    standby = cluster.replicas()[0]
    set_on(standby, max_standby_streaming_delay="0", hot_standby_feedback=feedback)
    with connected(cluster.primary().url) as engine, connected(standby.url) as reader:
        model = filled(engine)
        catch_up(cluster)
        with reader.connect() as connection:
            connection.execution_options(isolation_level="REPEATABLE READ")
            assert len(left(connection, model)) == len(EXPIRED) + len(LIVE)
            if feedback == "on":
                until(lambda: is_heeded(engine, standby))
            assert Sweeper(engine, model).run_once().deleted == len(EXPIRED)
            with engine.connect() as other:
                other.execution_options(isolation_level="AUTOCOMMIT").execute(text("VACUUM carts"))
            catch_up(cluster)
            if feedback == "on":
                assert len(left(connection, model)) == len(EXPIRED) + len(LIVE)
            else:
                with pytest.raises(DBAPIError, match="conflict with recovery"):
                    left(connection, model)
        assert stored(engine, model) == set(LIVE)
    set_on(standby, max_standby_streaming_delay="", hot_standby_feedback="")


def is_heeded(engine: Engine, standby: Any) -> bool:
    """Whether the primary keeps what a standby's queries may read."""
    query = text("SELECT xmin IS NOT NULL FROM pg_replication_slots WHERE slot_name = :name")
    with engine.connect() as connection:
        return bool(connection.scalar(query, {"name": standby.name}))


def test_a_sweep_waits_for_a_standby_that_is_behind(cluster: Any) -> None:
    with ExitStack() as stack:
        engine = stack.enter_context(connected(cluster.primary().url))
        standby = stack.enter_context(connected(cluster.replicas()[-1].url))
        model = filled(engine)
        catch_up(cluster)
        throttle: Any = ReplicationLag(engine, at_most=0.2)
        assert throttle() is None
        run(standby, "SELECT pg_wal_replay_pause()")
        with engine.begin() as connection:
            add(connection, "carts", [(999, None, 2 * HOUR)])
        until(lambda: throttle() is not None)
        assert 0 < throttle() <= 0.2
        with engine.begin() as connection:
            connection.execute(text("CREATE ROLE reader LOGIN"))
        reader = stack.enter_context(connected(engine.url.set(username="reader")))
        blind: Any = ReplicationLag(reader)
        with pytest.raises(TTLConfigurationError, match="GRANT pg_monitor"):
            blind()

        def release() -> None:
            assert stored(engine, model) == {999, *EXPIRED, *LIVE}
            run(standby, "SELECT pg_wal_replay_resume()")

        report = sweep_that_waits(engine, model, throttle, release)
        assert (report.problems, report.deleted) == ((), len(EXPIRED) + 1)
        assert report.waited["throttle"] > 0
        until(lambda: throttle() is None)
        run(engine, "DROP ROLE reader")


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))

"""MariaDB with a replica: what each shows of expired rows, and sweeps through a promotion."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.clusters.lagging import begin_logs, sweep_beside_lag
from tests.clusters.mariadb import (
    EXPIRED,
    LIVE,
    PACE,
    Cart,
    engine_of,
    fill,
    routed,
    seen,
    stored,
)
from tests.clusters.members import once, revive, running, until
from tests.sql.sweeping import HOUR, add
from ttl_odm.sqlalchemy.sweep.store import SQLAlchemyStore
from ttl_odm.sweeper import Ending, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

pytestmark = [pytest.mark.slow, pytest.mark.starts("mariadb")]


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    with running("mariadb_replica", "MARIADB_REPLICA") as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster, and start again afterwards what is down."""
    yield started
    revive(started)


@pytest.fixture
def pair(cluster: Any) -> Iterator[tuple[Engine, Engine]]:
    """Give an engine on the primary and one on the replica, which has the primary's rows."""
    with ExitStack() as stack:
        members = (cluster.primary(), *cluster.replicas())
        primary, replica = (stack.enter_context(engine_of(member)) for member in members)
        fill(primary)
        until(lambda: has_rows(replica))
        yield primary, replica


def has_rows(engine: Engine) -> bool:
    with engine.connect() as connection:
        tables = connection.execute(text("SHOW TABLES LIKE 'carts'")).all()
        return bool(tables) and stored(engine) == [*EXPIRED, *LIVE]


def operate(cluster: Any, member: Any, *statements: str) -> None:
    """Run statements as a user who may do everything."""
    server = next(server for server in cluster.servers if server.member == member)
    server.ask(*statements, user="operator")


def test_an_expired_row_is_hidden_on_primary_and_replica(pair: tuple[Engine, Engine]) -> None:
    for engine in pair:
        assert seen(engine) == [*LIVE]
        assert stored(engine) == [*EXPIRED, *LIVE]


def test_the_clock_of_a_replica_decides_what_it_shows(
    cluster: Any, pair: tuple[Engine, Engine]
) -> None:
    _, replica = pair
    (member,) = cluster.replicas()
    operate(cluster, member, "STOP SLAVE")  # as far behind as can be
    try:
        with replica.connect() as connection:
            connection.execute(text("SET timestamp = UNIX_TIMESTAMP() + 7200"))
            assert not connection.execute(Cart.__table__.select()).all()
    finally:
        operate(cluster, member, "START SLAVE")


@pytest.mark.parametrize("lease", [True, False])
def test_a_sweeper_of_a_replica_reports_in_one_line_that_it_takes_no_writes(
    pair: tuple[Engine, Engine], *, lease: bool
) -> None:
    _, replica = pair
    report = Sweeper(replica, Cart, lease=lease, standby="exit").run_once()
    assert (report.outcome, report.problems, report.deleted) == ("standby", (), 0)
    server = SQLAlchemyStore(replica, Cart).server()
    assert server is not None
    assert not server.takes_writes
    assert stored(replica) == [*EXPIRED, *LIVE]


def test_a_sweep_goes_on_with_the_promoted_replica(
    cluster: Any, pair: tuple[Engine, Engine]
) -> None:
    killed, (primary, replica) = cluster.primary(), pair

    def fail_over() -> None:
        """Fail over when the replica has the lease and the batch, which it may lack otherwise."""
        until(lambda: stored(replica) == stored(primary))
        cluster.fail_over()

    with routed(cluster.primary) as engine:
        kill = once(fail_over)
        report = Sweeper(engine, Cart, pace=PACE, on_progress=kill).run_once()
        assert not report.problems
        assert report.ended is Ending.FINISHED
        assert stored(engine) == seen(engine) == [*LIVE]
    cluster.start(killed)
    with engine_of(killed) as former:
        assert stored(former) == [*LIVE]


def test_a_sweeper_of_a_demoted_primary_finds_the_new_one(
    cluster: Any, pair: tuple[Engine, Engine]
) -> None:
    primary, replica = cluster.primary(), cluster.replicas()[0]
    places = [primary]
    with routed(lambda: places[0]) as engine:
        assert seen(engine) == [*LIVE]  # and the pool keeps the connection
        operate(cluster, primary, "SET GLOBAL read_only = ON")
        operate(cluster, replica, "SET GLOBAL read_only = OFF", "STOP SLAVE")
        try:
            places[0] = replica
            report = Sweeper(engine, Cart, pace=PACE).run_once()
            assert (report.problems, report.deleted) == ((), len(EXPIRED))
        finally:
            operate(cluster, replica, "SET GLOBAL read_only = ON")
            operate(cluster, primary, "SET GLOBAL read_only = OFF")
            cluster.kill(replica)
            cluster.outdated.add(replica.name)  # it has transactions that the primary hasn't
            cluster.start(replica)


def test_a_sweep_waits_for_a_replica_that_is_behind(pair: tuple[Engine, Engine]) -> None:
    primary, replica = pair

    def write() -> None:
        with primary.begin() as connection:
            add(connection, "carts", [(999, None, 2 * HOUR)])

    report = sweep_beside_lag(primary, replica, Cart, write=write, stored=lambda: stored(primary))
    assert (report.problems, report.deleted) == ((), len(EXPIRED) + 1)


def test_a_replica_is_not_waited_for_because_the_primary_begins_another_log(
    pair: tuple[Engine, Engine],
) -> None:
    primary, _ = pair
    begin_logs(primary)


def test_a_replica_keeps_what_a_sweep_hides_from_it(
    cluster: Any, pair: tuple[Engine, Engine]
) -> None:
    primary, replica = pair
    (member,) = cluster.replicas()
    setting = "SET GLOBAL replicate_events_marked_for_skip"
    operate(cluster, member, "STOP SLAVE", f"{setting} = 'FILTER_ON_SLAVE'", "START SLAVE")
    try:
        report = Sweeper(primary, Cart, pace=PACE, replicate=False).run_once()
        assert report.deleted == len(EXPIRED)
        with primary.begin() as connection:
            connection.execute(text("INSERT INTO carts (id, ttl, _ts) VALUES (5000, -1, 0)"))
        until(lambda: 5000 in stored(replica))
        assert stored(replica) == [*EXPIRED, *LIVE, 5000]
        assert seen(replica) == seen(primary) == [*LIVE, 5000]
    finally:
        operate(cluster, member, "STOP SLAVE", f"{setting} = 'REPLICATE'", "START SLAVE")

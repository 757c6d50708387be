"""PostgreSQL with two standbys: migrations and drops of partitions while a server fails."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import create_engine, make_url, text

from tests.clusters.members import revive, running, until
from tests.clusters.outages import (
    ADD,
    DROP,
    INDEX,
    SCAN,
    WRONG,
    Migrated,
    after,
    change,
    resumed,
    see_on_all,
    see_partitions_on_all,
    sweep_through,
)
from tests.sql.cutting import dropping, looking

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = [pytest.mark.slow, pytest.mark.starts("postgres"), pytest.mark.usefixtures("noon")]

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE :query AND wait_event = :event"


@pytest.fixture(scope="module")
def started() -> Iterator[Any]:
    any_of_two = {"synchronous_standby_names": "ANY 1 (one, two, three)"}
    with running("postgres_standby", "POSTGRES_STANDBY", **any_of_two) as standbys:
        yield standbys


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster, without tables; start again afterwards what is down."""
    yield started
    revive(started)
    with leading_to(started.url) as engine, engine.begin() as connection:
        connection.execute(text("DROP SCHEMA public CASCADE"))
        connection.execute(text("CREATE SCHEMA public"))


@pytest.fixture
def engine(cluster: Any) -> Iterator[Engine]:
    """Give an engine that finds the primary, whichever that is."""
    with leading_to(cluster.url) as engine:
        yield engine


@contextmanager
def leading_to(url: str) -> Iterator[Engine]:
    engine = create_engine(make_url(url).set(drivername="postgresql+psycopg"))
    try:
        yield engine
    finally:
        engine.dispose()


def waits(engine: Engine, query: str, event: str) -> bool:
    """Whether a statement waits for something on the primary."""
    with engine.connect() as connection:
        return bool(connection.scalar(text(_WAITING), {"query": query, "event": event}))


def engine_of(member: Any) -> AbstractContextManager[Engine]:
    """Connect to one member."""
    return leading_to(member.url)


def test_an_add_ttl_goes_on_after_a_failover_before_any_of_its_statements(
    cluster: Any, engine: Engine, tmp_path: Path
) -> None:
    made = Migrated.made(engine, tmp_path, "undisturbed", ADD).state()
    for number in count(1):
        migrated = Migrated.made(engine, tmp_path, f"visits_{number}")
        migrated.add(ADD)
        error = migrated.meets(change(number), cluster.fail_over)
        engine.dispose()
        migrated.migrate()
        assert migrated.state() == made
        assert migrated.is_backfilled()
        if error is None:
            break
        assert not any(wrong in error for wrong in WRONG)
        revive(cluster)
    assert number > 15
    see_on_all(cluster, migrated, engine_of)


OTHERS: Final = {
    "scan": ([ADD], SCAN, change(2, "DROP INDEX")),
    "index": ([ADD, SCAN], INDEX, change(2, "CREATE INDEX")),
    "drop": ([ADD], DROP, change(1, "DROP COLUMN")),
    "dropped": ([ADD], DROP, after(1, "DROP COLUMN")),
}
"""Operations: those before them, and the moment of the outage."""


@pytest.mark.parametrize("name", OTHERS)
def test_other_operations_go_on_after_a_failover(
    cluster: Any, engine: Engine, tmp_path: Path, name: str
) -> None:
    before, operation, moment = OTHERS[name]
    migrated, _ = resumed(engine, tmp_path, before, operation, moment, cluster.fail_over)
    see_on_all(cluster, migrated, engine_of)


def test_an_index_that_is_being_built_during_a_failover_is_built_anew(
    cluster: Any, engine: Engine, tmp_path: Path
) -> None:
    made = Migrated.made(engine, tmp_path, "undisturbed", ADD).state()
    migrated = Migrated.made(engine, tmp_path, "visits")
    migrated.add(ADD)
    invalid = text("SELECT count(*) FROM pg_index WHERE NOT indisvalid")
    failing_over: list[Any] = []
    with ThreadPoolExecutor(1) as pool, engine.connect() as writer:

        def begin() -> None:
            """Let the index wait for a transaction that writes, until the primary is gone."""
            writer.execute(text("UPDATE visits SET views = 0"))
            failing_over.append(pool.submit(fail_over))

        def fail_over() -> None:
            until(lambda: waits(engine, "CREATE INDEX CONCURRENTLY%", "virtualxid"))
            cluster.fail_over()

        assert migrated.meets(change(1, "CREATE INDEX CONCURRENTLY"), begin) is not None
        failing_over[0].result()
        writer.invalidate()
    engine.dispose()
    with engine.connect() as connection:
        assert connection.scalar(invalid) == 1
    migrated.migrate()
    assert migrated.state() == made
    see_on_all(cluster, migrated, engine_of)


def test_a_migration_is_done_while_one_of_two_standbys_is_down(
    cluster: Any, engine: Engine, tmp_path: Path
) -> None:
    made = Migrated.made(engine, tmp_path, "undisturbed", ADD).state()
    for number, standby in enumerate(cluster.replicas()):
        cluster.kill(standby)
        migrated = Migrated.made(engine, tmp_path, f"visits_{number}", ADD)
        assert migrated.state() == made
        see_on_all(cluster, migrated, engine_of)


def test_a_migration_waits_while_no_standby_is_there_to_acknowledge_it(
    cluster: Any, engine: Engine, tmp_path: Path
) -> None:
    made = Migrated.made(engine, tmp_path, "undisturbed", ADD).state()
    migrated = Migrated.made(engine, tmp_path, "visits")
    migrated.add(ADD)
    standbys = cluster.replicas()
    with ThreadPoolExecutor(1) as pool:
        for standby in standbys:
            cluster.kill(standby)
        migrating = pool.submit(migrated.migrate)
        try:
            until(lambda: waits(engine, "%", "SyncRep"))
            assert not migrating.done()
        finally:
            cluster.start(standbys[0])
        migrating.result()
        assert migrated.state() == made
    see_on_all(cluster, migrated, engine_of)


@pytest.mark.parametrize("scene", [dropping, looking])
@pytest.mark.parametrize("moment", ["lock", "drop", "commit", "committed"])
def test_a_sweep_drops_a_partition_though_the_primary_fails(
    cluster: Any, engine: Engine, scene: Any, moment: str
) -> None:
    moments = {
        "lock": change(1, "LOCK TABLE"),
        "drop": change(1, "DROP TABLE"),
        "commit": after(1, "DROP TABLE"),
        "committed": after(2, "DROP TABLE"),
    }
    _, table = sweep_through(engine, scene, moments[moment], cluster.fail_over)
    see_partitions_on_all(cluster, engine, table, engine_of)

"""MariaDB and MySQL: migrations and drops of partitions while a member of a cluster fails."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import event, text

from tests.clusters.mariadb import engine_of, routed
from tests.clusters.members import revive, running
from tests.clusters.outages import (
    ADD,
    DROP,
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
from tests.sql.cutting import dropping

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("noon")]

KINDS: Final = ("MARIADB_REPLICA", "GALERA", "MYSQL_REPLICA", "MYSQL_GROUP")


def _starting(kind: str) -> pytest.MarkDecorator:
    return pytest.mark.starts("mysql" if kind.startswith("MYSQL") else "mariadb")


ADDING: Final = {
    "progress": change(1, "CREATE TABLE", "ttl_odm_migration"),
    "columns": change(1, "ADD COLUMN"),
    "added": after(1, "ADD COLUMN"),
    "backfill": change(2, "UPDATE visits SET"),
    "index": change(2, "ADD INDEX"),
    "version": change(1, "INSERT INTO visits_versions"),
}
"""The moments of `ADD`: before a statement, and after one."""


@pytest.fixture(
    scope="module", params=[pytest.param(kind, marks=_starting(kind)) for kind in KINDS]
)
def started(request: pytest.FixtureRequest) -> Iterator[Any]:
    with running(request.param.lower(), request.param) as cluster:
        yield cluster


@pytest.fixture
def cluster(started: Any) -> Iterator[Any]:
    """Give the cluster, without tables; start again afterwards what is down."""
    yield started
    revive(started)
    with leading_to(started) as engine, engine.begin() as connection:
        connection.execute(text("DROP DATABASE ttl_odm"))
        connection.execute(text("CREATE DATABASE ttl_odm"))


@pytest.fixture
def engine(cluster: Any) -> Iterator[Engine]:
    """Give an engine that leads to the primary, whichever that is."""
    with leading_to(cluster) as engine:
        yield engine


@contextmanager
def leading_to(cluster: Any) -> Iterator[Engine]:
    with routed(cluster.primary) as engine:

        @event.listens_for(engine, "connect")
        def wait_for_others(connection: Any, _: Any) -> None:
            """Let a node of Galera show what another one has committed."""
            with connection.cursor() as cursor:
                if cursor.execute("SHOW VARIABLES LIKE 'wsrep_sync_wait'"):
                    cursor.execute("SET SESSION wsrep_sync_wait = 15")

        yield engine


@pytest.mark.parametrize("moment", ADDING)
def test_an_add_ttl_goes_on_after_a_failover(
    cluster: Any, engine: Engine, tmp_path: Path, moment: str
) -> None:
    migrated, error = resumed(engine, tmp_path, [], ADD, ADDING[moment], cluster.fail_over)
    assert not any(wrong in error for wrong in WRONG)
    assert migrated.is_backfilled()
    see_on_all(cluster, migrated, engine_of)


@pytest.mark.parametrize(
    ("operation", "moment"),
    [(SCAN, change(2, "DROP INDEX")), (DROP, after(1, "DROP COLUMN"))],
    ids=["scan", "drop"],
)
def test_other_operations_go_on_after_a_failover(
    cluster: Any, engine: Engine, tmp_path: Path, operation: str, moment: Any
) -> None:
    migrated, _ = resumed(engine, tmp_path, [ADD], operation, moment, cluster.fail_over)
    see_on_all(cluster, migrated, engine_of)


def test_a_migration_is_done_while_a_member_is_down(
    cluster: Any, engine: Engine, tmp_path: Path
) -> None:
    made = Migrated.made(engine, tmp_path, "undisturbed", ADD).state()
    cluster.kill(cluster.replicas()[0])
    migrated = Migrated.made(engine, tmp_path, "visits", ADD)
    assert migrated.state() == made
    see_on_all(cluster, migrated, engine_of)


@pytest.mark.parametrize(
    "moment",
    [change(1, "DROP PARTITION"), after(1, "DROP PARTITION")],
    ids=["before", "after"],
)
def test_a_sweep_drops_a_partition_though_the_primary_fails(
    cluster: Any, engine: Engine, moment: Any
) -> None:
    _, table = sweep_through(engine, dropping, moment, cluster.fail_over)
    see_partitions_on_all(cluster, engine, table, engine_of)

"""Galera: migrations that break off at one node, and go on at another one that lags."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
from sqlalchemy import text

from tests.clusters.mariadb import engine_of, routed
from tests.clusters.members import running, until
from tests.clusters.outages import ADD, DROP, SCAN, Migrated, after, change
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = [pytest.mark.slow, pytest.mark.starts("mariadb"), pytest.mark.usefixtures("noon")]

CATCHING_UP: Final = "SET STATEMENT wsrep_sync_wait%"
NOTHING: Final = "pass"
"""A revision with which Alembic makes its own table, which it reads before ours."""

BROKEN_OFF: Final = {
    "added": ([NOTHING], ADD, after(1, "ADD COLUMN")),
    "backfill": ([NOTHING], ADD, change(2, "UPDATE visits SET")),
    "version": ([NOTHING], ADD, change(1, "UPDATE visits_versions")),
    "scan": ([ADD], SCAN, change(2, "DROP INDEX")),
    "drop": ([ADD], DROP, after(1, "DROP COLUMN")),
}
"""Operations: those before them, and the moment at which the connection is lost."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with running("galera", "GALERA") as cluster:
        yield cluster


@pytest.fixture
def nodes(cluster: Any) -> Iterator[list[Engine]]:
    """Give an engine on each of two nodes, without tables."""
    one, two, _ = cluster.members
    with engine_of(one) as first, engine_of(two) as second:
        yield [first, second]
        with first.begin() as connection:
            connection.execute(text("DROP DATABASE ttl_odm"))
            connection.execute(text("CREATE DATABASE ttl_odm"))
        catch_up(second)


def catch_up(node: Engine) -> None:
    """Wait until a node has applied what the others have committed."""
    with node.connect() as connection:
        connection.execute(text("SET SESSION wsrep_sync_wait = 1"))
        connection.execute(text("SELECT 1"))
        connection.invalidate()


@contextmanager
def lagging(node: Engine) -> Iterator[Callable[[], object]]:
    """Let a node answer, but apply nothing; give what lets it go on."""
    with node.connect() as connection:
        connection.execute(text("FLUSH TABLES WITH READ LOCK"))
        try:
            yield lambda: connection.execute(text("UNLOCK TABLES"))
        finally:
            connection.execute(text("UNLOCK TABLES"))


def running_at(node: Engine, like: str) -> list[int]:
    """The connections to a node whose statement is like this."""
    query = (
        "SELECT id FROM information_schema.processlist "
        "WHERE db = DATABASE() AND id <> CONNECTION_ID() AND COALESCE(info, '') LIKE :query"
    )
    with node.connect() as connection:
        return list(connection.scalars(text(query), {"query": like}))


def sever(node: Engine) -> None:
    """Cut all connections to a node."""
    with node.connect() as connection:
        for number in running_at(node, "%"):
            if number != connection.scalar(text("SELECT CONNECTION_ID()")):
                connection.execute(text(f"KILL {number}"))


@pytest.mark.parametrize("name", BROKEN_OFF)
def test_a_migration_goes_on_at_a_node_that_lags(
    cluster: Any, nodes: list[Engine], tmp_path: Path, name: str
) -> None:
    before, operation, moment = BROKEN_OFF[name]
    first, second = nodes
    made = Migrated.made(first, tmp_path, "undisturbed", *before, operation).state()
    places = [cluster.members[0]]
    with routed(lambda: places[0]) as engine, ThreadPoolExecutor(1) as pool:
        migrated = Migrated.made(engine, tmp_path, "visits", *before)
        migrated.add(operation)
        catch_up(second)
        with lagging(second) as let_go:
            assert migrated.meets(moment, lambda: sever(first)) is not None
            engine.dispose()
            places[0] = cluster.members[1]
            migrating = pool.submit(migrated.migrate)
            until(lambda: running_at(second, CATCHING_UP))
            let_go()
            migrating.result()
        assert migrated.state() == made
        assert operation == DROP or migrated.is_backfilled()
    migrated.arrives(first)


def test_a_node_that_does_not_catch_up_is_reported(nodes: list[Engine], tmp_path: Path) -> None:
    first, second = nodes
    made = Migrated.made(first, tmp_path, "undisturbed", ADD, SCAN).state()
    migrated = Migrated.made(second, tmp_path, "visits", ADD)
    migrated.add(SCAN)
    timeout = "SET GLOBAL wsrep_provider_repl_causal_read_timeout = {}"
    with lagging(second), second.connect() as connection:
        connection.execute(text(timeout.format(1)))
        try:
            with first.begin() as writer:
                writer.execute(text("CREATE TABLE events (id INT PRIMARY KEY)"))
            with pytest.raises(TTLError, match="lags behind the others"):
                migrated.migrate()
        finally:
            connection.execute(text(timeout.format(30)))
    migrated.migrate()
    assert migrated.state() == made

"""Clusters of several primaries: migrations that go on at another member, which lags."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from tests.clusters.lagging import held_back
from tests.clusters.mariadb import engine_of, routed
from tests.clusters.members import running, until
from tests.clusters.outages import ADD, DROP, SCAN, Migrated, after, change
from ttl_odm.alembic.runner import Runner
from ttl_odm.alembic.runner import catch_up as ready
from ttl_odm.errors import TTLError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from sqlalchemy import Engine

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("noon")]

NOTHING: Final = "pass"
"""A revision with which Alembic makes its own table, which it reads before ours."""

EVERYTHING: Final = "FLUSH TABLES WITH READ LOCK"

BROKEN_OFF: Final = {
    "added": ([NOTHING], ADD, after(1, "ADD COLUMN")),
    "backfill": ([NOTHING], ADD, change(2, "UPDATE visits SET")),
    "version": ([NOTHING], ADD, change(1, "UPDATE visits_versions")),
    "scan": ([ADD], SCAN, change(2, "DROP INDEX")),
    "drop": ([ADD], DROP, after(1, "DROP COLUMN")),
}
"""Operations: those before them, and the moment at which the connection is lost."""


@dataclass(frozen=True)
class Kind:
    """A kind of cluster.

    Attributes:
        module: Where `local_servers` has it.
        name: What it is called there.
        catch_up: What a session sets that has to see what others have committed.
        impatient: What lets it wait for a second only; None where its own setting does.
        patient: Sets that back.
    """

    module: str
    name: str
    catch_up: str
    impatient: str | None = None
    patient: str | None = None


_LIMIT: Final = "SET GLOBAL wsrep_provider_repl_causal_read_timeout = {}".format
GALERA: Final = Kind(
    "galera",
    "GALERA",
    catch_up="wsrep_sync_wait = 1",
    impatient=_LIMIT(1),
    patient=_LIMIT(30),
)
GROUP: Final = Kind(
    "mysql_group",
    "MYSQL_GROUP_MULTI",
    catch_up="group_replication_consistency = 'BEFORE'",
)


_GALERA: Final = pytest.param(GALERA, marks=pytest.mark.starts("mariadb"), id="galera")
_GROUP: Final = pytest.param(GROUP, marks=pytest.mark.starts("mysql"), id="group")


@pytest.fixture(scope="module", params=[_GALERA, _GROUP])
def kind(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(scope="module")
def cluster(kind: Kind) -> Iterator[Any]:
    with running(kind.module, kind.name) as cluster:
        yield cluster


@pytest.fixture
def nodes(kind: Kind, cluster: Any) -> Iterator[list[Engine]]:
    """Give an engine on each of two members, without tables."""
    one, two, _ = cluster.members
    with engine_of(one) as first, engine_of(two) as second:
        yield [first, second]
        with first.begin() as connection:
            connection.execute(text("DROP DATABASE ttl_odm"))
            connection.execute(text("CREATE DATABASE ttl_odm"))
        catch_up(kind, second)


def catch_up(kind: Kind, node: Engine) -> None:
    """Wait until a member has applied what the others have committed."""
    with node.connect() as connection:
        connection.execute(text(f"SET SESSION {kind.catch_up}"))
        connection.execute(text("SHOW DATABASES"))
        connection.invalidate()


def running_at(node: Engine, like: str) -> list[int]:
    """The connections to a member whose statement is like this."""
    query = (
        "SELECT id FROM information_schema.processlist "
        "WHERE db = DATABASE() AND id <> CONNECTION_ID() AND COALESCE(info, '') LIKE :query"
    )
    with node.connect() as connection:
        return list(connection.scalars(text(query), {"query": like}))


def sever(node: Engine) -> None:
    """Cut all connections to a member."""
    with node.connect() as connection:
        for number in running_at(node, "%"):
            if number != connection.scalar(text("SELECT CONNECTION_ID()")):
                connection.execute(text(f"KILL {number}"))


@pytest.mark.parametrize("name", BROKEN_OFF)
def test_a_migration_goes_on_at_a_member_that_lags(
    kind: Kind, cluster: Any, nodes: list[Engine], tmp_path: Path, name: str
) -> None:
    before, operation, moment = BROKEN_OFF[name]
    first, second = nodes
    made = Migrated.made(first, tmp_path, "undisturbed", *before, operation).state()
    places = [cluster.members[0]]
    with routed(lambda: places[0]) as engine, ThreadPoolExecutor(1) as pool:
        migrated = Migrated.made(engine, tmp_path, "visits", *before)
        migrated.add(operation)
        catch_up(kind, second)
        with held_back(second, EVERYTHING) as let_go:
            assert migrated.meets(moment, lambda: sever(first)) is not None
            engine.dispose()
            places[0] = cluster.members[1]
            migrating = pool.submit(migrated.migrate)
            until(lambda: running_at(second, "SHOW DATABASES"))
            let_go()
            migrating.result()
        assert migrated.state() == made
        assert operation == DROP or migrated.is_backfilled()
    migrated.arrives(first)


def test_a_member_that_does_not_catch_up_is_reported(
    kind: Kind, nodes: list[Engine], tmp_path: Path
) -> None:
    first, second = nodes
    made = Migrated.made(first, tmp_path, "undisturbed", ADD, SCAN).state()
    migrated = Migrated.made(second, tmp_path, "visits", ADD)
    migrated.add(SCAN)
    with held_back(second, EVERYTHING), impatient(kind, second, migrated):
        with first.begin() as writer:
            writer.execute(text("CREATE TABLE events (id INT PRIMARY KEY)"))
        with pytest.raises(TTLError, match="lags behind the others"):
            migrated.migrate()
    migrated.migrate()
    assert migrated.state() == made


@contextmanager
def impatient(kind: Kind, node: Engine, migrated: Migrated) -> Iterator[None]:
    """Let a migration wait for a second only."""
    options = migrated.project.options
    patience = options["ttl_odm"]
    with node.connect() as connection:
        if kind.impatient is not None:
            connection.execute(text(kind.impatient))
        options["ttl_odm"] = {**patience, "give_up_after": 1}
        try:
            yield
        finally:
            options["ttl_odm"] = patience
            if kind.patient is not None:
                connection.execute(text(kind.patient))


@pytest.mark.parametrize("kind", [_GROUP], indirect=True)
def test_a_server_that_has_left_its_group_is_not_waited_for(
    cluster: Any, nodes: list[Engine]
) -> None:
    _, second = nodes
    with second.connect() as connection:
        connection.execute(text("STOP GROUP_REPLICATION"))
        connection.commit()
        settings = text("SELECT @@SESSION.group_replication_consistency, @@SESSION.wait_timeout")
        before = connection.execute(settings).one()
        connection.commit()
        ready(Runner(MigrationContext.configure(connection)))
        assert connection.execute(settings).one() == before
    cluster.thaw(cluster.members[1])

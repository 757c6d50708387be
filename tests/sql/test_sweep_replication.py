"""`replicate=False`: what replicas and subscribers hear of a sweep."""

from __future__ import annotations

from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.ext.asyncio import create_async_engine

from tests.sql import cutting, pooler
from tests.sql.sweeping import HOUR, add, cart, left
from tests.sql.test_pooled_leases import pooled
from tests.subscribers import replicated, subscriber
from ttl_odm import TTLConfigurationError
from ttl_odm.dialects.family import GIVE_ORIGIN_BACK, MAKE_ORIGIN, TAKE_ORIGIN
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import URL, Engine

    from tests.backends import Backend

# Each server replicates in its own way.
pytestmark = pytest.mark.every_server

servers = pytest.mark.databases("postgres", "mariadb", "mysql")

SETTING = {
    # PostgreSQL doesn't show a session's origin, but says whether it had one.
    "postgres": "SELECT pg_replication_origin_session_is_setup()",
    "mariadb": "SELECT @@skip_replication",
    "mysql": "SELECT NOT @@sql_log_bin",
}


class World:
    """A database with subscribers, an engine that has one connection, and a table to sweep."""

    def __init__(self, backend: Backend, url: URL, engine: Engine) -> None:
        self.backend, self.url, self.engine = backend, url, engine
        self.model = cart()
        self.model.metadata.create_all(engine)

    def fill(self, *keys: int) -> None:
        """Write rows that have expired."""
        with self.engine.begin() as connection:
            add(connection, "carts", [(key, None, 2 * HOUR) for key in keys])

    def delete(self, key: int) -> None:
        """Delete a row as an application does."""
        with self.engine.begin() as connection:
            connection.execute(text("DELETE FROM carts WHERE id = :key"), {"key": key})

    def is_hidden(self) -> bool:
        """Whether what the pool's connection writes is kept from subscribers."""
        with self.engine.connect() as connection:
            return bool(connection.scalar(text(SETTING[self.backend.database])))


def make_world(backend: Backend, stack: ExitStack) -> World:
    url = stack.enter_context(replicated(backend))
    is_sync = backend.sync_url is not None
    usual = "postgresql+psycopg" if backend.database == "postgres" else "mysql+pymysql"
    own = url if is_sync else url.set(drivername=usual)
    engine = create_engine(own, pool_size=1, max_overflow=0)
    stack.callback(engine.dispose)
    return World(backend, url, engine)


@pytest.fixture
def world(backend: Backend) -> Iterator[World]:
    with ExitStack() as stack:
        yield make_world(backend, stack)


@pytest.fixture
def async_world(async_backend: Backend) -> Iterator[World]:
    with ExitStack() as stack:
        yield make_world(async_backend, stack)


def deleted(subscribed: Any, *, chosen: bool = True) -> int:
    """How many deleted carts a subscriber has heard of."""
    return int(subscribed.hears(chosen=chosen).count("DELETE carts"))


def refuse(engine: Engine, key: int) -> None:
    """Let a trigger refuse that a row is deleted."""
    if engine.dialect.name == "postgresql":
        cutting.run(
            engine,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '45000'; END $$",
            f"CREATE TRIGGER refuses BEFORE DELETE ON carts FOR EACH ROW WHEN (OLD.id = {key}) "
            "EXECUTE FUNCTION refuse()",
        )
    else:
        cutting.run(
            engine,
            "CREATE TRIGGER refuses BEFORE DELETE ON carts FOR EACH ROW BEGIN "
            f"IF OLD.id = {key} THEN SIGNAL SQLSTATE '45000'; END IF; END",
        )


@pytest.mark.slow
@servers
@pytest.mark.every_driver
def test_a_subscriber_hears_of_the_application_and_not_of_the_sweeper(world: World) -> None:
    world.fill(1, 2, 3)
    with subscriber(world.engine, world.backend.database) as subscribed:
        sweeper = Sweeper(world.engine, world.model, replicate=False, batch_size=1)
        world.delete(1)
        assert sweeper.run_once().deleted == 2
        world.fill(4)
        world.delete(4)
        lines = [line for line in subscribed.hears(chosen=True) if "carts" in line]
        assert lines == ["DELETE carts", "INSERT carts", "DELETE carts"]
        if world.backend.database != "mysql":  # elsewhere others choose to hear of all
            assert deleted(subscribed, chosen=False) == 4
        world.fill(5)
        Sweeper(world.engine, world.model).run_once().raise_for_failures()
        assert deleted(subscribed) == 3


@servers
@pytest.mark.every_driver
async def test_nor_does_it_hear_of_an_asynchronous_sweeper(async_world: World) -> None:
    world = async_world
    world.fill(1, 2, 3)
    engine = create_async_engine(world.url)
    with subscriber(world.engine, world.backend.database) as subscribed:
        report = await AsyncSweeper(engine, world.model, replicate=False).run_once()
        assert (report.deleted, report.problems) == (3, ())
        assert not deleted(subscribed)
    await engine.dispose()


@servers
@pytest.mark.parametrize("batch_size", [None, 1])
def test_rows_that_cannot_go_leave_the_connection_as_it_was(
    world: World, batch_size: int | None
) -> None:
    world.fill(1, 2, 3, 4)
    refuse(world.engine, 2)
    sweeper = Sweeper(world.engine, world.model, replicate=False, batch_size=batch_size)
    holder = create_engine(world.engine.url)
    with (
        closing(holder.connect()) as connection,
        subscriber(world.engine, world.backend.database) as subscribed,
    ):
        connection.execute(text("SELECT id FROM carts WHERE id = 3 FOR UPDATE"))
        report = sweeper.run_once()
        assert report.deleted == 2
        assert not world.is_hidden()
        assert not deleted(subscribed)
        cutting.run(
            world.engine, "DELETE FROM carts WHERE id = 1", "INSERT INTO carts (id) VALUES (9)"
        )
        assert "INSERT carts" in subscribed.hears(chosen=True)
    holder.dispose()
    with world.engine.connect() as connection:
        assert left(connection, world.model) == {2, 3, 9}


@servers
@pytest.mark.parametrize("failure", [ValueError, KeyboardInterrupt])
def test_a_hook_that_fails_leaves_the_connection_as_it_was(
    world: World, failure: type[BaseException]
) -> None:
    world.fill(1)
    hidden: list[bool] = []

    def fail(purged: Any) -> None:
        question = SETTING[world.backend.database]
        hidden.append(bool(purged.transaction.scalar(text(question))))
        raise failure

    sweeper = Sweeper(world.engine, world.model, replicate=False, on_purged=fail, lease=False)
    if failure is ValueError:
        assert sweeper.run_once().problems
    else:
        with pytest.raises(KeyboardInterrupt):
            sweeper.run_once()
    assert hidden[0]
    assert not world.is_hidden()
    with world.engine.connect() as connection:
        assert left(connection, world.model) == {1}


@pytest.mark.slow
@servers
def test_a_connection_that_is_cut_takes_what_was_set_along(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: 0.001)  # try again nearly without waiting
    world.fill(1, 2)
    is_postgresql = world.backend.database == "postgres"
    who = "SELECT pg_backend_pid()" if is_postgresql else "SELECT CONNECTION_ID()"
    kill = "SELECT pg_terminate_backend({}, 60000)" if is_postgresql else "KILL {}"
    cut: list[int] = []
    other = create_engine(world.engine.url)

    def cut_once(purged: Any) -> None:
        if not cut:
            cut.append(purged.transaction.scalar(text(who)))
            cutting.run(other, kill.format(cut[0]))

    with subscriber(world.engine, world.backend.database) as subscribed:
        sweeper = Sweeper(
            world.engine, world.model, replicate=False, on_purged=cut_once, lease=False
        )
        report = sweeper.run_once()
        assert (report.deleted, report.problems) == (2, ())
        assert not world.is_hidden()
        assert not deleted(subscribed)
    other.dispose()


@pytest.mark.databases("postgres")
@pytest.mark.parametrize("fails", [False, True])
def test_behind_a_pooler_no_other_client_gets_the_sweepers_session(
    world: World, *, fails: bool
) -> None:
    world.fill(1, 2, 3)
    if fails:
        refuse(world.engine, 2)
    with pooled(world.engine, pooler.in_turn) as (_, through):
        report = Sweeper(through, world.model, replicate=False, batch_size=1).run_once()
        assert report.deleted == (2 if fails else 3)
        for _ in range(4):  # each session twice
            with through.connect() as connection:
                assert not connection.scalar(text(SETTING["postgres"]))


@pytest.mark.databases("postgres")
def test_deferred_triggers_write_under_the_origin_too(world: World) -> None:
    world.fill(1)
    cutting.run(
        world.engine,
        "CREATE TABLE heard (id integer)",
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS "
        "$$ BEGIN INSERT INTO heard VALUES (OLD.id); RETURN NULL; END $$",
        "CREATE CONSTRAINT TRIGGER notes AFTER DELETE ON carts DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION note()",
    )
    with subscriber(world.engine, "postgres") as subscribed:
        assert Sweeper(world.engine, world.model, replicate=False).run_once().deleted == 1
        assert "INSERT heard" in subscribed.hears()
        assert "INSERT heard" not in subscribed.hears(chosen=True)


@pytest.mark.databases("postgres")
def test_an_origin_that_another_sweeper_has_is_waited_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ttl_odm.sweeper.batch_gate.ATTEMPTS", 2)
    monkeypatch.setattr("random.random", lambda: 0.001)
    world.fill(1)
    sweeper = Sweeper(world.engine, world.model, replicate=False)
    other = create_engine(world.engine.url)
    with other.connect() as connection:
        connection.execute(text(MAKE_ORIGIN))
        connection.commit()
        connection.execute(text(TAKE_ORIGIN))
        (problem,) = sweeper.run_once().problems
        assert "already active" in problem
        connection.execute(text(GIVE_ORIGIN_BACK))
    other.dispose()
    assert sweeper.run_once().deleted == 1


# --- rights --------------------------------------------------------------------------------------


RIGHTS = {
    "postgres": (
        "GRANT EXECUTE ON FUNCTION pg_replication_origin_session_setup(text), "
        "pg_replication_origin_session_reset() TO {who}"
    ),
    "mysql": "GRANT SESSION_VARIABLES_ADMIN ON *.* TO {who}",
}


@pytest.fixture
def poor(world: World) -> Iterator[tuple[Engine, str]]:
    """An engine whose user may sweep, and no more; with the user's name."""
    name = "ttl_odm_sweeps"
    is_postgresql = world.backend.database == "postgres"
    who = name if is_postgresql else f"{name}@'%'"
    grants = [f"GRANT SELECT, UPDATE, DELETE ON carts TO {who}"]
    if is_postgresql:
        cutting.run(world.engine, f"CREATE ROLE {who} LOGIN", *grants)
    else:
        cutting.run(world.engine, f"CREATE USER {who}", *grants)
    engine = create_engine(world.engine.url.set(username=name, password=None))
    yield engine, who
    engine.dispose()
    drop = [f"DROP OWNED BY {who}", f"DROP ROLE {who}"] if is_postgresql else [f"DROP USER {who}"]
    cutting.run(world.engine, *drop)


@pytest.mark.databases("postgres", "mysql")
def test_without_the_right_nothing_is_deleted_and_the_error_names_it(
    world: World, poor: tuple[Engine, str]
) -> None:
    engine, who = poor
    database = world.backend.database
    world.fill(1)
    sweeper = Sweeper(engine, world.model, replicate=False, lease=False)

    def problem() -> str:
        (text,) = sweeper.run_once().problems
        with world.engine.connect() as connection:
            assert left(connection, world.model) == {1}
        return text

    named = "GRANT EXECUTE ON FUNCTION" if database == "postgres" else "SESSION_VARIABLES_ADMIN"
    assert named in problem()
    if database == "postgres":
        assert MAKE_ORIGIN in problem()
        cutting.run(world.engine, MAKE_ORIGIN)
        assert "pg_replication_origin_session_setup" in problem()
    assert Sweeper(engine, world.model, lease=False, dry_run=True).run_once().due == 1
    cutting.run(world.engine, RIGHTS[database].format(who=who))
    engine.dispose()  # MySQL's privileges are those of when a session began
    assert sweeper.run_once().deleted == 1


@pytest.mark.databases("mariadb")
def test_mariadb_wants_no_right_for_it(world: World, poor: tuple[Engine, str]) -> None:
    world.fill(1)
    sweeper = Sweeper(poor[0], world.model, replicate=False, lease=False)
    with subscriber(world.engine, "mariadb") as subscribed:
        assert sweeper.run_once().deleted == 1
        assert (deleted(subscribed), deleted(subscribed, chosen=False)) == (0, 1)


@pytest.mark.databases("sqlite")
def test_a_database_without_replicas_says_so_when_the_sweeper_is_made(engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match=r"^replicate = False: sqlite can't hide a"):
        Sweeper(engine, cart(), replicate=False)
    Sweeper(engine, cart(), replicate=True)


# --- partitions ----------------------------------------------------------------------------------


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.usefixtures("noon")
def test_replicas_hear_of_new_partitions_and_not_of_dropped_ones(world: World) -> None:
    model, kept, gone = cutting.dropping(world.engine)
    (name,) = gone
    made = cutting.partitions(world.engine, "events")
    with subscriber(world.engine, world.backend.database) as subscribed:
        cutting.swept(world.engine, model, replicate=False)
        assert cutting.keys(world.engine, model) == kept
        assert name not in cutting.partitions(world.engine, "events")
        lines = subscribed.hears(chosen=True)
        assert not [line for line in lines if "DROP PARTITION" in line or "DELETE" in line]
        for new in cutting.partitions(world.engine, "events") - made:
            assert [line for line in lines if new in line]
    assert not world.is_hidden()


@pytest.mark.databases("postgres")
@pytest.mark.usefixtures("noon")
def test_subscribers_do_not_hear_of_rows_that_move_out_of_a_dropped_partition(world: World) -> None:
    model = cutting.visits(days=30, cut=cutting.MOVING)
    cutting.create(world.engine, model, 3)
    cutting.add(world.engine, model, 3, range(20))
    cutting.add(world.engine, model, 3, [99], ttl="86400 * 20")
    with subscriber(world.engine, "postgres") as subscribed:
        cutting.swept(world.engine, model, replicate=False)
        assert cutting.partitions(world.engine, "visits").isdisjoint({"visits_d3"})
        assert cutting.keys(world.engine, model) == [99]
        assert not [line for line in subscribed.hears(chosen=True) if "visits" in line]
        assert [line for line in subscribed.hears() if "visits" in line]

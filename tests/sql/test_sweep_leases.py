"""The table of the leases, beyond what the shipped suite asks of any lease."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import MetaData, create_engine, event, inspect, text
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm.errors import TTLConfigurationError
from ttl_odm.sqlalchemy import AdvisoryLeases, TTLMixin, lease_table
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sweeper import AsyncSweeper, Ending, LeaseState, StoreError, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

    from tests.backends import Backend

# Leases rest on each server's transactions.
pytestmark = pytest.mark.every_server


def test_looking_makes_no_table(engine: Engine) -> None:
    assert TableLeases(engine).read("ttl_odm") == LeaseState()
    assert not inspect(engine).get_table_names()


@pytest.mark.every_driver
def test_the_first_sweep_makes_the_table(engine: Engine, made: Any) -> None:
    model = made(cart())
    assert Sweeper(engine, model).run_once().ended is Ending.FINISHED
    assert inspect(engine).has_table("ttl_odm_lease")


async def test_the_first_asynchronous_sweep_makes_the_table(async_engine: AsyncEngine) -> None:
    model = cart()
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
    report = await AsyncSweeper(async_engine, model).run_once()
    assert report.ended is Ending.FINISHED


@pytest.mark.every_driver
def test_many_make_the_table_and_the_row_at_once(engine: Engine) -> None:
    leases, granted = TableLeases(engine), []
    start = threading.Barrier(8)

    def ask(holder: str) -> None:
        start.wait()
        granted.append(leases.acquire("ttl_odm", holder, HOUR))

    threads = [threading.Thread(target=ask, args=[str(number)]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(granted) == 8
    assert sum(lease is not None for lease in granted) == 1


def test_an_application_may_declare_the_table_and_name_it(engine: Engine) -> None:
    class Base(DeclarativeBase):
        pass

    class Cart(TTLMixin, Base):
        __tablename__ = "carts"
        __ttl__ = HOUR

        id: Mapped[int] = mapped_column(primary_key=True)

    lease_table(Base.metadata, name="Who sweeps")
    Base.metadata.create_all(engine)
    report = Sweeper(engine, Base).run_once()
    assert [each.table for each in report.targets] == ["carts"]
    assert set(inspect(engine).get_table_names()) == {"carts", "Who sweeps"}
    with engine.connect() as connection:
        quoted = engine.dialect.identifier_preparer.quote("Who sweeps")
        assert connection.scalar(text(f"SELECT token FROM {quoted}")) == 1  # noqa: S608


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_without_the_right_to_make_the_table_the_error_says_what_to_run(
    engine: Engine, backend: Backend
) -> None:
    model = cart()
    model.metadata.create_all(engine)
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
        name = engine.url.database
        grants = {
            "postgresql": [
                f'CREATE ROLE "{name}" LOGIN',
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC",
                f'GRANT SELECT, UPDATE, DELETE ON carts TO "{name}"',
            ],
            "mysql": [
                f"CREATE USER '{name}'@'%'",
                f"GRANT SELECT, UPDATE, DELETE ON `{name}`.carts TO '{name}'@'%'",
            ],
        }
        for statement in grants[engine.dialect.name]:
            connection.execute(text(statement))
    poor = create_engine(engine.url.set(username=name, password=None))
    try:
        report = Sweeper(poor, model).run_once()
        assert isinstance(report.error, StoreError)
        assert "Have an administrator run: CREATE TABLE ttl_odm_lease" in str(report.error)
        statement = str(report.error).partition("run: ")[2].partition("; or")[0]
        assert Sweeper(poor, model, lease=False).run_once().deleted == 1
        with engine.begin() as connection:
            connection.execute(text(statement))
            who = {"postgresql": f'"{name}"', "mysql": f"'{name}'@'%'"}[engine.dialect.name]
            connection.execute(text(f"GRANT SELECT, INSERT, UPDATE ON ttl_odm_lease TO {who}"))
        report = Sweeper(poor, model).run_once()
        report.raise_for_failures()
        assert report.ended is Ending.FINISHED
    finally:
        poor.dispose()
        drops = {
            "postgresql": f'DROP OWNED BY "{name}"; DROP ROLE "{name}"',
            "mysql": f"DROP USER '{name}'@'%'",
        }
        with engine.begin() as connection:
            for statement in drops[engine.dialect.name].split("; "):
                connection.execute(text(statement))


@pytest.mark.databases("postgres")
def test_leases_follow_a_translated_schema(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "Tenant 1"'))
    tenant = engine.execution_options(schema_translate_map={None: "Tenant 1"})
    lease = TableLeases(tenant).acquire("ttl_odm", "us", HOUR)
    assert lease is not None
    assert inspect(engine).has_table("ttl_odm_lease", schema="Tenant 1")
    assert TableLeases(engine).read("ttl_odm").holder is None


@pytest.mark.every_driver
@pytest.mark.databases("postgres", "mariadb", "mysql")
@pytest.mark.parametrize("isolation", ["AUTOCOMMIT", "SERIALIZABLE"])
def test_the_isolation_of_the_engine_does_not_matter_to_leases(
    backend: Backend, isolation: str
) -> None:
    assert backend.sync_url is not None
    engine = create_engine(backend.sync_url, isolation_level=isolation)
    leases = TableLeases(engine, lease_table(MetaData()))
    lease = leases.acquire("ttl_odm", "us", HOUR)
    assert lease is not None
    assert leases.acquire("ttl_odm", "them", HOUR) is None
    assert leases.renew(lease)
    assert leases.record(lease, "{}")
    leases.release(lease)
    assert leases.read("ttl_odm").holder is None
    engine.dispose()


def test_a_look_is_one_statement_beside_how_long_to_wait(engine: Engine) -> None:
    leases = TableLeases(engine)
    leases.set_paused("ttl_odm", paused=True)
    statements: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    assert leases.read("ttl_odm").paused
    assert len([sql for sql in statements if "ttl_odm_lease" in sql]) == 1


@pytest.mark.databases("sqlite", "mariadb", "mysql")
def test_advisory_locks_are_refused_where_there_are_none(engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match="has no advisory locks that are released"):
        AdvisoryLeases(engine)


@pytest.mark.databases("postgres")
def test_a_session_that_renews_nothing_is_ended_by_the_server(engine: Engine) -> None:
    hung = AdvisoryLeases(engine)
    lease = hung.acquire("ttl_odm", "us", 0.05)
    assert lease is not None
    leases = AdvisoryLeases(engine)
    while (taken := leases.acquire("ttl_odm", "them", 3_600)) is None:
        assert leases.read("ttl_odm").token == lease.token
    assert taken.token == lease.token + 1
    assert not hung.renew(lease)
    assert not hung._sessions
    leases.release(taken)
    assert leases.read("ttl_odm").holder is None


@pytest.mark.every_driver
@pytest.mark.databases("postgres")
def test_an_advisory_lock_takes_no_place_in_the_pool(backend: Backend) -> None:
    assert backend.sync_url is not None
    small = create_engine(backend.sync_url, pool_size=1, max_overflow=0, pool_timeout=1)
    model = cart()
    model.metadata.create_all(small)
    with small.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    report = Sweeper(small, model, lease=AdvisoryLeases(small)).run_once()
    report.raise_for_failures()
    assert report.deleted == 1
    small.dispose()


@pytest.mark.databases("postgres")
def test_advisory_locks_follow_a_translated_schema(engine: Engine) -> None:
    with engine.begin() as connection:
        connection.execute(text('CREATE SCHEMA "Tenant 1"'))
    theirs = AdvisoryLeases(engine.execution_options(schema_translate_map={None: "Tenant 1"}))
    ours = AdvisoryLeases(engine)
    held = [(leases, leases.acquire("ttl_odm", "us", HOUR)) for leases in (ours, theirs)]
    for leases, lease in held:
        assert lease is not None
        leases.release(lease)


def test_an_idle_sweep_is_three_transactions(engine: Engine, made: Any) -> None:
    """It takes the lease and reads its state, looks once, and records as it gives the lease back.

    PostgreSQL has one statement more in each, for how long to wait; MariaDB and MySQL, which have
    no UPDATE ... RETURNING, one more to read the state.
    """
    sweeper = Sweeper(engine, made(cart()))
    sweeper.run_once().raise_for_failures()
    sent: list[str] = []
    event.listen(engine, "before_cursor_execute", lambda *args: sent.append(args[2]))
    event.listen(engine, "commit", lambda _: sent.append("COMMIT"))
    event.listen(engine, "rollback", lambda _: sent.append("ROLLBACK"))
    sweeper.run_once().raise_for_failures()
    assert (sent.count("COMMIT"), sent.count("ROLLBACK")) == (3, 0)
    statements = {"sqlite": 3, "postgresql": 6, "mysql": 4}
    assert len(sent) - 3 == statements[engine.dialect.name], sent


@pytest.mark.databases("mariadb", "mysql")
def test_a_transaction_of_a_sweeper_takes_few_round_trips(engine: Engine, made: Any) -> None:
    """Beside its own: one to set the session up, one to set it back, and the pool's rollback."""
    small = create_engine(engine.url, pool_size=1, max_overflow=0)
    questions = "SHOW SESSION STATUS LIKE 'Questions'"
    sweeper = Sweeper(small, made(cart()))
    sweeper.run_once().raise_for_failures()

    def asked() -> int:
        with small.connect() as connection:
            return int(connection.exec_driver_sql(questions).one()[1])

    before = asked()
    sweeper.run_once().raise_for_failures()
    after = asked()
    small.dispose()
    counting = 2  # the question itself, and the rollback after the first one
    assert after - before - counting == (4 + 3) + 3 * (1 + 1 + 1)


@pytest.mark.every_driver
@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize("isolation", [None, "AUTOCOMMIT", "SERIALIZABLE"])
def test_a_sweeper_sets_a_session_back(backend: Backend, made: Any, isolation: Any) -> None:
    """What the application has set, which a connection has after each use as before the first."""
    assert backend.sync_url is not None
    options = {} if isolation is None else {"isolation_level": isolation}
    engine = create_engine(backend.sync_url, pool_size=1, max_overflow=0, **options)
    names = [
        *("lock_wait_timeout", "innodb_lock_wait_timeout", "autocommit", "time_zone"),
        *("tx_isolation", "transaction_isolation", "max_statement_time", "sql_safe_updates"),
    ]
    listed = ", ".join(f"'{name}'" for name in names)
    ask = f"SHOW SESSION VARIABLES WHERE Variable_name IN ({listed})"

    def settings() -> dict[str, str]:
        with engine.connect() as connection:
            return {str(row[0]): str(row[1]) for row in connection.exec_driver_sql(ask)}

    with engine.begin() as connection:
        connection.exec_driver_sql("SET SESSION lock_wait_timeout = 1700, time_zone = '+03:00'")
        connection.exec_driver_sql("SET SESSION sql_safe_updates = 1")
    before = settings()
    assert (before["lock_wait_timeout"], before["sql_safe_updates"]) == ("1700", "ON")
    model = made(cart(sweep="scan"))
    with engine.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR)])
    report = Sweeper(engine, model, statement_timeout=60).run_once()
    report.raise_for_failures()
    assert report.deleted == 1
    assert settings() == before
    engine.dispose()

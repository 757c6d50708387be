"""`ttl-odm check` and `status` where a database sweeps a table by itself."""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

import ttl_odm.alembic  # noqa: F401 - it registers the operations
from tests.cli import shop
from tests.cli.running import CliRunner
from tests.cli.test_policy_command import Base
from tests.guard import GUARD
from ttl_odm.cli.commands import cli
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.sweep.leases import TableLeases

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sqlalchemy import Engine

events = pytest.mark.databases("mariadb", "mysql")
postgresql = pytest.mark.databases("postgres")

FUSE = "fuse: more than 1000 rows have expired"
NOTE = "ttl_odm: sweeps by default ttl 86400, and archives in elsewhere"
RAN = "REPLACE INTO carts_ttl_sweeps (id, ran_at, deleted, total, outcome) SELECT 1, 1, 0, 0, "


@pytest.fixture
def scheduler(engine: Engine) -> Iterator[None]:
    with engine.connect() as connection:
        before = connection.scalar(text("SELECT @@event_scheduler"))
        connection.execute(text("SET GLOBAL event_scheduler = ON"))
        yield
        connection.execute(text(f"SET GLOBAL event_scheduler = {before}"))


def migrate(engine: Engine, verb: str, *arguments: object, **options: object) -> None:
    with engine.connect() as connection:
        operations = Operations(MigrationContext.configure(connection))
        getattr(operations, f"{verb}_ttl")("carts", *arguments, **options)


def codes(engine: Engine) -> set[str]:
    """What is found of the database's own sweeps."""
    url = engine.url.render_as_string(hide_password=False)
    words = ["check", "--app", "tests.cli.shop:Base", "--url", url, "--json"]
    listed = json.loads(CliRunner().invoke(cli, words).stdout)["findings"]
    head = "database-sweep-"
    return {
        finding["code"].removeprefix(head) for finding in listed if finding["code"].startswith(head)
    }


def shown(engine: Engine, *options: str) -> str:
    url = engine.url.render_as_string(hide_password=False)
    words = ["status", "--app", "tests.cli.shop:Base", "--url", url, *options]
    return CliRunner().invoke(cli, words).stdout


@contextmanager
def no_run(engine: Engine) -> Iterator[None]:
    """Wait until no run goes on, and let none note anything: each takes this lock first."""
    name = "CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.carts'), 256), 48))"
    with engine.connect() as connection:
        assert connection.scalar(text(f"SELECT GET_LOCK({name}, {GUARD})")) == 1
        yield
        connection.scalar(text(f"SELECT RELEASE_LOCK({name})"))


def run(engine: Engine, statement: str) -> list[Any]:
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return list(result) if result.returns_rows else []


@pytest.mark.slow
@events
@pytest.mark.usefixtures("scheduler")
def test_what_is_wrong_with_the_job_is_found(engine: Engine) -> None:
    shop.fill(engine)
    assert codes(engine) == set()
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    assert codes(engine) <= {"never"}  # the EVENT runs in a second
    run(engine, "ALTER EVENT carts_ttl_sweep DISABLE")
    assert codes(engine) == {"disabled"}
    migrate(engine, "alter", 60)
    assert codes(engine) == {"disabled", "outdated"}
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    assert codes(engine) <= {"never"}
    run(engine, "ALTER EVENT carts_ttl_sweep DISABLE ON SLAVE")  # as after a failover
    assert codes(engine) == {"replicated"}
    migrate(engine, "alter", shop.Cart.__ttl__)
    assert codes(engine) <= {"never"}
    run(engine, "SET GLOBAL event_scheduler = OFF")
    assert codes(engine) == {"off"}
    run(engine, "SET GLOBAL event_scheduler = ON")
    run(engine, "DROP EVENT carts_ttl_sweep")
    assert codes(engine) == {"gone"}
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="index")
    assert codes(engine) == set()


@pytest.mark.slow
@events
@pytest.mark.usefixtures("scheduler")
def test_all_models_may_have_stored_defaults(engine: Engine) -> None:
    Base.metadata.create_all(engine)
    url = engine.url.render_as_string(hide_password=False)
    app = ["--app", "tests.cli.test_policy_command:Base", "--url", url]
    installed = CliRunner().invoke(cli, ["install-sweep", *app])
    assert installed.exit_code == 0, installed.output
    checked = CliRunner().invoke(cli, ["check", *app, "--json"])
    assert checked.exit_code == 0, checked.output
    assert "never-swept" not in checked.output  # the database does
    shown = CliRunner().invoke(cli, ["status", *app]).output
    assert shown.count("swept by the database") == 3


@pytest.mark.slow
@events
@pytest.mark.usefixtures("scheduler")
def test_a_job_that_fails_or_has_stopped_is_found(engine: Engine) -> None:
    shop.fill(engine)
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    with no_run(engine):
        run(engine, f"{RAN}'swept'")
        assert codes(engine) == {"silent"}
        assert "! carts: the last sweep by the database was" in shown(engine)
        run(engine, f"{RAN}'failed: they stay'")
        assert codes(engine) == {"failing"}
        run(engine, "DELETE FROM carts_ttl_sweeps")
        assert codes(engine) == {"never"}
        assert "! carts: never swept: the database's own job carts_ttl_sweep" in shown(engine)
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="index")


@pytest.mark.slow
@postgresql
def test_what_is_wrong_with_a_procedure_of_postgresql_is_found(engine: Engine) -> None:
    shop.fill(engine)
    assert codes(engine) == set()
    assert "swept" not in shown(engine)
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    assert codes(engine) == {"never"}
    assert "! carts: never swept: the database's own job public.carts_ttl_sweep" in shown(engine)
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CALL carts_ttl_sweep()"))
    assert codes(engine) == set()
    assert "carts: swept by the database: swept, " in shown(engine)
    (target,) = [
        target
        for target in json.loads(shown(engine, "--json"))["targets"]
        if target["target"] == "carts"
    ]
    assert target["database_sweep"]["state"] == "elsewhere"
    assert target["database_sweep"]["problem"] is None
    run(engine, "UPDATE carts_ttl_sweeps SET ran_at = ran_at - interval '1 hour'")
    assert codes(engine) == {"silent"}
    run(engine, "UPDATE carts_ttl_sweeps SET outcome = 'failed: they stay'")
    assert codes(engine) == {"failing"}
    migrate(engine, "alter", 60)
    assert codes(engine) == {"failing", "outdated"}
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="index")
    assert codes(engine) == set()


@pytest.mark.slow
@events
@pytest.mark.usefixtures("scheduler")
def test_an_event_is_installed_changed_paused_broken_found_and_dropped(engine: Engine) -> None:
    """All of it by the EVENT itself, which the server runs each second."""
    shop.fill(engine)
    migrate(engine, "alter", 86_400, sweep="database")
    until(engine, lambda: count(engine) == 5)
    until(engine, lambda: state(engine).total == 10)
    assert codes(engine) == set()

    migrate(engine, "alter", 3_600, sweep="database", max_fraction=0.9)
    assert state(engine).default == "3600"
    assert codes(engine) == {"outdated"}  # the model says a day
    migrate(engine, "alter", 86_400)

    leases = TableLeases(engine)
    leases.set_paused("ttl_odm", paused=True)
    until(engine, lambda: state(engine).outcome == "paused")
    run(engine, "UPDATE carts SET _ts = 0 LIMIT 2")
    leases.set_paused("ttl_odm", paused=False)
    until(engine, lambda: count(engine) == 3)

    run(engine, "ALTER TABLE carts_ttl_sweeps RENAME TO hidden")
    run(engine, "UPDATE carts SET _ts = 0 LIMIT 1")
    assert codes(engine) == {"never"}
    run(engine, "ALTER TABLE hidden RENAME TO carts_ttl_sweeps")
    until(engine, lambda: count(engine) == 2)
    run(engine, "DROP EVENT carts_ttl_sweep")
    assert codes(engine) == {"gone"}
    migrate(engine, "alter", 86_400, sweep="database")
    assert codes(engine) <= {"never"}

    migrate(engine, "drop")
    assert state(engine) is None
    left = "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()"
    assert not [name for (name,) in run(engine, left) if "ttl_sweep" in name]


def state(engine: Engine) -> Any:
    with engine.connect() as connection:
        return read_job(connection, None, "carts")


def count(engine: Engine) -> int:
    return int(run(engine, "SELECT COUNT(*) FROM carts")[0][0])


def until(engine: Engine, condition: Callable[[], bool]) -> None:
    """Wait for the EVENT."""
    deadline = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < deadline, state(engine)
        time.sleep(0.1)


@pytest.mark.slow
@events
@pytest.mark.usefixtures("scheduler")
def test_a_blown_fuse_and_another_archive_are_found(engine: Engine) -> None:
    shop.fill(engine)
    migrate(engine, "alter", 86_400, sweep="database", max_fraction=0.5)
    run(engine, "ALTER EVENT carts_ttl_sweep DISABLE")
    with no_run(engine):
        now = "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))"
        run(engine, f"UPDATE carts_ttl_sweeps SET ran_at = {now}, outcome = '{FUSE}'")  # noqa: S608
        assert codes(engine) == {"disabled"}
        assert state(engine).outcome == FUSE
        run(engine, f"ALTER PROCEDURE carts_ttl_sweep COMMENT '{NOTE}'")
        assert codes(engine) == {"outdated", "disabled"}


@pytest.mark.slow
@postgresql
def test_so_they_are_on_postgresql(engine: Engine) -> None:
    shop.fill(engine)
    migrate(engine, "alter", 86_400, sweep="database", max_fraction=0.5)
    run(engine, f"UPDATE carts_ttl_sweeps SET ran_at = now(), outcome = '{FUSE}'")  # noqa: S608
    assert codes(engine) == {"fuse"}
    run(engine, f"COMMENT ON PROCEDURE carts_ttl_sweep(integer) IS '{NOTE}'")
    assert codes(engine) == {"outdated", "fuse"}

"""PostgreSQL with pg_cron sweeps by itself: installed, changed, paused, broken, found, removed.

The server is the tests' own. pg_cron calls a job once a minute, so what needs a call is one test.
A machine that has no pg_cron, and on which it can't be installed, fails here, and is told how.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from click.testing import CliRunner
from sqlalchemy import create_engine, make_url, text

import ttl_odm.alembic
from tests.cli import shop
from tests.guard import GUARD
from ttl_odm.cli.commands import cli
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job
from ttl_odm.sqlalchemy.sweep.leases import TableLeases

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

assert ttl_odm.alembic

TOOLS = Path(__file__).parents[2] / "tools"
LEFT = "SELECT proname FROM pg_proc WHERE proname LIKE '%ttl_sweep'"


@pytest.fixture(scope="module")
def address(postgres_url: str) -> Iterator[str]:
    """Start a PostgreSQL with pg_cron, unless somebody gives one."""
    del postgres_url  # these tests are PostgreSQL's
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(TOOLS)
        from local_servers.lifetime import started
        from local_servers.pg_cron import PG_CRON

        if os.environ.get("TTL_ODM_TEST_PG_CRON") == "none":
            pytest.skip("TTL_ODM_TEST_PG_CRON=none leaves pg_cron out")
        given = os.environ.get(PG_CRON.variable)
        if given:
            yield given
            return
        with started([PG_CRON]) as variables:
            yield variables[PG_CRON.variable]


def engine_of(address: str, database: str | None = None) -> Engine:
    url = make_url(address).set(drivername="postgresql+psycopg")
    return create_engine(url if database is None else url.set(database=database))


@pytest.fixture
def engine(address: str) -> Iterator[Engine]:
    """The database that pg_cron lives in, with the shop's tables."""
    made = engine_of(address)
    run(made, "CREATE EXTENSION IF NOT EXISTS pg_cron")
    run(made, "SELECT cron.unschedule(jobid) FROM cron.job")
    shop.fill(made)
    yield made
    run(made, "SELECT cron.unschedule(jobid) FROM cron.job")
    run(made, "DROP SCHEMA public CASCADE")
    run(made, "CREATE SCHEMA public")
    made.dispose()


@pytest.fixture
def elsewhere(address: str, engine: Engine) -> Iterator[Engine]:
    """Another database of the server, where there is no pg_cron."""
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CREATE DATABASE elsewhere"))
        made = engine_of(address, "elsewhere")
        yield made
        made.dispose()
        connection.execute(text("DROP DATABASE elsewhere WITH (FORCE)"))


def run(engine: Engine, statement: str) -> list[Any]:
    with engine.begin() as connection:
        result = connection.execute(text(statement))
        return list(result) if result.returns_rows else []


def migrate(engine: Engine, verb: str, *arguments: object, **options: object) -> None:
    with engine.connect() as connection:
        operations = Operations(MigrationContext.configure(connection))
        getattr(operations, f"{verb}_ttl")("carts", *arguments, **options)


def command(engine: Engine, *words: str) -> str:
    url = engine.url.render_as_string(hide_password=False)
    application = ["--app", "tests.cli.shop:Base", "--url", url]
    return CliRunner().invoke(cli, [words[0], *application, *words[1:]]).stdout


def codes(engine: Engine) -> set[str]:
    """What is found of the database's own sweeps."""
    head, listed = "database-sweep-", json.loads(command(engine, "check", "--json"))["findings"]
    found = (finding["code"] for finding in listed)
    return {code.removeprefix(head) for code in found if code.startswith(head)}


def state(engine: Engine) -> Any:
    with engine.connect() as connection:
        return read_job(connection, None, "carts")


def until(condition: Any, what: Any) -> None:
    """Wait for what pg_cron does, which may be in a minute."""
    deadline = time.monotonic() + GUARD
    while not condition():
        assert time.monotonic() < deadline, what()
        time.sleep(0.2)


def expire(engine: Engine, table: str = "carts") -> None:
    run(engine, f"UPDATE {table} SET _ts = now() - interval '30 days', ttl = NULL")  # noqa: S608


def count(engine: Engine, table: str = "carts") -> int:
    return int(run(engine, f"SELECT count(*) FROM {table}")[0][0])  # noqa: S608


@pytest.mark.in_turns
def test_expired_rows_go_by_themselves_here_and_in_another_database(
    engine: Engine, elsewhere: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """And a run of that minute sees a pause, another default, and that the job is gone."""
    migrate(engine, "alter", 86_400, sweep="database")
    run(elsewhere, "CREATE TABLE carts (id integer PRIMARY KEY)")
    run(elsewhere, "INSERT INTO carts SELECT generate_series(1, 3)")
    with caplog.at_level("WARNING"):
        migrate(elsewhere, "add", 60, sweep="database")
    said = caplog.messages[-1]
    run(engine, said[said.index("SELECT cron.schedule_in_database") :])
    assert codes(engine) == {"never"}
    expire(engine)
    expire(elsewhere)
    until(lambda: count(engine) + count(elsewhere) == 0, lambda: (state(engine), state(elsewhere)))
    until(lambda: state(engine).total, lambda: state(engine))
    assert codes(engine) == set()
    assert "swept by the database: swept" in command(engine, "status")

    leases = TableLeases(engine)
    leases.set_paused("ttl_odm", paused=True)
    until(lambda: state(engine).outcome == "paused", lambda: state(engine))
    run(engine, "INSERT INTO carts (id, ttl) VALUES (100, NULL)")
    expire(engine)
    migrate(engine, "alter", 3_600)
    leases.set_paused("ttl_odm", paused=False)
    busy = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'CALL public.carts_ttl_sweep%'"
    until(lambda: len(run(engine, busy)) == 1, lambda: run(engine, busy))  # elsewhere's goes on
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.execute(text("CALL carts_ttl_sweep()"))  # as the next minute's does
    assert count(engine) == 0
    assert state(engine).default == "3600"

    migrate(engine, "drop")
    migrate(elsewhere, "drop")
    # A run that was under way has nothing more to do.
    until(lambda: not run(engine, busy), lambda: run(engine, busy))
    assert run(engine, LEFT) + run(elsewhere, LEFT) == []
    names = [name for (name,) in run(engine, "SELECT jobname FROM cron.job")]
    assert names == ["elsewhere.public.carts_ttl_sweep"]  # whose database doesn't know it


@pytest.mark.slow
def test_what_is_wrong_with_a_job_of_pg_cron_is_found(engine: Engine) -> None:
    migrate(engine, "alter", 86_400, sweep="database")
    run(engine, "UPDATE carts_ttl_sweeps SET ran_at = now(), outcome = 'swept'")
    assert codes(engine) == set()
    run(engine, "SELECT cron.alter_job(jobid, active := false) FROM cron.job")
    assert codes(engine) == {"disabled"}
    migrate(engine, "alter", 86_400)  # it stays as somebody wants it
    assert state(engine).state == "disabled"
    migrate(engine, "alter", 60)
    assert codes(engine) == {"disabled", "outdated"}
    migrate(engine, "alter", 86_400, sweep="database")
    assert codes(engine) == set()
    run(engine, "SELECT cron.unschedule(jobid) FROM cron.job")
    assert codes(engine) == {"gone"}
    migrate(engine, "alter", 86_400, sweep="database")
    assert codes(engine) == set()


@pytest.mark.slow
def test_nothing_is_left(engine: Engine) -> None:
    tables = "SELECT relname FROM pg_class WHERE relname LIKE '%ttl_sweeps%'"
    migrate(engine, "alter", 86_400, sweep="database", window="01:00-05:00", max_fraction=0.5)
    assert run(engine, LEFT)
    assert run(engine, tables)
    migrate(engine, "drop")
    assert run(engine, LEFT) + run(engine, tables) + run(engine, "SELECT 1 FROM cron.job") == []


@pytest.mark.slow
def test_install_sweep_schedules_all_and_removes_them(engine: Engine) -> None:
    command(engine, "install-sweep", "--window", "22:00-04:00", "--timezone", "Europe/Berlin")
    jobs = "SELECT jobname FROM cron.job ORDER BY jobname"
    assert [name for (name,) in run(engine, jobs)] == [
        f"public.{table}_ttl_sweep" for table in ("carts", "web_sessions", "wishes")
    ]
    assert state(engine).window == "22:00-04:00 Europe/Berlin"
    command(engine, "install-sweep", "--remove")
    assert run(engine, jobs) == []
    assert run(engine, LEFT) == []
    printed = command(engine, "install-sweep", "--print", "Cart")
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        connection.connection.driver_connection.execute(printed)  # type: ignore[union-attr]
    assert [name for (name,) in run(engine, jobs)] == ["public.carts_ttl_sweep"]

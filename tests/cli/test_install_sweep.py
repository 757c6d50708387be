"""`ttl-odm install-sweep`: the database's own job without a revision."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from sqlalchemy import text

from tests.cli import shop
from tests.cli.running import CliRunner
from ttl_odm.cli.commands import cli
from ttl_odm.database_sweep.sqlalchemy.catalogue import read_job

if TYPE_CHECKING:
    from collections.abc import Iterator

    from click.testing import Result
    from sqlalchemy import Engine

jobs = pytest.mark.databases("mariadb", "mysql", "postgres")


@pytest.fixture(autouse=True)
def _scheduler(engine: Engine) -> Iterator[None]:
    if engine.dialect.name not in ("mariadb", "mysql"):
        yield
        return
    with engine.connect() as connection:
        before = connection.scalar(text("SELECT @@event_scheduler"))
        connection.execute(text("SET GLOBAL event_scheduler = ON"))
        yield
        connection.execute(text(f"SET GLOBAL event_scheduler = {before}"))


def call(engine: Engine, *words: str) -> Result:
    url = engine.url.render_as_string(hide_password=False)
    options = ["--app", "tests.cli.shop:Base", "--url", url]
    return CliRunner().invoke(cli, ["install-sweep", *words, *options])


def swept(engine: Engine) -> set[str]:
    """The tables that have a job."""
    with engine.connect() as connection:
        names = ("carts", "web_sessions", "wishes")
        return {name for name in names if read_job(connection, None, name) is not None}


@pytest.mark.slow
@jobs
def test_it_installs_and_removes_the_jobs_of_some_or_all_models(engine: Engine) -> None:
    shop.fill(engine)
    installed = call(engine, "Cart")
    assert installed.exit_code == 0, installed.output
    assert "carts: the database deletes its expired rows" in installed.output
    assert swept(engine) == {"carts"}
    assert call(engine).exit_code == 0
    assert swept(engine) == {"carts", "web_sessions", "wishes"}
    removed = call(engine, "--remove")
    assert removed.exit_code == 0, removed.output
    assert swept(engine) == set()
    assert "carts: there is no job" in call(engine, "--remove", "carts").output


@jobs
def test_it_prints_what_it_would_run_and_that_runs(engine: Engine) -> None:
    shop.fill(engine)
    printed = call(engine, "Cart", "--print")
    assert printed.exit_code == 0, printed.output
    assert swept(engine) == set()
    is_postgresql = engine.dialect.name == "postgresql"
    if is_postgresql:
        assert "SELECT cron.schedule_in_database(" in printed.output
        statements = [printed.output.partition("SELECT cron.")[0]]
    else:
        assert printed.output.startswith("DELIMITER //")
        statements = printed.output.partition("\n")[2].split(" //\n")[:-1]
    with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)
        if is_postgresql:
            connection.exec_driver_sql("CALL carts_ttl_sweep()")
            assert connection.exec_driver_sql("SELECT count(*) FROM carts").scalar() == 5
    assert swept(engine) == {"carts"}
    call(engine, "--remove")


@pytest.mark.slow
@jobs
def test_a_table_whose_every_row_the_database_sweeps_needs_no_sweeper(engine: Engine) -> None:
    shop.fill(engine)
    url = engine.url.render_as_string(hide_password=False)
    check = ["check", "--app", "tests.cli.shop:Base", "--url", url]
    assert "no sweep has been recorded" in CliRunner().invoke(cli, check).output
    call(engine)
    assert "no sweep has been recorded" not in CliRunner().invoke(cli, check).output
    call(engine, "--remove")


@pytest.mark.databases("sqlite")
def test_a_database_without_jobs_is_refused(engine: Engine) -> None:
    shop.fill(engine)
    refused = call(engine, "Cart")
    assert refused.exit_code == 2
    assert "install-sweep is for MariaDB, MySQL and PostgreSQL." in refused.stderr


@pytest.mark.databases("postgres")
def test_an_unknown_model_is_named(engine: Engine) -> None:
    shop.fill(engine)
    refused = call(engine, "Basket")
    assert refused.exit_code == 2
    assert "no such model" in refused.stderr

"""`ttl-odm check` where MariaDB or MySQL sweeps a table by itself."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

import ttl_odm.alembic  # noqa: F401 - it registers the operations
from tests.cli import shop
from tests.cli.running import CliRunner
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sqlalchemy import Engine

pytestmark = pytest.mark.databases("mariadb", "mysql")


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
    return {each["code"].removeprefix(head) for each in listed if each["code"].startswith(head)}


def run(engine: Engine, statement: str) -> None:
    with engine.begin() as connection:
        connection.execute(text(statement))


@pytest.mark.usefixtures("scheduler")
def test_what_is_wrong_with_the_job_is_found(engine: Engine) -> None:
    shop.fill(engine)
    assert codes(engine) == set()
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    assert codes(engine) == set()
    run(engine, "ALTER EVENT carts_ttl_sweep DISABLE")
    assert codes(engine) == {"disabled"}
    migrate(engine, "alter", 60)
    assert codes(engine) == {"disabled", "outdated"}
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    assert codes(engine) == set()
    run(engine, "SET GLOBAL event_scheduler = OFF")
    assert codes(engine) == {"off"}
    run(engine, "SET GLOBAL event_scheduler = ON")
    run(engine, "DROP EVENT carts_ttl_sweep")
    assert codes(engine) == {"gone"}
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="index")
    assert codes(engine) == set()


@pytest.mark.usefixtures("scheduler")
def test_a_job_that_fails_or_has_stopped_is_found(engine: Engine) -> None:
    shop.fill(engine)
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="database")
    name = "CONCAT('ttl_odm.', LEFT(SHA2(CONCAT(DATABASE(), '.carts'), 256), 48))"
    with engine.connect() as connection:
        # While a run has not come to its end, no other notes anything.
        assert connection.scalar(text(f"SELECT GET_LOCK({name}, 120)")) == 1
        run(engine, "REPLACE INTO carts_ttl_sweeps VALUES (1, 1, 0, 0, 'swept')")
        assert codes(engine) == {"silent"}
        run(engine, "REPLACE INTO carts_ttl_sweeps VALUES (1, 1, 0, 0, 'failed: they stay')")
        assert codes(engine) == {"failing"}
        connection.scalar(text(f"SELECT RELEASE_LOCK({name})"))
    migrate(engine, "alter", shop.Cart.__ttl__, sweep="index")

"""What the command line says of tables that are cut by time."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import text

from tests.cli.agenda import Event
from tests.cli.running import CliRunner
from tests.sql.cutting import add, ago, create, is_mysql, unmake
from ttl_odm.cli.commands import cli

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = [
    pytest.mark.databases("postgres", "mariadb", "mysql"),
    pytest.mark.usefixtures("noon"),
]

COUNTED = {"there": 4, "over": 1, "missing": 1, "dead": 1}


@pytest.fixture
def app(engine: Engine) -> list[str]:
    """Events of five days ago; the day after tomorrow has no partition yet."""
    create(engine, Event, 1, 5)
    add(engine, Event, 5, range(10))
    with engine.connect() as connection:
        last = f"events_p{ago(connection, -2):%Y%m%d}"
    unmake(engine, "events", last)
    url = engine.url.render_as_string(hide_password=False)
    return ["--app", "tests.cli.agenda:Event", "--url", url]


def answer(*arguments: str, status: int = 0) -> Any:
    finished = CliRunner().invoke(cli, [*arguments, "--json"])
    assert finished.exit_code == status, finished.output
    return json.loads(finished.stdout)


def findings(app: list[str]) -> dict[str, Any]:
    found = CliRunner().invoke(cli, ["check", *app, "--json"])
    every = {each["code"]: each for each in json.loads(found.stdout)["findings"]}
    every.pop("clock", None)  # it is noon by the database's, whatever this host says
    return every


@pytest.mark.slow
def test_status_counts_partitions(app: list[str]) -> None:
    (target,) = answer("status", *app)["targets"]
    assert target["partitions"] == COUNTED
    page = CliRunner().invoke(cli, ["status", *app]).stdout
    assert "events: 4 partitions, 1 over, 1 more to be created" in page


def test_a_dry_run_counts_them_and_changes_none(app: list[str]) -> None:
    report = answer("sweep", *app, "--dry-run")
    assert report["targets"][0]["partitions"] == COUNTED
    (target,) = answer("status", *app)["targets"]
    assert target["partitions"] == COUNTED


def test_a_sweep_says_how_many_it_has_left(app: list[str]) -> None:
    report = answer("sweep", *app)
    assert report["targets"][0]["partitions"] == {"there": 4, "over": 0, "missing": 0, "dead": 0}


def test_plan_says_what_would_be_over(app: list[str]) -> None:
    later = f"ExpireAfter('created_at', {9 * 86_400})"
    plan = answer("plan", "Event", *app, "--policy", later)
    assert plan["partitions"] == {
        "current": COUNTED,
        "planned": {**COUNTED, "over": 0, "dead": 0},
    }
    page = CliRunner().invoke(cli, ["plan", "Event", *app]).stdout
    assert "current: 4 partitions, 1 over, 1 more to be created." in page


@pytest.mark.slow
def test_check_warns_of_missing_partitions_until_a_sweep_has_made_them(app: list[str]) -> None:
    assert "1 of its partitions don't exist yet" in findings(app)["missing-partitions"]["message"]
    assert CliRunner().invoke(cli, ["sweep", *app]).exit_code == 0
    assert findings(app) == {}


def test_check_warns_of_a_table_that_is_not_cut(engine: Engine, app: list[str]) -> None:
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE events"))
        kind = "datetime" if is_mysql(connection) else "timestamptz"
        connection.execute(text(f"CREATE TABLE events (id int, created_at {kind})"))
        connection.execute(text("ALTER TABLE events ADD PRIMARY KEY (id, created_at)"))
    assert "isn't partitioned by created_at" in findings(app)["not-partitioned"]["message"]


def test_check_says_why_partitions_stay(engine: Engine, app: list[str]) -> None:
    hindrance, reason = "ALTER TABLE events ENABLE ROW LEVEL SECURITY", "row-level security"
    if is_mysql(engine):
        hindrance = "CREATE TRIGGER heard BEFORE DELETE ON events FOR EACH ROW SET @heard = 1"
        reason = "triggers for DELETE"
    with engine.begin() as connection:
        connection.execute(text(hindrance))
    assert reason in findings(app)["partitions-stay"]["message"]

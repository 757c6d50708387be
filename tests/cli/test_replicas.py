"""`ttl-odm check --replica`: whether a replica hides rows when its primary does."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import make_url

from tests.cli import shop
from tests.cli.running import CliRunner
from ttl_odm.cli.commands import cli
from ttl_odm.sweeper import Server
from ttl_odm.sweeper.findings import of_replica

if TYPE_CHECKING:
    from sqlalchemy import Engine

READ_ONLY = Server("db2:5432", takes_writes=False)
NOW = datetime(2024, 5, 6, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)


@pytest.fixture
def url(engine: Engine) -> str:
    shop.fill(engine)
    return engine.url.render_as_string(hide_password=False)


def check(url: str, *options: str) -> Any:
    app = ["--app", "tests.cli.shop:Base", "--url", url]
    return CliRunner().invoke(cli, ["check", *app, *options])


def of_replicas(finished: Any) -> dict[str, str]:
    """The findings about replicas: their messages, by code."""
    findings = json.loads(finished.stdout)["findings"]
    found = {finding["code"]: finding["message"] for finding in findings}
    return {code: message for code, message in found.items() if "replica" in code}


@pytest.mark.databases("sqlite")
def test_a_file_is_a_replica_whose_clock_is_the_same(url: str) -> None:
    assert of_replicas(check(url, "--replica", url, "--json")) == {}


@pytest.mark.every_server
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_primary_is_no_replica(url: str) -> None:
    finished = check(url, "--replica", url, "--json")
    (message,) = of_replicas(finished).values()
    assert message.endswith(" takes writes as a primary does")
    assert "?" not in message


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_standby_that_is_checked_is_named(url: str, engine: Engine) -> None:
    read_only = {"options": "-c default_transaction_read_only=on"}
    standby = make_url(url).update_query_dict(read_only).render_as_string(hide_password=False)
    findings = json.loads(check(standby, "--json").stdout)["findings"]
    (message,) = (finding["message"] for finding in findings if finding["code"] == "standby")
    assert message.endswith(
        f":{engine.url.port} takes no writes, as a standby: nothing is swept there"
    )
    assert "standby" not in check(url, "--json").stdout


@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize(("sign", "word"), [("+", "ahead of"), ("-", "behind")])
def test_a_clock_that_is_off_is_found(url: str, sign: str, word: str) -> None:
    shift = {"init_command": f"SET timestamp = UNIX_TIMESTAMP() {sign} 60"}
    shifted = make_url(url).update_query_dict(shift).render_as_string(hide_password=False)
    finished = check(url, "--replica", shifted, "--json")
    assert finished.exit_code == 1
    message = of_replicas(finished)["replica-clock"]
    assert f" s {word} its primary's" in message
    assert "init_command" not in message


@pytest.mark.databases("sqlite")
@pytest.mark.parametrize("other", ["mongodb://127.0.0.1:1/shop", "nonsense"])
def test_a_replica_is_of_the_same_kind(url: str, other: str) -> None:
    finished = check(url, "--replica", other)
    assert finished.exit_code == 2
    assert other.partition(":")[0] in finished.stderr


@pytest.mark.parametrize("seconds", [-5.0, 0.0, 3.0, 6.0])
def test_a_clock_is_right_if_it_may_have_been_read_at_the_same_instant(seconds: float) -> None:
    between = NOW, NOW + SECOND
    assert not of_replica("db2", NOW + seconds * SECOND, between, READ_ONLY)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (66.0, "65 s ahead of its primary's: it hides rows that long before they expire"),
        (-65.0, "65 s behind its primary's: it shows rows for that long after they have expired"),
    ],
)
def test_a_difference_is_told_with_what_it_means(seconds: float, words: str) -> None:
    (finding,) = of_replica("db2", NOW + seconds * SECOND, (NOW, NOW + SECOND), READ_ONLY)
    assert finding.code == "replica-clock"
    assert finding.message == f"the clock of db2 is {words}"

"""`manage.py ttl_check --replica`: whether a replica hides rows when its primary does."""

from __future__ import annotations

import json
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import pytest
from django.core.management import CommandError, call_command
from django.db import connections

from tests.django_app import project

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.backends import Backend

REPLICA = "other"


@contextmanager
def replica(settings: dict[str, Any], **options: str) -> Iterator[None]:
    """Let the alias of the replica mean a database, with further options of its connections."""
    before = connections.settings[REPLICA]
    project.point_at(REPLICA, {**settings, "OPTIONS": {**settings["OPTIONS"], **options}})
    yield
    connections[REPLICA].close()
    project.point_at(REPLICA, before)


def check(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, str]:
    """The findings about replicas: their messages, by code."""
    capsys.readouterr()
    with suppress(SystemExit):  # for what else there may be to find
        call_command("ttl_check", "--json", "--replica", REPLICA, *options)
    (content,) = map(json.loads, capsys.readouterr().out.splitlines())
    found = {finding["code"]: finding["message"] for finding in content["findings"]}
    return {code: message for code, message in found.items() if "replica" in code}


@pytest.mark.slow
@pytest.mark.databases("sqlite")
def test_a_file_is_a_replica_whose_clock_is_the_same(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    with replica(project.database_settings(backend)):
        assert check(capsys) == {}


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_server_that_takes_no_writes_is_a_replica(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    read_only = "-c default_transaction_read_only=on"
    with replica(project.database_settings(backend), options=read_only):
        assert check(capsys) == {}


@pytest.mark.slow
@pytest.mark.every_server
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_primary_is_no_replica(backend: Backend, capsys: pytest.CaptureFixture[str]) -> None:
    with replica(project.database_settings(backend)):
        assert check(capsys) == {"writable-replica": "other takes writes as a primary does"}


@pytest.mark.slow
@pytest.mark.databases("mariadb", "mysql")
@pytest.mark.parametrize(("sign", "word"), [("+", "ahead of"), ("-", "behind")])
def test_a_clock_that_is_off_is_found(
    backend: Backend, sign: str, word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shift = f"SET timestamp = UNIX_TIMESTAMP() {sign} 60"
    with replica(project.database_settings(backend), init_command=shift):
        message = check(capsys)["replica-clock"]
    assert message.startswith("the clock of other is ")
    assert f" s {word} its primary's" in message


@pytest.mark.slow
@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_replica_that_is_away_is_named(
    backend: Backend, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = project.database_settings(backend)
    with replica({**settings, "PORT": "1"}), pytest.raises(SystemExit) as end:
        call_command("ttl_check", "--replica", REPLICA)
    assert end.value.code == 1
    assert capsys.readouterr().err.startswith("other: ")


@pytest.mark.slow
@pytest.mark.databases("postgres")
def test_a_replica_is_of_the_same_kind(backend: Backend, other: str) -> None:
    assert backend.database == "postgres"
    with pytest.raises(CommandError, match="isn't of the database's kind") as error:
        call_command("ttl_check", "--replica", other)
    assert error.value.returncode == 2


@pytest.mark.databases("sqlite")
@pytest.mark.usefixtures("backend")
def test_a_replica_is_one_of_a_single_database(other: str) -> None:
    databases = ["--database", "default", "--database", other]
    with pytest.raises(CommandError, match="give one --database") as error:
        call_command("ttl_check", *databases, "--replica", other)
    assert error.value.returncode == 2

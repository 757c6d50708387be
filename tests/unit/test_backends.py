"""Which backends a run covers, and how their URLs are made: pure functions, no server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.backends import (
    DATABASES,
    MYSQL_WANTED,
    MissingServerError,
    async_backends,
    databases,
    drivers_left_out,
    fresh,
    server_url,
    sync_backends,
    synchronous,
    with_scheme,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_every_sql_database_has_a_sync_and_an_async_driver() -> None:
    assert sync_backends(DATABASES) == [
        "sqlite",
        "postgres-psycopg",
        "mariadb-pymysql",
        "mysql-pymysql",
    ]
    assert async_backends(DATABASES) == [
        "sqlite",
        "postgres-psycopg",
        "postgres-asyncpg",
        "mariadb-aiomysql",
        "mysql-aiomysql",
    ]


def test_more_drivers_of_a_database_are_listed_where_they_are_asked_for() -> None:
    assert sync_backends({"postgres"}, every_driver=True) == [
        "postgres-psycopg",
        "postgres-psycopg2",
        "postgres-pg8000",
    ]
    assert "mysql-mysqlconnector" in sync_backends({"mysql"}, every_driver=True)
    assert async_backends({"mysql"}, every_driver=True) == ["mysql-aiomysql", "mysql-asyncmy"]


def test_a_driver_that_needs_a_compiler_is_listed_or_named_as_left_out() -> None:
    listed = sync_backends({"mariadb"}, every_driver=True)
    for driver in ("mysqldb", "mariadbconnector"):
        assert (f"mariadb-{driver}" in listed) != (driver in drivers_left_out())


@pytest.mark.parametrize(
    ("wanted", "left_out"), [("", set()), ("if-available", set()), ("none", {"mysql"})]
)
def test_mysql_is_left_out_only_where_the_environment_says_so(
    wanted: str, left_out: set[str]
) -> None:
    assert databases({MYSQL_WANTED: wanted}) == set(DATABASES) - left_out


def test_a_database_that_is_left_out_brings_no_backend() -> None:
    assert sync_backends({"sqlite"}) == ["sqlite"]
    assert async_backends({"postgres"}) == ["postgres-psycopg", "postgres-asyncpg"]
    assert async_backends({"mongodb"}) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("mysql://me@127.0.0.1:3306/old", "mysql+aiomysql://me@127.0.0.1:3306/new"),
        ("mysql://me:p%40ss@h/old?charset=utf8", "mysql+aiomysql://me:p%40ss@h/new?charset=utf8"),
        ("mysql://h", "mysql+aiomysql://h/new"),
    ],
)
def test_a_servers_url_gets_a_driver_and_a_database(given: str, expected: str) -> None:
    assert with_scheme(given, "mysql+aiomysql", "new") == expected


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("sqlite:////tmp/a", "sqlite:////tmp/a"),
        ("sqlite+aiosqlite:////tmp/a", "sqlite:////tmp/a"),
        ("postgresql+asyncpg://h/a", "postgresql+psycopg://h/a"),
        ("mysql+aiomysql://h/a", "mysql+pymysql://h/a?ssl_disabled=true"),
        ("mariadb+asyncmy://h/a", "mysql+pymysql://h/a?ssl_disabled=true"),
        ("mysql+aiomysql://h/a?b=c", "mysql+pymysql://h/a?b=c&ssl_disabled=true"),
    ],
)
def test_a_database_has_a_url_for_a_synchronous_engine(given: str, expected: str) -> None:
    assert synchronous(given) == expected


def test_a_driver_that_is_not_there_has_no_url() -> None:
    assert with_scheme("mysql://h/x", None, "new") is None


def test_a_missing_address_names_its_variable_and_the_command_that_helps() -> None:
    with pytest.raises(MissingServerError, match=r"TTL_ODM_TEST_MONGODB_URL.*tools/dev\.py test"):
        server_url("mongodb", {})


def test_sqlite_needs_no_server_and_gives_each_test_a_file(tmp_path: Path) -> None:
    with fresh("sqlite", tmp_path) as backend:
        assert backend.database == "sqlite"
        assert backend.sync_url == f"sqlite:///{tmp_path}/test.sqlite3"
        assert backend.async_url == f"sqlite+aiosqlite:///{tmp_path}/test.sqlite3"

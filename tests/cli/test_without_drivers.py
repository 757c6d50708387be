"""A URL whose driver isn't installed: the message names a package that pip can install."""

from __future__ import annotations

import pytest

from tests.cli.running import MAIN, run_without

DRIVERS = "pymysql MySQLdb mysql mariadb aiomysql asyncmy psycopg psycopg2 asyncpg pg8000"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("mysql://user@host/shop", "pymysql"),  # which needs no compiler
        ("mariadb://user@host/shop", "pymysql"),
        ("mysql+mysqldb://user@host/shop", "mysqlclient"),
        ("postgresql://user@host/shop", "psycopg"),
    ],
)
def test_a_missing_driver_is_named_with_its_package(url: str, package: str) -> None:
    finished = run_without(DRIVERS.split(), MAIN, "inspect", url)
    assert finished.returncode == 2
    assert f"install it with pip install {package}," in finished.stderr

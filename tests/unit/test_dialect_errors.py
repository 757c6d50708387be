"""Which errors of drivers pass by themselves, as `ttl_odm.dialects.errors` judges them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest
from pg8000.exceptions import InterfaceError

from ttl_odm.dialects import errors

if TYPE_CHECKING:
    from collections.abc import Callable


class DriverError(Exception):
    """One with a SQLSTATE, as psycopg and asyncpg have it."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("the driver's words")
        self.sqlstate = sqlstate


class Psycopg2Error(Exception):
    """One with a SQLSTATE, as psycopg2 has it; None while it connects."""

    def __init__(self, pgcode: str | None) -> None:
        super().__init__("the driver's words")
        self.pgcode = pgcode


def pg8000_error(state: str) -> Exception:
    """One with the server's fields, as pg8000 has them."""
    return Exception({"S": "ERROR", "C": state, "M": "the server's words", "D": "a row's values"})


def connector_error(number: int) -> Exception:
    """One with all in its message, and around it, as mysql-connector has it."""
    return Exception(number, f"{number} (HY000): the server's words", "HY000")


class MariaDBError(Exception):
    """One with a number and a SQLSTATE beside the message, as MariaDB's own driver has it."""

    def __init__(self, errno: int) -> None:
        super().__init__("the server's words")
        self.errno = errno
        self.sqlstate = "HY000"


def pymysql_error(number: int) -> Exception:
    """One with the number before the message, as PyMySQL and those like it have it."""
    return Exception(number, "the server's words")


@pytest.mark.parametrize("made", [pymysql_error, connector_error, MariaDBError])
def test_each_driver_of_mysql_tells_the_number(made: Callable[[int], Exception]) -> None:
    assert errors.code_of(made(1205)) == 1205
    assert errors.is_locked(made(1205))
    assert errors.is_missing_table(made(1146))
    assert errors.is_restricted(made(1451))
    assert errors.is_refused(made(1644), of_data=False)
    assert errors.in_short(made(1644)) == "the server's words"


@pytest.mark.parametrize("number", [1047, 2003, 2005, 2006, 2013, 2055, 3032, 3797, 4031])
def test_a_server_that_a_driver_of_mysql_has_lost_is_away(number: int) -> None:
    assert errors.is_away(MariaDBError(number), operational=False)


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_of_no_error_is_none(number: int) -> None:
    assert errors.code_of(MariaDBError(number)) is None
    assert errors.is_away(connector_error(number), operational=True)


@pytest.mark.parametrize("made", [DriverError, Psycopg2Error, pg8000_error])
def test_each_driver_of_postgresql_tells_the_state(made: Callable[[str], Exception]) -> None:
    assert errors.code_of(made("55P03")) == "55P03"
    assert errors.is_locked(made("55P03"))
    assert errors.is_missing_table(made("42P01"))
    assert errors.is_restricted(made("23503"))
    assert errors.is_refused(made("P0001"), of_data=False)


def test_a_server_that_psycopg2_cannot_reach_is_away() -> None:
    assert errors.is_away(Psycopg2Error(None), operational=True)


def test_a_connection_that_pg8000_cannot_use_is_away() -> None:
    assert errors.is_away(InterfaceError("network error"), operational=False)
    namesake = type("InterfaceError", (Exception,), {})
    assert not errors.is_away(namesake("network error"), operational=False)


def test_a_message_of_pg8000_is_the_servers_without_a_rows_values() -> None:
    assert errors.in_short(pg8000_error("23505")) == "the server's words"


def test_a_locked_file_passes() -> None:
    error = sqlite3.OperationalError("database is locked")
    assert errors.is_passing(error, operational=True)


def test_a_constraint_on_a_column_called_locked_does_not_pass() -> None:
    error = sqlite3.IntegrityError("UNIQUE constraint failed: doors.locked")
    assert not errors.is_passing(error, operational=False)


@pytest.mark.parametrize("state", ["55P03", "40P01", "40001", "57014", "57P01", "08006"])
def test_a_state_that_passes_passes(state: str) -> None:
    assert errors.is_passing(DriverError(state), operational=False)


@pytest.mark.parametrize("state", ["42P01", "23505", "22003"])
def test_a_state_that_stays_does_not_pass(state: str) -> None:
    assert not errors.is_passing(DriverError(state), operational=True)


@pytest.mark.parametrize("number", [1205, 1213, 2006, 2013, 1927, 3101])
def test_a_number_of_mysqls_that_passes_passes(number: int) -> None:
    assert errors.is_passing(Exception(number, "the driver's words"), operational=False)

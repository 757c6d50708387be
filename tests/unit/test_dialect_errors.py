"""Which errors of drivers pass by themselves, as `ttl_odm.dialects.errors` judges them."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

import pytest

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


@pytest.mark.parametrize("made", [DriverError, Psycopg2Error, pg8000_error])
def test_each_driver_of_postgresql_tells_the_state(made: Callable[[str], Exception]) -> None:
    assert errors.code_of(made("55P03")) == "55P03"
    assert errors.is_locked(made("55P03"))
    assert errors.is_missing_table(made("42P01"))
    assert errors.is_restricted(made("23503"))
    assert errors.is_refused(made("P0001"), of_data=False)


def test_a_server_that_psycopg2_cannot_reach_is_away() -> None:
    assert errors.is_away(Psycopg2Error(None), operational=True)


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


@pytest.mark.parametrize("number", [1205, 1213, 2006, 2013, 1927])
def test_a_number_of_mysqls_that_passes_passes(number: int) -> None:
    assert errors.is_passing(Exception(number, "the driver's words"), operational=False)

"""Which errors of drivers pass by themselves, as `ttl_odm.dialects.errors` judges them."""

from __future__ import annotations

import sqlite3

import pytest

from ttl_odm.dialects import errors


class DriverError(Exception):
    """One with a SQLSTATE, as psycopg and asyncpg have it."""

    def __init__(self, sqlstate: str) -> None:
        super().__init__("the driver's words")
        self.sqlstate = sqlstate


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

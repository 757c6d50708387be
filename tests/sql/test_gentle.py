"""The size of a gentle sweep's batches: what the database has to say of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sql.models import web_session
from ttl_odm.sqlalchemy.sweep.store import open_store
from ttl_odm.sweeper import Pace
from ttl_odm.sweeper.options import settings_of

if TYPE_CHECKING:
    from sqlalchemy import Engine


@pytest.mark.databases("postgres", "mariadb", "mysql")
def test_a_gentle_batch_has_as_many_rows_as_suit_the_database(engine: Engine) -> None:
    rows = 100 if engine.dialect.name == "postgresql" else 20
    pace = settings_of({"gentle": True}, open_store(engine, web_session(3_600))).pace
    assert isinstance(pace, Pace)
    assert (pace.start, pace.highest) == (rows, rows)


@pytest.mark.databases("sqlite")
def test_a_gentle_batch_has_as_many_rows_as_it_has_time_for(engine: Engine) -> None:
    pace = settings_of({"gentle": True}, open_store(engine, web_session(3_600))).pace
    assert isinstance(pace, Pace)
    assert pace.next(100, pace.target) == 100
    assert pace.next(100, 2 * pace.target) == 50

"""PostgreSQL sends intervals in the session's IntervalStyle, of which drivers read only some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from sqlalchemy import event

from tests.sql.sweeping import HOUR, add, cart, sweeps
from ttl_odm.sqlalchemy.sweep.leases import TableLeases
from ttl_odm.sweeper import Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine

pytestmark = [pytest.mark.databases("postgres"), pytest.mark.every_driver]


@pytest.fixture(params=["iso_8601", "sql_standard", "postgres_verbose"])
def styled(request: pytest.FixtureRequest, engine: Engine) -> Engine:
    """An engine whose sessions have another IntervalStyle than PostgreSQL's default."""

    def set_style(session: Any, _: Any) -> None:
        session.cursor().execute(f"SET intervalstyle = {request.param}")
        session.commit()

    event.listen(engine, "connect", set_style)
    engine.dispose()
    return engine


@sweeps
def test_a_sweep_tells_the_age_of_the_oldest_row(styled: Engine, made: Any, sweep: str) -> None:
    model = made(cart(sweep=sweep))
    with styled.begin() as connection:
        add(connection, "carts", [(1, None, 2 * HOUR), (2, 60, 2 * HOUR), (3, None, 0)])
    (target,) = Sweeper(styled, model, dry_run=True).run_once().targets
    assert target.due == 2
    (target,) = Sweeper(styled, model).run_once().targets
    assert target.deleted == 2
    if sweep == "index":
        assert target.oldest_before == pytest.approx(2 * HOUR - 60, abs=HOUR / 2)


def test_a_lease_tells_how_long_it_lasts(styled: Engine) -> None:
    leases = TableLeases(styled)
    assert leases.acquire("ttl_odm", "a", HOUR) is not None
    assert HOUR / 2 < leases.read("ttl_odm").seconds_left <= HOUR

"""``throttle="replication"`` on a server of each kind that has no replicas.

`tests/clusters` has replicas that are behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.sql.sweeping import HOUR, add, cart
from ttl_odm import TTLConfigurationError
from ttl_odm.replication import ReplicationLag
from ttl_odm.sqlalchemy.sweep.store import open_store
from ttl_odm.sweeper import AsyncSweeper, Sweeper

if TYPE_CHECKING:
    from sqlalchemy import Engine
    from sqlalchemy.ext.asyncio import AsyncEngine

# Each server is asked in its own way.
pytestmark = pytest.mark.every_server

EXPIRED = [(key, None, 2 * HOUR) for key in range(3)]


def test_a_sweep_waits_for_nobody_where_nobody_follows(engine: Engine) -> None:
    model = cart()
    model.metadata.create_all(engine)
    for throttle in ("replication", ReplicationLag(open_store(engine, model), at_most=0.5)):
        with engine.begin() as connection:
            add(connection, "carts", EXPIRED)
        report = Sweeper(engine, model, throttle=throttle).run_once()
        assert (report.problems, report.deleted) == ((), 3)
        assert "throttle" not in report.waited


async def test_nor_does_an_asynchronous_sweep(async_engine: AsyncEngine) -> None:
    model = cart()
    async with async_engine.begin() as connection:
        await connection.run_sync(model.metadata.create_all)
        await connection.run_sync(add, "carts", EXPIRED)
    for deleted, throttle in (
        (3, "replication"),
        (0, ReplicationLag(open_store(async_engine, model))),
    ):
        report = await AsyncSweeper(async_engine, model, throttle=throttle).run_once()
        assert (report.problems, report.deleted) == ((), deleted)
        assert "throttle" not in report.waited


def test_a_name_that_nobody_has_registered_is_a_mistake(engine: Engine) -> None:
    with pytest.raises(TTLConfigurationError, match=r"throttle = 'load': .*\(replication\)"):
        Sweeper(engine, cart(), throttle="load")


@pytest.mark.parametrize("replica", [None, "postgresql://replica", object()])
def test_replicas_are_engines_as_the_primary_is(engine: Engine, replica: Any) -> None:
    with pytest.raises(TTLConfigurationError, match=r"replicas = .*: give an Engine for each"):
        ReplicationLag(engine, replicas=[replica])


def test_an_engine_that_follows_nobody_is_not_waited_for(engine: Engine) -> None:
    throttle: Any = ReplicationLag(engine, replicas=[engine])
    assert throttle() is None

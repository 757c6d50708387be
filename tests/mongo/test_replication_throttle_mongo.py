"""``throttle="replication"`` on a replica set of one; `tests/clusters` has a larger one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bson import Timestamp

from tests.mongo.sweeping import HOUR, swept
from ttl_odm import TTLConfigurationError
from ttl_odm.replication import ReplicationLag
from ttl_odm.replication.beanie import reading_of
from ttl_odm.replication.lag import Reading, Replica

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.mongo.sweeping import Swept


@pytest.fixture
async def carts(mongodb_url: str) -> AsyncIterator[Swept]:
    async with swept(mongodb_url) as made:
        yield made


@pytest.mark.parametrize("throttle", ["replication", None])
async def test_a_sweep_waits_for_nobody_where_nobody_follows(
    carts: Swept, throttle: str | None
) -> None:
    carts.add("abc", age=2 * HOUR)
    options = {"throttle": throttle or ReplicationLag(carts.database, at_most=0.5)}
    report = await carts.sweep(**options)
    assert (report.problems, report.deleted) == ((), 3)
    assert "throttle" not in report.waited


def test_members_that_are_up_are_compared_with_the_primary() -> None:
    def member(name: str, state: str, time: int, inc: int = 0) -> dict[str, object]:
        return {"name": name, "stateStr": state, "optime": {"ts": Timestamp(time, inc), "t": 1}}

    status = {
        "members": [
            member("a", "SECONDARY", 7, 2),
            member("b", "PRIMARY", 8),
            member("c", "RECOVERING", 1),
            member("d", "(not reachable/healthy)", 0),
        ]
    }
    assert reading_of(status, {}) == Reading([Replica("a", position=7 * 2**32 + 2)], 8 * 2**32)
    for reported, known in (((7, 3), 7 * 2**32 + 3), ((7, 1), 7 * 2**32 + 2)):
        at = {"ts": Timestamp(*reported), "t": 1}
        for names in (("optime", "lastAppliedOpTime"), ("optime",)):
            # The position at the last heartbeat may be later, of a member that has just come.
            progress = {"replicationProgress": [{"host": "a", **dict.fromkeys(names, at)}]}
            reading = reading_of(status, progress)
            assert reading == Reading([Replica("a", position=known)], 8 * 2**32)


async def test_a_replica_set_names_its_members_itself(carts: Swept) -> None:
    with pytest.raises(TTLConfigurationError, match="replicas = "):
        ReplicationLag(carts.database, replicas=[carts.database])
